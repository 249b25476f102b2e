//! `[window.callback]`: the query parameters of click callbacks.

use std::str::FromStr as _;

use rtad_config::values::{filled, text};
use rtad_config::{Document, OneOrMany};
use rtad_core::device::IdKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ACCEPTED_ID: &str = "PARAMETER=KIND, or a parameter with the name of a kind; the kinds \
                           are those of device ids, and text";

/// Click callbacks of a window: the meaning of their query parameters.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct CallbackConfig {
    /// Parameter with the device id, or several in the order of preference: the first usable id
    /// counts. `PARAMETER=KIND` names the kind of id, `md5` for hashed ids; a parameter that has
    /// the name of a kind needs none.
    #[serde(deserialize_with = "one_or_many")]
    pub(in super::super::super) id: Vec<CallbackId>,
    /// Parameter with an id of the click: a repeated callback with the same id of the click and
    /// device counts once within ten minutes.
    #[serde(default, deserialize_with = "parameter")]
    pub(in super::super::super) request_id: Option<String>,
    /// Parameter with the time of the click in seconds or milliseconds since 1970; unset = the time
    /// of receipt.
    #[serde(default, deserialize_with = "parameter")]
    pub(in super::super::super) time: Option<String>,
}

/// A parameter with a device id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackId {
    pub(in super::super::super) parameter: String,
    /// `None` for text.
    pub(in super::super::super) kind: Option<IdKind>,
    /// As configured.
    text: String,
}

impl CallbackId {
    fn parse(text: &str) -> Option<Self> {
        let (parameter, kind) = text.rsplit_once('=').unwrap_or((text, text));
        let kind = match kind {
            "text" => None,
            kind => Some(IdKind::from_str(kind).ok()?),
        };
        let parameter = parameter.to_owned();
        (!parameter.is_empty()).then(|| Self {
            parameter,
            kind,
            text: text.to_owned(),
        })
    }
}

impl<'de> Deserialize<'de> for CallbackId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, ACCEPTED_ID, Self::parse)
    }
}

impl Serialize for CallbackId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<CallbackId>, D::Error> {
    OneOrMany::deserialize(deserializer).map(|OneOrMany(ids)| ids)
}

fn parameter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    filled::<_, String>(deserializer).map(Some)
}

/// Checks the table at `key`.
pub fn check(callback: &CallbackConfig, key: &str, d: &mut Document<'_>) {
    if callback.id.is_empty() {
        d.reject(&format!("{key}.id"), "at least one parameter");
    }
}
