//! `--stage`: the share of the pods that serve a new generation first.

use std::fmt;

use clap::Args;
use serde::{Serialize, Serializer};

/// Millionths in a percent.
const MILLIONTHS: f64 = 10_000.0;

/// `--stage` of a publish.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct StageArgs {
    /// Stage the generation: only this share of the pods serves it, such as 5%, and the others the
    /// live one. `promote` makes it live for all, `rollback` drops it
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub stage: Option<PodShare>,
}

/// A share of the pods, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodShare(u32);

impl PodShare {
    pub const fn of_millionths(pods_per_million: u32) -> Self {
        Self(pods_per_million)
    }

    pub const fn millionths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for PodShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / MILLIONTHS)
    }
}

impl Serialize for PodShare {
    /// A fraction.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / (100.0 * MILLIONTHS))
    }
}

pub fn parse_share(text: &str) -> Result<PodShare, &'static str> {
    const REFUSED: &str = "accepted: a percentage from 0.0001% to 99.9999%, such as 5%";
    let percent: f64 = text
        .strip_suffix('%')
        .and_then(|number| number.parse().ok())
        .ok_or(REFUSED)?;
    if !(0.0001..=99.9999).contains(&percent) {
        return Err(REFUSED);
    }
    Ok(PodShare((percent * MILLIONTHS).round() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        for (text, millionths) in [
            ("5%", 50_000),
            ("0.0001%", 1),
            ("99.9999%", 999_999),
            ("12.5%", 125_000),
        ] {
            let share = parse_share(text).unwrap();
            assert_eq!(share.millionths(), millionths, "{text}");
            assert_eq!(share.to_string(), text);
        }
        for text in ["5", "0.05", "0%", "100%", "-5%", "NaN%", "%", "", "5 %"] {
            parse_share(text).unwrap_err();
        }
    }
}
