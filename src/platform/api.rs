//! rtad's own JSON protocol of `POST /v1/decide`.
//!
//! ```json
//! {"request_id": "r1", "strategies": ["new-users"], "device": {"imei_md5": "…", "oaid": ["…"]}}
//! {"request_id": "r1", "decisions": [{"strategy": "new-users", "bid": false, "reason": "member"}]}
//! ```
//!
//! A bid may have a `"value": {"weight": 2.0}`, and a decision of a strategy with experiments has
//! its `"buckets": {"price-test": "b"}`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use http::StatusCode;
use rtad_core::device::{DeviceKey, Unusable};
use rtad_http::json::{Text, parse_object};
use rtad_http::problem::Problem;
use rtad_http::request_error::RequestError;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use smallvec::{SmallVec, smallvec};

use super::ids::{IdReader, Keys, MAX_IDS};
use super::{IdField, MAX_STRATEGIES};
use crate::strategy::{
    Attribute, AttributeValue, AttributeValues, BidValue, Decision, Reason, Strategy, Units,
    os_word,
};

/// A device and the requested strategies.
#[derive(Debug, Default)]
pub struct DecisionRequest<'body> {
    /// The caller's request id, which the answer repeats.
    pub request_id: Option<Cow<'body, str>>,
    /// Names of the requested strategies, at most [`MAX_STRATEGIES`]; none requests all.
    pub strategies: Vec<Cow<'body, str>>,
    /// Keys of the device's usable ids.
    pub keys: Keys,
    /// The usable ids by kind.
    pub units: Units,
    /// Attributes of the request, by index in [`Attribute::ALL`].
    pub attributes: RequestAttributes<'body>,
}

/// Attributes of a request, by index in [`Attribute::ALL`].
#[derive(Debug, Default)]
pub struct RequestAttributes<'body>([Option<Cow<'body, str>>; Attribute::ALL.len()]);

impl RequestAttributes<'_> {
    /// Their values. A blank text is an absent attribute.
    pub fn values(&self) -> AttributeValues<'_> {
        let mut values = AttributeValues::default();
        for (value, text) in values.iter_mut().zip(&self.0) {
            let text = text.as_deref().unwrap_or_default().trim_ascii();
            if !text.is_empty() {
                *value = Some(AttributeValue::Text(text.as_bytes()));
            }
        }
        values
    }
}

/// Takes the ids of a request: serving counts them, and an explanation lists them.
pub trait TakeIds {
    /// The key of an id in this field.
    ///
    /// # Errors
    ///
    /// Why the id has no key.
    fn key(&mut self, field: IdField, id: &str) -> Result<DeviceKey, Unusable>;

    /// Takes an operating system that is not known.
    fn unknown_os(&mut self, os: &str);
}

impl TakeIds for &IdReader {
    #[inline]
    fn key(&mut self, field: IdField, id: &str) -> Result<DeviceKey, Unusable> {
        IdReader::key(self, field, id.as_bytes())
    }

    #[inline]
    fn unknown_os(&mut self, _: &str) {
        IdReader::unknown_os(self);
    }
}

/// Reads a request. Costs one pass over the body, an md5 per raw id and two lists.
///
/// # Errors
///
/// The mistake in the body, without values.
pub fn decode<'body>(
    body: &'body [u8],
    mut ids: impl TakeIds,
) -> Result<DecisionRequest<'body>, RequestError> {
    let sent: SentRequest<'body> =
        parse_object(body, "request_id, strategies, device and attributes")?;

    let strategies = sent.strategies.unwrap_or_default();
    if strategies.len() > MAX_STRATEGIES {
        return Err(RequestError::BadBody(format!(
            "more than {MAX_STRATEGIES} strategies"
        )));
    }

    let mut request = DecisionRequest {
        request_id: sent.request_id.map(|Text(id)| id),
        strategies: strategies.into_iter().map(|Text(name)| name).collect(),
        ..DecisionRequest::default()
    };

    if let Some(Entries(attributes)) = sent.attributes {
        for (attribute, text) in attributes {
            let mut value = text.map(|Text(text)| text);
            if attribute == Attribute::Os
                && let Some(text) = value.take_if(|text| !text.trim_ascii().is_empty())
            {
                value = os_word(text.as_bytes()).map(Cow::Borrowed);
                if value.is_none() {
                    ids.unknown_os(&text);
                }
            }
            request.attributes.0[attribute as usize] = value;
        }
    }

    if let Some(Entries(device)) = sent.device {
        for (DeviceField(field), SentIds(sent_ids)) in device {
            for Text(id) in sent_ids {
                request.add_id(field, &id, &mut ids)?;
            }
        }
    }

    Ok(request)
}

