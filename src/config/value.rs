//! `[[strategy.value]]`: numbers that a strategy's bids carry.

use rtad_config::Document;
use rtad_core::snapshot::AudienceName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::condition::refuse_unknown;
use crate::strategy::{BidValue, MAX_VALUES, Tiers, ValueKey};

/// Greatest number; platforms accept less.
const MOST: f64 = 1e9;

/// A value of a strategy's bids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Notes the mistakes in the values of the strategy at `table`, which excludes some `audiences`.
pub fn check(
    d: &mut Document<'_>,
    table: &str,
    values: &[ValueConfig],
    excluded: &[AudienceName],
    audiences: &[String],
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
        let key = format!("{entry}.audience");
        if let Some(name) = &value.audience {
            refuse_unknown(d, &key, name.as_str(), "audiences", audiences);
            if excluded.contains(name) {
                let found = "is in exclude: no bid has the value";
                d.mistake(&key, found, "an audience that is not in exclude");
            }
        }

        if value.tier.is_some() && value.audience.is_none() {
            let accepted = "audience = \"…\" beside it";
            d.mistake(
                &format!("{entry}.tier"),
                "is given without an audience",
                accepted,
            );
            continue;
        }

        // Only entries that alone cover this one: ranges that cover it together are not found.
        for earlier in &values[..index] {
            if earlier.audience.is_none() {
                let found = "is never reached: an entry before it has no audience";
                let accepted = "the entry without an audience as the last one";
                d.mistake(&entry, found, accepted);
                break;
            }
            if earlier.audience == value.audience
                && (earlier.tier.is_none() || earlier.tier == value.tier)
            {
                let found = "is never reached: an entry before it has the same audience";
                d.mistake(&key, found, "another audience or another tier for each");
                break;
            }
        }
    }
}
