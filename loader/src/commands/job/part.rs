//! Part of an audience: a range of shards whose chunks one task builds.

use std::ops::Range;
use std::str::FromStr;

use rtad_core::device::{DeviceKey, SHARDS};

/// Largest number of parts: each then has 16 shards.
const MAX_PARTS: u32 = 4096;

/// One of a power of two of equal ranges of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub index: u32,
    pub parts: u32,
}

impl Part {
    /// The numbers of its shards.
    pub const fn shards(self) -> Range<u32> {
        let shards = SHARDS as u32 / self.parts;
        self.index * shards..(self.index + 1) * shards
    }

    pub fn contains(self, key: &DeviceKey) -> bool {
        self.shards().contains(&u32::from(key.shard()))
    }

    /// Number of keys of the part.
    pub fn count<'k>(self, keys: impl IntoIterator<Item = &'k DeviceKey>) -> u64 {
        let mut count = 0;
        for key in keys {
            count += u64::from(self.contains(key));
        }
        count
    }
}

impl FromStr for Part {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const ACCEPTED: &str =
            "accepted: J/N with N a power of two up to 4096, and J from 0 to N - 1";
        let (index, parts) = text.split_once('/').ok_or(ACCEPTED)?;
        let index: u32 = index.parse().map_err(|_| ACCEPTED)?;
        let parts: u32 = parts.parse().map_err(|_| ACCEPTED)?;
        if parts.is_power_of_two() && parts <= MAX_PARTS && index < parts {
            Ok(Self { index, parts })
        } else {
            Err(ACCEPTED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_a_range_of_shards() {
        for (text, shards) in [
            ("0/1", 0..65_536),
            ("15/16", 61_440..65_536),
            ("4095/4096", 65_520..65_536),
        ] {
            assert_eq!(text.parse::<Part>().unwrap().shards(), shards, "{text}");
        }
        for refused in ["", "1", "1/1", "0/0", "0/3", "0/8192", "-1/4", "a/4"] {
            assert!(refused.parse::<Part>().is_err(), "{refused}");
        }
    }
}