impl DecisionRequest<'_> {
    /// Adds an id if it is usable.
    fn add_id(
        &mut self,
        field: IdField,
        id: &str,
        ids: &mut impl TakeIds,
    ) -> Result<(), RequestError> {
        let Ok(key) = ids.key(field, id) else {
            return Ok(());
        };

        self.units.add(field, key);
        if !self.keys.contains(&key) && self.keys.try_push(key).is_err() {
            return Err(RequestError::BadBody(format!(
                "more than {MAX_IDS} different usable ids"
            )));
        }
        Ok(())
    }
}

/// The code of a request for a strategy that is not configured.
pub const UNKNOWN_STRATEGY: &str = "unknown_strategy";

/// The answer to such a request.
pub fn unknown_strategy(known: &[String]) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        UNKNOWN_STRATEGY,
        "No such strategy",
        format!("accepted: {}", known.join(", ")),
    )
}

/// A decision as it is answered.
#[derive(Debug, Serialize)]
pub struct NamedDecision<'a> {
    /// The strategy's name.
    pub strategy: &'a str,
    /// Whether it is a bid.
    pub bid: bool,
    /// The decision's reason.
    pub reason: Reason,
    /// The value of a bid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<&'a BidValue>,
    /// The device's parts in the strategy's experiments, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub buckets: BTreeMap<&'a str, &'a str>,
}

impl<'a> NamedDecision<'a> {
    /// A strategy's decision about a device with these parts in its experiments.
    pub fn new(
        strategy: &'a Strategy,
        decision: Decision,
        buckets: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        Self {
            strategy: &strategy.name,
            bid: decision.is_bid(),
            reason: decision.reason,
            value: strategy.value_of(decision),
            buckets: buckets.collect(),
        }
    }
}

/// Writes decisions, in the order given.
pub fn encode(request_id: Option<&str>, decisions: &[NamedDecision<'_>]) -> Vec<u8> {
    #[derive(Serialize)]
    struct ApiAnswer<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<&'a str>,
        decisions: &'a [NamedDecision<'a>],
    }
    serde_json::to_vec(&ApiAnswer {
        request_id,
        decisions,
    })
    .expect("plain values serialize")
}

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SentRequest<'body> {
    #[serde(default, borrow)]
    request_id: Option<Text<'body>>,
    #[serde(default, borrow)]
    strategies: Option<Vec<Text<'body>>>,
    #[serde(default, borrow)]
    device: Option<Entries<DeviceField, SentIds<'body>>>,
    #[serde(default, borrow)]
    attributes: Option<Entries<Attribute, Option<Text<'body>>>>,
}

/// The entries of an object, in the order of the body: the first id is the device's in counts.
// Four are most requests' ids. Room for eight costs every request 500 instructions.
struct Entries<K, V>(SmallVec<[(K, V); 4]>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Entries<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<K, V>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<K, V> {
    type Value = Entries<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = SmallVec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

/// The name of ids in `device`.
struct DeviceField(IdField);

impl<'de> Deserialize<'de> for DeviceField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(name) = Text::deserialize(deserializer)?;
        let Some(field) = IdField::named(&name) else {
            let accepted = IdField::ALL.map(|field| field.as_str()).join(", ");
            return Err(D::Error::custom(format_args!(
                "unknown id kind in device; accepted: {accepted}"
            )));
        };
        Ok(Self(field))
    }
}

/// One id, a list of ids, or null. A null in a list is no id.
struct SentIds<'body>(SmallVec<[Text<'body>; 1]>);

impl<'de: 'body, 'body> Deserialize<'de> for SentIds<'body> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdsVisitor(PhantomData))
    }
}

struct IdsVisitor<'body>(PhantomData<&'body ()>);

impl<'de: 'body, 'body> Visitor<'de> for IdsVisitor<'body> {
    type Value = SentIds<'body>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id, a list of ids, or null")
    }

    fn visit_borrowed_str<E>(self, id: &'de str) -> Result<Self::Value, E> {
        Ok(SentIds(smallvec![Text(Cow::Borrowed(id))]))
    }

    fn visit_str<E>(self, id: &str) -> Result<Self::Value, E> {
        Ok(SentIds(smallvec![Text(Cow::Owned(id.to_owned()))]))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(SentIds(SmallVec::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut ids = SmallVec::new();
        while let Some(id) = list.next_element::<Option<Text<'body>>>()? {
            ids.extend(id);
        }
        Ok(SentIds(ids))
    }
}

#[cfg(test)]
mod tests;
