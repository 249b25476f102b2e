//! Values of bids: the numbers of the first entry whose conditions hold for the device. An entry
//! may ask for members with values of their own: its tiers.

use std::fmt;
use std::str::FromStr;

use serde::de::Visitor;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strum::VariantArray as _;

use super::Membership;
use super::experiment::Assignment;
use super::facts::{Facts, Tier};
use super::rule::Truth;

/// Most entries of a strategy.
pub const MAX_VALUES: usize = 64;

/// Greatest value of a member.
const MOST: u8 = 15;

/// A number of a value. Platforms get those that their protocols have.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum ValueKey {
    /// Factor of the bid; 1 changes nothing.
    Weight,
    /// Price of a conversion, in hundredths of a yuan.
    CpaPrice,
    /// Price of a click, in hundredths of a yuan.
    CpcPrice,
    /// Factor of the price of a click.
    CpcFactor,
    /// Score of the device.
    Quality,
}

impl ValueKey {
    /// All keys, in the order of answers.
    pub const ALL: [Self; 5] = *Self::VARIANTS.as_array().expect("every variant");

    /// The word in the config and in answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether its numbers are whole.
    pub const fn is_price(self) -> bool {
        matches!(self, Self::CpaPrice | Self::CpcPrice)
    }
}

/// The numbers of a value, by key. Prices are whole and fit into 32 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BidValue([Option<f64>; ValueKey::ALL.len()]);

impl BidValue {
    /// Sets a number.
    #[must_use]
    pub const fn with(mut self, key: ValueKey, number: Option<f64>) -> Self {
        self.0[key as usize] = number;
        self
    }

    /// The number of a key.
    pub const fn get(&self, key: ValueKey) -> Option<f64> {
        self.0[key as usize]
    }

    /// A price.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "prices fit"
    )]
    pub fn price(&self, key: ValueKey) -> Option<u32> {
        self.get(key).map(|price| price as u32)
    }

    /// The numbers that are given.
    pub fn numbers(&self) -> impl Iterator<Item = (ValueKey, f64)> {
        ValueKey::ALL
            .into_iter()
            .filter_map(|key| Some((key, self.get(key)?)))
    }
}

/// An object of the given numbers; prices without a fraction.
impl Serialize for BidValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, number) in self.numbers() {
            match self.price(key) {
                Some(price) if key.is_price() => map.serialize_entry(key.as_str(), &price)?,
                _ => map.serialize_entry(key.as_str(), &number)?,
            }
        }
        map.end()
    }
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

/// An entry of a strategy's values. A device gets it if each of its conditions holds. An entry
/// without a condition is the default of other bids, the last entry.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValueEntry {
    /// The audience whose members get it.
    pub audience: Option<usize>,
    /// The values that those members must have in it; `None` = any or none.
    pub tiers: Option<Tiers>,
    /// An experiment, and the part in it of the devices that get it.
    pub part: Option<(usize, Assignment)>,
    /// Its numbers.
    pub value: BidValue,
}

impl ValueEntry {
    /// Whether it is the value of other bids.
    const fn is_default(&self) -> bool {
        self.audience.is_none() && self.part.is_none()
    }

    /// Whether a device gets it: a condition that does not hold decides, whatever is unknown.
    fn truth(&self, facts: &Facts<'_>) -> Truth {
        let mut is_unknown = false;
        if let Some((experiment, part)) = self.part {
            match facts.part(experiment) {
                Assignment::Unknown => is_unknown = true,
                found if found == part => {}
                _ => return Truth::False,
            }
        }

        if let Some(audience) = self.audience {
            match self.membership(audience, facts) {
                Membership::Member => {}
                Membership::NotMember => return Truth::False,
                Membership::Unavailable => is_unknown = true,
            }
        }

        if is_unknown {
            Truth::Unknown
        } else {
            Truth::True
        }
    }

    /// Whether a device is in its audience, with a value that it asks for.
    fn membership(&self, audience: usize, facts: &Facts<'_>) -> Membership {
        let membership = facts.membership(audience);
        match self.tiers {
            Some(tiers) if membership == Membership::Member => {
                tiers.membership(facts.tier(audience))
            }
            _ => membership,
        }
    }

    /// The entry that leads to the default, as it is unknown whether it fits.
    pub(super) fn first_unknown<'e>(values: &'e [Self], facts: &Facts<'_>) -> Option<&'e Self> {
        for entry in values {
            match entry.truth(facts) {
                Truth::True => return None,
                Truth::False => {}
                Truth::Unknown => return Some(entry),
            }
        }
        None
    }

    /// Whether no member without a value gets it.
    pub fn asks_for_value(&self) -> bool {
        matches!(self.tiers, Some(Tiers::Range(..)))
    }
}

/// The value of a decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChosenValue {
    /// Index of the entry.
    pub index: Option<u8>,
    /// Whether it is the default because an earlier entry may fit.
    pub is_fallback: bool,
}

impl ChosenValue {
    /// The first entry whose conditions hold. An unknown one before it leads to the default: a
    /// later entry might be wrong.
    pub(super) fn first(values: &[ValueEntry], facts: &Facts<'_>) -> Self {
        for (index, entry) in values.iter().enumerate() {
            match entry.truth(facts) {
                Truth::True => {
                    return Self {
                        index: index_of(index),
                        is_fallback: false,
                    };
                }
                Truth::False => {}
                Truth::Unknown => {
                    return Self {
                        is_fallback: true,
                        ..Self::default_of(values)
                    };
                }
            }
        }

        Self::default()
    }

