//! Tiers: values of members that an entry of a strategy's values asks for.

use std::fmt;
use std::str::FromStr;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Membership;

/// Greatest value of a member.
const MOST: u8 = 15;
/// Stands for members without a value in a [`TierSet`].
const NONE_BIT: u32 = MOST as u32 + 1;

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

/// Values of members, and whether members without one are among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierSet(u32);

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

impl TierSet {
    /// The values of an entry; all members without `tiers`.
    pub fn of(tiers: Option<Tiers>) -> Self {
        let bits = |first: u32, last: u32| (1 << (last + 1)) - (1 << first);
        Self(match tiers {
            Some(Tiers::Range(first, last)) => bits(first.into(), last.into()),
            Some(Tiers::None) => bits(NONE_BIT, NONE_BIT),
            None => bits(0, NONE_BIT),
        })
    }

    /// The values of either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has all values of the other.
    pub const fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

/// Marks the entries of a strategy's values that a member of these audiences may get. Entries are
/// audiences, `None` for the default, and values of their members: a device's value in one
/// audience says nothing about that in another.
pub fn reach(
    entries: &[(Option<usize>, TierSet)],
    is_member: impl Fn(&usize) -> bool,
    reached: &mut [bool],
) {
    for (index, (audience, tiers)) in entries.iter().enumerate() {
        if !audience.as_ref().is_none_or(&is_member) {
            continue;
        }
        let same = entries[..index]
            .iter()
            .filter(|(other, _)| other == audience);
        let before = same.fold(TierSet::default(), |set, (_, tiers)| set.or(*tiers));
        reached[index] |= !before.covers(*tiers);
        if before.or(*tiers) == TierSet::of(None) {
            return;
        }
    }
}

impl FromStr for Tiers {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let value = |text: &str| {
            let value: u8 = text.parse().ok()?;
            (value <= MOST && text == value.to_string()).then_some(value)
        };
        let range = |first: Option<u8>, last: Option<u8>| Some(Self::Range(first?, last?));
        let tiers = match text.split_once("..") {
            None if text == "none" => Some(Self::None),
            None => range(value(text), value(text)),
            Some((first, "")) => range(value(first), Some(MOST)),
            Some((first, last)) => {
                let first = if first.is_empty() {
                    Some(0)
                } else {
                    value(first)
                };
                range(first, last.strip_prefix('=').and_then(value))
            }
        };
        tiers
            .filter(|tiers| !matches!(tiers, Self::Range(first, last) if first > last))
            .ok_or(())
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
    fn members_are_in_the_set_of_their_value_alone() {
        let tiers = [Tiers::Range(0, 7), Tiers::Range(8, 15), Tiers::None];
        let [low, high, none] = tiers.map(|tiers| TierSet::of(Some(tiers)));
        assert!(low.or(high).or(none) == TierSet::of(None));
        assert!(low.or(high).covers(TierSet::of(Some(Tiers::Range(7, 8)))));
        assert!(!low.covers(TierSet::of(Some(Tiers::Range(7, 8)))));
        assert!(!low.or(high).covers(TierSet::of(None)));
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
