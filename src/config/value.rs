//! `[[strategy.value]]`: numbers that a strategy's bids carry.

use rtad_config::Document;
use rtad_config::values::text;
use rtad_core::snapshot::AudienceName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::condition::{Condition, refuse_unknown};
use super::experiment::PartNames;
use crate::strategy::{BidValue, MAX_VALUES, Tiers, ValueKey};

/// Greatest number; platforms accept less.
const MOST: f64 = 1e9;

/// A value of a strategy's bids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct ValueConfig {
    /// Audience whose members get the value, unless an entry before fits. Without `audience` and
    /// `bucket`, the value is that of all other bids: the last entry.
    pub audience: Option<AudienceName>,
    /// Values that those members must have in it, of a list that was built with `--value`: a number
    /// from 0 to 15, a range (`8..=15`, `8..`, `..=7`), or `none`. Unset = any or none.
    pub tier: Option<Tiers>,
    /// Part of an experiment whose devices get the value, beside `audience` or alone, as
    /// `EXPERIMENT:BUCKET`. Unset = any.
    #[serde(default, deserialize_with = "part_name")]
    pub bucket: Option<String>,
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
    /// Whether each device that fits `other` fits this one.
    fn covers(&self, other: &Self) -> bool {
        (self.audience.is_none() || self.audience == other.audience)
            && (self.tier.is_none() || self.tier == other.tier)
            && (self.bucket.is_none() || self.bucket == other.bucket)
    }

    /// Whether it depends on a part in this experiment.
    pub(super) fn reads_experiment(&self, name: &str) -> bool {
        let Some(part) = &self.bucket else {
            return false;
        };
        part.split(':').next() == Some(name)
    }

    /// The numbers.
    pub fn numbers(&self) -> BidValue {
        BidValue::default()
            .with(ValueKey::Weight, self.weight)
            .with(ValueKey::CpaPrice, self.cpa_price.map(f64::from))
            .with(ValueKey::CpcPrice, self.cpc_price.map(f64::from))
            .with(ValueKey::CpcFactor, self.cpc_factor)
            .with(ValueKey::Quality, self.quality)
    }
}

fn part_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let accepted = "a part of an experiment, as EXPERIMENT:BUCKET";
    text(deserializer, accepted, |text| {
        text.contains(':').then(|| text.to_owned())
    })
    .map(Some)
}

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match f64::deserialize(deserializer) {
        Ok(number) if (0.0..=MOST).contains(&number) => Ok(Some(number)),
        _ => Err(D::Error::custom(format_args!("a number from 0 to {MOST}"))),
    }
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(deserializer) {
        Ok(price) if (1..=MOST as u32).contains(&price) => Ok(Some(price)),
        _ => Err(D::Error::custom(format_args!(
            "a whole number from 1 to {MOST}"
        ))),
    }
}

/// The rest of a file that values are checked against.
#[derive(Debug, Clone, Copy)]
pub struct ValueContext<'c> {
    /// Audiences that the strategy excludes.
    pub excluded: &'c [AudienceName],
    /// Its condition.
    pub when: Option<&'c Condition>,
    /// Names of the audiences.
    pub audiences: &'c [String],
    /// Parts of the experiments.
    pub parts: &'c PartNames,
}

/// Notes the mistakes in the values of the strategy at `table`.
pub fn check(
    d: &mut Document<'_>,
    table: &str,
    values: &[ValueConfig],
    context: &ValueContext<'_>,
) {
    if values.len() > MAX_VALUES {
        let found = format!("has {} entries", values.len());
        let accepted = format!("at most {MAX_VALUES}");
        d.mistake(&format!("{table}.value"), &found, &accepted);
    }

    for (index, value) in values.iter().enumerate() {
        let entry = format!("{table}.value[{index}]");
        if value.numbers().numbers().next().is_none() {
            let keys = ValueKey::ALL.map(ValueKey::as_str).join(", ");
            d.mistake(&entry, "has no number", &format!("at least one of {keys}"));
        }
        check_conditions(d, &entry, value, context);

        // Only entries that alone cover this one: ranges that cover it together are not found.
        let mut earlier = values[..index].iter();
        if let Some(before) = earlier.position(|earlier| earlier.covers(value)) {
            let found = format!("is never reached: value[{before}] has each of its devices");
            let accepted = "another audience, tier or bucket, or the entry before that one";
            d.mistake(&entry, &found, accepted);
        }
    }
}

fn check_conditions(
    d: &mut Document<'_>,
    entry: &str,
    value: &ValueConfig,
    context: &ValueContext<'_>,
) {
    if let Some(name) = &value.audience {
        let key = format!("{entry}.audience");
        refuse_unknown(d, &key, name.as_str(), "audiences", context.audiences);
        if context.excluded.contains(name) {
            let found = "is in exclude: no bid has the value";
            d.mistake(&key, found, "an audience that is not in exclude");
        }
    }

    if value.tier.is_some() && value.audience.is_none() {
        let found = "is given without an audience";
        d.mistake(
            &format!("{entry}.tier"),
            found,
            "audience = \"…\" beside it",
        );
    }

    if let Some(name) = &value.bucket {
        let key = format!("{entry}.bucket");
        let parts = context.parts;
        refuse_unknown(d, &key, name, "parts of experiments", &parts.names());
        let is_refused = context.when.is_some_and(|when| when.refuses_part(name));
        if is_refused && parts.find(name).is_some() {
            let found = "is refused by when: no bid has the value";
            d.mistake(&key, found, "a part of devices that get bids");
        }
    }
}
