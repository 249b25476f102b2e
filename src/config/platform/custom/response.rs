//! `[platform.response]`: the fields of a custom platform's responses.

use std::fmt;

use rtad_config::{Document, Location, Named, OneOrMany};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::path;
use crate::strategy::ValueKey;

/// `[platform.response]`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
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
    /// Code of the whole answer, or a list of several, see `platform.response.code`.
    #[serde(deserialize_with = "codes", skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodeConfig>,
    /// Verdict for each strategy, see `platform.response.verdicts`.
    pub verdicts: Option<VerdictsConfig>,
    /// Field of the strategies that bid.
    #[serde(deserialize_with = "path")]
    pub accepted: Option<Named>,
    /// Field of the first strategy that bids; left out without one.
    #[serde(deserialize_with = "path")]
    pub first_accepted: Option<Named>,
    /// Field of the list of accepted ids, as the request has them. Each id of a request is then a
    /// device of its own, and accepted if a strategy bids for it. Excludes `verdicts`, `accepted`,
    /// `first_accepted` and `cache`.
    #[serde(deserialize_with = "path")]
    pub accepted_ids: Option<Named>,
    /// Field of the seconds for which the platform may cache the answer.
    #[serde(deserialize_with = "path")]
    pub cache: Option<Named>,
}

/// A code of the whole answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct CodeConfig {
    /// Field of the code.
    #[serde(deserialize_with = "path")]
    pub field: Named,
    /// Code if a strategy bids.
    pub bid: Code,
    /// Code if no strategy bids.
    pub no_bid: Code,
    /// Code for an unreadable or unauthorized request; unset = the code of its decision.
    pub error: Option<Code>,
}

/// A code of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Code {
    /// A whole number.
    Number(i64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Bool(is) => is.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CodeVisitor)
    }
}

struct CodeVisitor;

impl Visitor<'_> for CodeVisitor {
    type Value = Code;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, true, false or a string")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Code, E> {
        Ok(Code::Number(number))
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Code, E> {
        Ok(Code::Bool(is))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Code, E> {
        Ok(Code::Text(text.to_owned()))
    }
}

fn codes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<CodeConfig>, D::Error> {
    OneOrMany::deserialize(deserializer).map(|OneOrMany(codes)| codes)
}

/// A verdict for each strategy.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct VerdictsConfig {
    /// Field of the list.
    #[serde(deserialize_with = "path")]
    pub list: Named,
    /// Field of the strategy within a list entry.
    #[serde(deserialize_with = "path")]
    pub strategy: Named,
    /// Field of the verdict within a list entry: true for a bid. Unset = the list has only the
    /// strategies that bid.
    #[serde(default, deserialize_with = "path")]
    pub accepted: Option<Named>,
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
        fields
            .into_iter()
            .filter_map(|(key, field)| Some((key, field.as_ref()?)))
    }
}

impl ResponseConfig {
    pub(in crate::config::platform) fn check(&mut self, d: &mut Document<'_>, table: &str) {
        for key in ["verdicts", "accepted", "first_accepted", "cache"] {
            let key = format!("{table}.{key}");
            if self.accepted_ids.is_some() && d.has(&key) {
                d.mistake(&key, "is given with accepted_ids", "one of them");
            }
        }

        self.location = Location::Key(table.to_owned());
        self.is_whole = !d.has_mistake(table);
    }
}
