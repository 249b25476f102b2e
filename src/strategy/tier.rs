//! Tiers: values of members that an entry of a strategy's values asks for.

use std::fmt;
use std::str::FromStr;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Membership;

/// Greatest value of a member.
const MOST: u8 = 15;

/// The value of a member of an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// From 0 to 15.
    Value(u8),
    /// It has none.
    None,
    /// One of the device's ids, which was not read, may have a greater one.
    Unknown,
}

/// Members of an audience with a value in a range, or those without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tiers {
    /// From the first to the last value.
    Range(u8, u8),
    /// No value.
    None,
}

impl Tiers {
    /// The accepted forms, for messages.
    pub const ACCEPTED: &str = "a whole number from 0 to 15, a range such as 8..=15, 8.. or ..=7, \
                                or none";

    /// Whether a member with this value is one of them.
    pub(super) fn membership(self, tier: Tier) -> Membership {
        let is_one = match (self, tier) {
            (_, Tier::Unknown) => return Membership::Unavailable,
            (Self::Range(first, last), Tier::Value(value)) => (first..=last).contains(&value),
            (Self::None, Tier::None) => true,
            _ => false,
        };
        if is_one {
            Membership::Member
        } else {
            Membership::NotMember
        }
    }
}

impl FromStr for Tiers {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "none" {
            return Ok(Self::None);
        }

        let Some((first_text, last_text)) = text.split_once("..") else {
            let value = value_of(text)?;
            return Ok(Self::Range(value, value));
        };
        // `..` alone would ask for every value.
        let is_from_least = first_text.is_empty() && !last_text.is_empty();
        let first = if is_from_least {
            0
        } else {
            value_of(first_text)?
        };
        let last = match last_text.strip_prefix('=') {
            Some(included) => value_of(included)?,
            None if last_text.is_empty() => MOST,
            None => return Err(()),
        };

        if first > last {
            return Err(());
        }
        Ok(Self::Range(first, last))
    }
}

/// A value in its only form: without a sign, and without zeros before it.
fn value_of(text: &str) -> Result<u8, ()> {
    match text.parse::<u8>() {
        Ok(value) if value <= MOST && text == value.to_string() => Ok(value),
        _ => Err(()),
    }
}

impl fmt::Display for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(first, last) if first == last => write!(f, "{first}"),
            Self::Range(first, last) => write!(f, "{first}..={last}"),
            Self::None => f.write_str("none"),
        }
    }
}

impl Serialize for Tiers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Tiers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl Visitor<'_> for Form {
            type Value = Tiers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Tiers::ACCEPTED)
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Tiers, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Tiers, E> {
                text.parse().map_err(|()| E::custom(Tiers::ACCEPTED))
            }
        }
        deserializer.deserialize_any(Form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_tiers_are_read_and_others_refused() {
        for (text, tiers) in [
            ("0", Tiers::Range(0, 0)),
            ("15", Tiers::Range(15, 15)),
            ("8..=15", Tiers::Range(8, 15)),
            ("3..=3", Tiers::Range(3, 3)),
            ("8..", Tiers::Range(8, 15)),
            ("..=7", Tiers::Range(0, 7)),
            ("none", Tiers::None),
        ] {
            assert_eq!(text.parse(), Ok(tiers), "{text}");
            assert_eq!(tiers.to_string().parse(), Ok(tiers), "{text}");
        }
        for text in [
            "", "16", "-1", "07", "+7", "8..15", "9..=8", "0..=16", "..", "..=", "=3", "1.5",
        ] {
            assert_eq!(text.parse::<Tiers>(), Err(()), "{text}");
        }
    }

    #[test]
    fn members_are_in_the_tier_of_their_value_alone() {
        let tiers = [Tiers::Range(0, 7), Tiers::Range(8, 15), Tiers::None];
        use Membership::{Member as M, NotMember as N, Unavailable as U};
        for (tier, expected) in [
            (Tier::Value(7), [M, N, N]),
            (Tier::Value(8), [N, M, N]),
            (Tier::None, [N, N, M]),
            (Tier::Unknown, [U, U, U]),
        ] {
            assert_eq!(
                tiers.map(|tiers| tiers.membership(tier)),
                expected,
                "{tier:?}"
            );
        }
    }
}