    /// The default.
    pub(super) fn default_of(values: &[ValueEntry]) -> Self {
        let index = values.iter().position(ValueEntry::is_default);
        Self {
            index: index.and_then(index_of),
            is_fallback: false,
        }
    }
}

fn index_of(index: usize) -> Option<u8> {
    Some(u8::try_from(index).expect("at most MAX_VALUES entries"))
}

#[cfg(test)]
mod tests {
    use super::Membership::{Member as M, NotMember as N, Unavailable as U};
    use super::*;
    use crate::strategy::AudienceAnswer;
    use crate::strategy::facts::tests::facts;

    #[test]
    fn first_match_wins_and_unavailable_audiences_lead_to_the_default() {
        let entry = |audience| ValueEntry {
            audience,
            ..ValueEntry::default()
        };
        let mut values = [Some(0), Some(1), None].map(entry).to_vec();
        let first = |values: &[ValueEntry], answers: [Membership; 2]| {
            let chosen = ChosenValue::first(values, &facts(&answers));
            (chosen.index, chosen.is_fallback)
        };
        for (answers, expected) in [
            ([M, M], (Some(0), false)),
            ([M, U], (Some(0), false)),
            ([N, M], (Some(1), false)),
            ([N, N], (Some(2), false)),
            ([U, M], (Some(2), true)),
            ([N, U], (Some(2), true)),
        ] {
            assert_eq!(first(&values, answers), expected, "{answers:?}");
        }
        values.pop();
        assert_eq!(first(&values, [N, N]), (None, false));
        assert_eq!(first(&values, [U, M]), (None, true));
    }

    #[test]
    fn tiers_of_members_choose_between_entries_of_one_audience() {
        let entry = |audience, tiers| ValueEntry {
            audience,
            tiers,
            ..ValueEntry::default()
        };
        let values = [
            entry(Some(0), Some(Tiers::Range(8, 15))),
            entry(Some(0), Some(Tiers::None)),
            entry(Some(1), Some(Tiers::Range(0, 15))),
            entry(Some(0), None),
            entry(None, None),
        ];
        let first = |answers: [Membership; 2], tiers: [Tier; 2]| {
            let mut facts = facts(&answers);
            for (audience, tier) in tiers.into_iter().enumerate() {
                let membership = answers[audience];
                facts.set_answer(audience, AudienceAnswer { membership, tier });
            }
            let chosen = ChosenValue::first(&values, &facts);
            (chosen.index.unwrap(), chosen.is_fallback)
        };
        let value = Tier::Value;
        assert_eq!(first([M, M], [value(8), value(0)]), (0, false));
        assert_eq!(first([M, M], [Tier::None, value(0)]), (1, false));
        assert_eq!(first([M, M], [value(7), value(0)]), (2, false));
        assert_eq!(first([M, M], [value(7), Tier::None]), (3, false));
        assert_eq!(first([M, N], [value(7), value(0)]), (3, false));
        assert_eq!(first([M, M], [Tier::Unknown, value(0)]), (4, true));
        assert_eq!(first([N, N], [value(8), value(0)]), (4, false));
        assert_eq!(first([N, U], [value(8), value(0)]), (4, true));
    }

    #[test]
    fn part_in_an_experiment_chooses_alone_and_beside_an_audience() {
        use Assignment::{Bucket, NoBucket, Unknown};
        let entry = |audience, part| ValueEntry {
            audience,
            part,
            ..ValueEntry::default()
        };
        let values = [
            entry(Some(0), Some((0, Bucket(1)))),
            entry(None, Some((0, Bucket(0)))),
            entry(None, Some((0, NoBucket))),
            entry(Some(0), None),
            entry(None, None),
        ];
        let first = |answer: Membership, part: Assignment| {
            let mut facts = facts(&[answer]);
            facts.parts.push(part);
            let chosen = ChosenValue::first(&values, &facts);
            (chosen.index.unwrap(), chosen.is_fallback)
        };
        assert_eq!(first(M, Bucket(1)), (0, false));
        assert_eq!(first(N, Bucket(1)), (4, false));
        assert_eq!(first(U, Bucket(1)), (4, true));
        // Another part refuses the first entry, whatever its audience would say.
        assert_eq!(first(U, Bucket(0)), (1, false));
        assert_eq!(first(U, NoBucket), (2, false));
        assert_eq!(first(M, Bucket(2)), (3, false));
        assert_eq!(first(N, Unknown), (4, true));
        assert_eq!(ChosenValue::default_of(&values).index, Some(4));

        // Without a part, as of an experiment that a row of the log lacks.
        let chosen = ChosenValue::first(&values, &facts(&[N]));
        assert_eq!((chosen.index, chosen.is_fallback), (Some(4), true));
    }

    #[test]
    fn value_is_written_with_whole_prices() {
        let value = BidValue::default()
            .with(ValueKey::CpaPrice, Some(3000.0))
            .with(ValueKey::Weight, Some(2.0));
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(json, r#"{"weight":2.0,"cpa_price":3000}"#);
    }

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
