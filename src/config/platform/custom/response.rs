//! `[platform.response]`: the fields of a custom platform's responses.

use rtad_config::values::filled;
use rtad_config::{Document, Location, Named};
use serde::{Deserialize, Serialize};

use super::path::path;
use crate::strategy::ValueKey;

/// `[platform.response]`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default)]
pub struct ResponseConfig {
    /// Location of the table.
    #[serde(skip)]
    pub location: Location,
    /// Whether the table has no mistakes so far; if not, missing keys are not reported.
    #[serde(skip)]
    pub is_whole: bool,
    /// Field of the request id.
    #[serde(deserialize_with = "path")]
    pub request_id: Option<Named>,
    /// One number for the whole answer, see `platform.response.code`.
    pub code: Option<CodeConfig>,
    /// Verdict for each strategy, see `platform.response.verdicts`.
    pub verdicts: Option<VerdictsConfig>,
    /// Field of the strategies that bid.
    #[serde(deserialize_with = "path")]
    pub accepted: Option<Named>,
    /// Separator of strategies in one value.
    #[serde(deserialize_with = "filled")]
    pub accepted_separator: Option<String>,
    /// Field of the seconds for which the platform may cache the answer.
    #[serde(deserialize_with = "path")]
    pub cache: Option<Named>,
    /// JSON type of strategies in the response. Unknown for `protobuf`.
    pub strategies_as: Option<StrategiesAs>,
}

/// JSON type of strategies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StrategiesAs {
    /// Strings.
    String,
    /// Numbers.
    Number,
}

/// One number for the whole answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct CodeConfig {
    /// Field of the number.
    #[serde(deserialize_with = "path")]
    pub field: Named,
    /// Number if a strategy bids.
    pub bid: i64,
    /// Number if no strategy bids.
    pub no_bid: i64,
    /// Number for an unreadable or unauthorized request; unset = the number of its decision.
    pub error: Option<i64>,
}

/// A verdict for each strategy.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct VerdictsConfig {
    /// Field of the list.
    #[serde(deserialize_with = "path")]
    pub list: Named,
    /// Field of the strategy within a list entry.
    #[serde(deserialize_with = "path")]
    pub strategy: Named,
    /// Field of the verdict within a list entry: true for a bid.
    #[serde(deserialize_with = "path")]
    pub accepted: Named,
    /// Field of the `weight` of a bid's value within a list entry; see `[[strategy.value]]`. Bids
    /// without that number do not have the field.
    #[serde(default, deserialize_with = "path")]
    pub weight: Option<Named>,
    /// Field of its `cpa_price`.
    #[serde(default, deserialize_with = "path")]
    pub cpa_price: Option<Named>,
    /// Field of its `cpc_price`.
    #[serde(default, deserialize_with = "path")]
    pub cpc_price: Option<Named>,
    /// Field of its `cpc_factor`.
    #[serde(default, deserialize_with = "path")]
    pub cpc_factor: Option<Named>,
    /// Field of its `quality`.
    #[serde(default, deserialize_with = "path")]
    pub quality: Option<Named>,
    /// Field of the text of the bucket's tag within a list entry; see `[[experiment.buckets]]`.
    /// Verdicts without a tag do not have the field.
    #[serde(default, deserialize_with = "path")]
    pub tag: Option<Named>,
    /// Field of the number of the bucket's tag.
    #[serde(default, deserialize_with = "path")]
    pub tag_number: Option<Named>,
}

impl VerdictsConfig {
    /// The fields of values.
    pub fn values(&self) -> impl Iterator<Item = (ValueKey, &Named)> {
        let fields = ValueKey::ALL.map(|key| {
            let field = match key {
                ValueKey::Weight => &self.weight,
                ValueKey::CpaPrice => &self.cpa_price,
                ValueKey::CpcPrice => &self.cpc_price,
                ValueKey::CpcFactor => &self.cpc_factor,
                ValueKey::Quality => &self.quality,
            };
            (key, field)
        });
        fields.into_iter().filter_map(|(key, field)| Some((key, field.as_ref()?)))
    }
}

impl ResponseConfig {
    pub(in crate::config::platform) fn check(
        &mut self,
        d: &mut Document<'_>,
        table: &str,
        is_json: bool,
    ) {
        if self.accepted_separator.is_some() && self.accepted.is_none() {
            let key = format!("{table}.accepted_separator");
            d.mistake(&key, "is given without accepted", "both, or accepted alone");
        }
        let key = format!("{table}.strategies_as");
        if !is_json && d.has(&key) {
            d.mistake(&key, "is not known for body = \"protobuf\"", "body = \"json\" with it");
        }
        self.location = d.location(table);
        self.is_whole = !d.has_mistake(table);
    }
}
