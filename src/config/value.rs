//! `[[strategy.value]]`: numbers that a strategy's bids carry.

use rtad_config::Document;
use rtad_core::snapshot::AudienceName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::condition::refuse_unknown;
use super::trial::MAX_TRIED;
use crate::strategy::{
    BidValue, MAX_VALUES, Membership, NoAttributes, Rule, Strategy, Tier, TierSet, Tiers,
    ValueEntry, ValueKey,
};

/// Greatest number; platforms accept less.
const MOST: f64 = 1e9;

/// A value of a strategy's bids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct ValueConfig {
    /// Audience whose members get the value, unless an entry before fits. Unset = the value of all
    /// other bids: the last entry.
    pub audience: Option<AudienceName>,
    /// Values that those members must have in it, of a list that was built with `--value`: a number
    /// from 0 to 15, a range (`8..=15`, `8..`, `..=7`), or `none`. Unset = any or none.
    pub tier: Option<Tiers>,
    /// Factor of the bid; 1 changes nothing. From 0.2 to 5 for `tencent`.
    #[serde(default, deserialize_with = "amount")]
    pub weight: Option<f64>,
    /// Price of a conversion, in hundredths of a yuan.
    #[serde(default, deserialize_with = "price")]
    pub cpa_price: Option<u32>,
    /// Price of a click, in hundredths of a yuan. From 10 for `tencent`, where it beats
    /// `cpc_factor`.
    #[serde(default, deserialize_with = "price")]
    pub cpc_price: Option<u32>,
    /// Factor of the price of a click. From 0.2 to 5 for `tencent`.
    #[serde(default, deserialize_with = "amount")]
    pub cpc_factor: Option<f64>,
    /// Score of the device, for platforms that take one.
    #[serde(default, deserialize_with = "amount")]
    pub quality: Option<f64>,
}

/// The numbers of a key that a kind of platform accepts.
#[derive(Debug, Clone, Copy)]
pub struct ValueBounds {
    /// The key.
    pub key: ValueKey,
    /// The least number.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

impl ValueBounds {
    /// The accepted numbers, if the value has another one.
    pub(super) fn refused(&self, value: &BidValue) -> Option<String> {
        let Self { key, least, most } = self;
        let number = value.get(*key)?;
        (!(*least..=*most).contains(&number)).then(|| format!("{least} to {most}"))
    }
}

impl ValueConfig {
    /// The numbers.
    pub fn numbers(&self) -> BidValue {
        BidValue::default()
            .with(ValueKey::Weight, self.weight)
            .with(ValueKey::CpaPrice, self.cpa_price.map(f64::from))
            .with(ValueKey::CpcPrice, self.cpc_price.map(f64::from))
            .with(ValueKey::CpcFactor, self.cpc_factor)
            .with(ValueKey::Quality, self.quality)
    }

