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

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::platform::{DeviceKeys, IdField, IdReader, MAX_IDS, MAX_STRATEGIES};
use crate::strategy::{
    Attribute, AttributeValue, Attributes, BidValue, Decision, Reason, Strategy, Units,
};

/// A device and the requested strategies.
#[derive(Debug, Default)]
pub struct DecisionRequest<'body> {
    /// The caller's request id, which the answer repeats.
    pub request_id: Option<Cow<'body, str>>,
    /// Names of the requested strategies, at most [`MAX_STRATEGIES`]; none requests all.
    pub strategies: Vec<Cow<'body, str>>,
    /// Keys of the device's usable ids.
    pub keys: DeviceKeys,
    /// The usable ids by kind.
    pub units: Units,
    /// Attributes of the request, by index in [`Attribute::ALL`].
    pub attributes: RequestAttributes<'body>,
}

/// Attributes of a request, by index in [`Attribute::ALL`].
#[derive(Debug, Default)]
pub struct RequestAttributes<'body>([Option<Cow<'body, str>>; Attribute::ALL.len()]);

/// An empty text is an absent attribute.
impl Attributes for RequestAttributes<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<AttributeValue<'_>> {
        let text = self.0[attribute as usize]
            .as_deref()
            .filter(|text| !text.is_empty())?;
        Some(AttributeValue::Text(text.as_bytes()))
    }
}

/// Reads a request. Costs one pass over the body, an md5 per raw id and two lists; with `has_sha1`,
/// also a SHA-1 per raw id.
///
/// # Errors
///
/// The mistake in the body, without values.
pub fn decode<'body>(
    body: &'body [u8],
    ids: &IdReader,
    has_sha1: bool,
) -> Result<DecisionRequest<'body>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let request = RequestSeed {
        reader: ids,
        has_sha1,
    }
    .deserialize(&mut json)?;
    json.end()?;
    Ok(request)
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

/// A string, borrowed from the body unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'body>(#[serde(borrow)] pub(super) Cow<'body, str>);

struct RequestSeed<'a> {
    reader: &'a IdReader,
    has_sha1: bool,
}

impl<'de> DeserializeSeed<'de> for RequestSeed<'_> {
    type Value = DecisionRequest<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed<'_> {
    type Value = DecisionRequest<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with request_id, strategies and device")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut request = DecisionRequest::default();
        while let Some(Text(field)) = map.next_key()? {
            match field.as_ref() {
                "request_id" => {
                    request.request_id = map.next_value::<Option<Text<'de>>>()?.map(|text| text.0)
                }
                "strategies" => {
                    let names: Option<Vec<Text<'de>>> = map.next_value()?;
                    if names
                        .as_ref()
                        .is_some_and(|names| names.len() > MAX_STRATEGIES)
                    {
                        return Err(A::Error::custom(format_args!(
                            "more than {MAX_STRATEGIES} strategies"
                        )));
                    }
                    request.strategies = names
                        .unwrap_or_default()
                        .into_iter()
                        .map(|text| text.0)
                        .collect();
                }
                "device" => map.next_value_seed(DeviceSeed {
                    reader: self.reader,
                    has_sha1: self.has_sha1,
                    keys: &mut request.keys,
                    units: &mut request.units,
                })?,
                "attributes" => map.next_value_seed(AttributesSeed(&mut request.attributes))?,
                _ => {
                    return Err(A::Error::custom(
                        "unknown field; accepted: request_id, strategies, device, attributes",
                    ));
                }
            }
        }
        Ok(request)
    }
}

/// Reads `{"os": "ios", "slot": null}`.
struct AttributesSeed<'a, 'body>(&'a mut RequestAttributes<'body>);

impl<'de> DeserializeSeed<'de> for AttributesSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AttributesSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of attributes")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            let Some(attribute) = Attribute::ALL.into_iter().find(|one| one.as_str() == name)
            else {
                let accepted = Attribute::ALL.map(Attribute::as_str).join(", ");
                return Err(A::Error::custom(format_args!(
                    "unknown attribute; accepted: {accepted}"
                )));
            };
            self.0.0[attribute as usize] =
                map.next_value::<Option<Text<'de>>>()?.map(|text| text.0);
        }
        Ok(())
    }
}

/// Reads `{"imei_md5": "…", "caid": ["…", "…"], "oaid": null}` into keys.
struct DeviceSeed<'a> {
    reader: &'a IdReader,
    has_sha1: bool,
    keys: &'a mut DeviceKeys,
    units: &'a mut Units,
}

impl<'de> DeserializeSeed<'de> for DeviceSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DeviceSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of device ids")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            let Some(field) = IdField::named(&name) else {
                let accepted = IdField::ALL.map(|field| field.as_str()).join(", ");
                return Err(A::Error::custom(format_args!(
                    "unknown id kind in device; accepted: {accepted}"
                )));
            };
            let Self {
                reader,
                has_sha1,
                keys,
                units,
            } = &mut self;
            let has_sha1 = *has_sha1;
            map.next_value_seed(IdsSeed {
                reader,
                field,
                has_sha1,
                keys,
                units,
            })?;
        }
        Ok(())
    }
}

/// One id, a list of them, or null.
struct IdsSeed<'a> {
    reader: &'a IdReader,
    field: IdField,
    has_sha1: bool,
    keys: &'a mut DeviceKeys,
    units: &'a mut Units,
}

impl IdsSeed<'_> {
    fn take<E: serde::de::Error>(&mut self, id: &str) -> Result<(), E> {
        let Ok(key) = self.reader.key(self.field, id.as_bytes()) else {
            return Ok(());
        };
        self.units.add(self.field, key);
        let added = self
            .keys
            .add((self.field.kind(), id.as_bytes()), key, self.has_sha1);
        added
            .map(|_| ())
            .map_err(|_| E::custom(format_args!("more than {MAX_IDS} different usable ids")))
    }
}

impl<'de> DeserializeSeed<'de> for IdsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for IdsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id, a list of ids, or null")
    }

    fn visit_str<E: serde::de::Error>(mut self, id: &str) -> Result<(), E> {
        self.take(id)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(id) = list.next_element::<Option<Text<'de>>>()? {
            if let Some(Text(id)) = id {
                self.take(&id)?;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // serde's own error would quote the value.
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Err(A::Error::custom("an id is a string, not an object"))
    }
}

#[cfg(test)]
mod tests;
