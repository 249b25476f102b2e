//! Names of keys in Redis: `<namespace>:<window>:<period><16 bytes of the key>`.
//!
//! The period is decimal, and absent from windows without one. The device key has a fixed length,
//! so that no separator precedes it and names are unambiguous. With `rtad`, a window's name of
//! three letters and a day's number, a name has 30 bytes: the longest that Redis stores in 32.
//!
//! Names have no hash tag. All commands have one key, so that a tag would win nothing, and the
//! slots of whole names spread evenly over the nodes. 256 tags would use at most 256 of 16,384
//! slots: an imbalance of several percent with three nodes, and of half with a hundred. Client and
//! server hash only the content of a `{…}` that the device key itself contains.

use crc::{CRC_16_XMODEM, Crc};

/// Number of hash slots of a cluster.
pub const SLOTS: usize = 16_384;

static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// First part of all names of a window.
#[derive(Clone, Debug)]
pub struct Names {
    prefix: String,
}

impl Names {
    pub fn new(namespace: &str, window: &str) -> Self {
        Self {
            prefix: format!("{namespace}:{window}:"),
        }
    }

    /// Name of a key in a period.
    pub fn key(&self, period: Option<u64>, key: &[u8; 16]) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.prefix.len() + 20 + key.len());
        name.extend_from_slice(self.prefix.as_bytes());
        if let Some(period) = period {
            name.extend_from_slice(period.to_string().as_bytes());
        }
        name.extend_from_slice(key);
        name
    }

    /// Name of a quota. The dot keeps it apart from the keys of windows.
    pub fn quota(namespace: &str, group: &str, quota: &str) -> Vec<u8> {
        format!("{namespace}:{group}.leases:{quota}").into_bytes()
    }

    /// Name for a probe: shorter than that of any key.
    pub fn probe(&self, number: u16) -> Vec<u8> {
        format!("{}probe{number}", self.prefix).into_bytes()
    }
}

/// Hash slot of a name, by the cluster specification.
pub fn slot(name: &[u8]) -> u16 {
    CRC.checksum(hashed(name)) % SLOTS as u16
}

/// The part that is hashed: between the first `{` and the next `}`, if not empty.
fn hashed(name: &[u8]) -> &[u8] {
    let Some(open) = name.iter().position(|byte| *byte == b'{') else {
        return name;
    };
    let tail = &name[open + 1..];
    match tail.iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => &tail[..length],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_namespace_window_and_period() {
        let names = Names::new("rtad", "day");
        assert_eq!(
            names.key(Some(20_780), &[b'k'; 16]),
            b"rtad:day:20780kkkkkkkkkkkkkkkk"
        );
        assert_eq!(
            names.key(None, &[0; 16]),
            [b"rtad:day:".as_slice(), &[0; 16]].concat()
        );
    }

    #[test]
    fn slots_agree_with_the_cluster_specification() {
        // CLUSTER KEYSLOT of Redis 7.0.
        assert_eq!(slot(b"123456789"), 12_739);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), CRC.checksum(b"foo{}{bar}") % 16_384);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    }
}