    /// The values of members that it asks for.
    pub(super) fn tiers(&self) -> TierSet {
        TierSet::of(self.tier)
    }
}

/// Whether a bid may have the default in place of a value because an audience is unavailable, or a
/// device's value in it unknown: tries each state of all audiences. True if there are too many, or
/// if the rule reads more than audiences.
pub fn falls_back(
    exclude: Vec<usize>,
    include: Vec<usize>,
    rule: Option<Rule>,
    values: Vec<ValueEntry>,
) -> bool {
    const STATES: [Membership; 3] = [
        Membership::Member,
        Membership::NotMember,
        Membership::Unavailable,
    ];
    let reads_more = |it: &Rule| !it.attributes().is_empty() || !it.buckets().is_empty();
    let reads_more = rule.as_ref().is_some_and(reads_more);
    let strategy = Strategy {
        exclude,
        include,
        rule,
        values,
        ..Strategy::default()
    };
    let mut used: Vec<_> = strategy.audiences().collect();
    used.sort_unstable();
    used.dedup();
    let states = STATES
        .len()
        .checked_pow(used.len() as u32)
        .filter(|it| *it <= MAX_TRIED);
    let Some(states) = states.filter(|_| !reads_more) else {
        return true;
    };
    (0..states).any(|state| {
        let of = |position: u32| STATES[state / STATES.len().pow(position) % STATES.len()];
        let membership = |audience: usize| {
            of(used
                .binary_search(&audience)
                .expect("an audience of the strategy") as u32)
        };
        // A tier is unknown only if an id was not read: then no audience certainly lacks the
        // device.
        let is_certain =
            (0..used.len() as u32).any(|position| of(position) == Membership::NotMember);
        let unknown = (!is_certain).then_some(Tier::Unknown);
        let mut tiers = (0..=15).map(Tier::Value).chain([Tier::None]).chain(unknown);
        tiers.any(|tier| {
            strategy
                .decide(&NoAttributes, membership, |_| tier)
                .value
                .is_fallback
        })
    })
}

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let number = f64::deserialize(deserializer).ok();
    let number = number.filter(|number| (0.0..=MOST).contains(number));
    number
        .map(Some)
        .ok_or_else(|| D::Error::custom(format_args!("a number from 0 to {MOST}")))
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let price = u32::deserialize(deserializer).ok();
    let price = price.filter(|price| (1..=MOST as u32).contains(price));
    price
        .map(Some)
        .ok_or_else(|| D::Error::custom(format_args!("a whole number from 1 to {MOST}")))
}

/// Notes the mistakes in the values of the strategy at `table`.
pub fn check(d: &mut Document<'_>, table: &str, values: &[ValueConfig], audiences: &[String]) {
    if values.len() > MAX_VALUES {
        let found = format!("has {} entries", values.len());
        d.mistake(
            &format!("{table}.value"),
            &found,
            &format!("at most {MAX_VALUES}"),
        );
    }
    for (index, value) in values.iter().enumerate() {
        let entry = format!("{table}.value[{index}]");
        if value.numbers().numbers().next().is_none() && !d.has_mistake(&entry) {
            let keys = ValueKey::ALL.map(ValueKey::as_str).join(", ");
            d.mistake(&entry, "has no number", &format!("at least one of {keys}"));
        }
        let key = format!("{entry}.audience");
        if let Some(name) = &value.audience {
            refuse_unknown(d, &key, name.as_str(), "audiences", audiences);
        }
        if value.tier.is_some() && value.audience.is_none() && !d.has(&key) {
            let accepted = "audience = \"…\" beside it";
            d.mistake(
                &format!("{entry}.tier"),
                "is given without an audience",
                accepted,
            );
            continue;
        }
        let is_wrong = |index: usize| d.has_mistake(&format!("{table}.value[{index}].tier"));
        if is_wrong(index) {
            continue;
        }
        let before = (0..index)
            .filter(|earlier| !is_wrong(*earlier))
            .map(|index| &values[index]);
        let before: Vec<_> = before.collect();
        if before.iter().any(|earlier| earlier.audience.is_none()) {
            let found = "is never reached: an entry before it has no audience";
            d.mistake(
                &entry,
                found,
                "the entry without an audience as the last one",
            );
            continue;
        }
        let is_same = |earlier: &&&ValueConfig| earlier.audience == value.audience;
        let same: Vec<_> = before.iter().filter(is_same).collect();
        let covered = same
            .iter()
            .fold(TierSet::default(), |set, earlier| set.or(earlier.tiers()));
        if !covered.covers(value.tiers()) {
            continue;
        }
        if value.tier.is_none() && same.iter().any(|earlier| earlier.tier.is_none()) {
            let found = "is never reached: an entry before it has the same audience";
            d.mistake(&key, found, "an audience of its own for each");
        } else {
            let found = "is never reached: entries before it have its values of this audience";
            let tier = format!("{entry}.tier");
            let at = if value.tier.is_some() { &tier } else { &key };
            d.mistake(at, found, "values that no entry before it has");
        }
    }
}
