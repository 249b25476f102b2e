//! Ocean Engine (ByteDance): `proto/ocean.proto` over POST.
//!
//! The answer has a verdict for every requested strategy, also for rejected and unknown ones.
//! `bid_type` states whether any strategy bids, and is written even as 0. A `status_code` other
//! than 0 means an error, not a no-bid: it answers unreadable requests.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use prost_reflect::MessageDescriptor;

use super::adapter::{
    Adapter, CacheTimes, Kind, Request, StrategyValues, ValueTable, Verdict, bids, encode,
};
use super::describe::message_of_proto;
use super::read::{
    Asked, AskedList, Id, Purpose, Read, ReadError, StrategyIds, Value, check_asked,
};
use crate::config::KindRules;
use crate::strategy::{Attribute, BidValue, Tag, ValueKey};
use rtad_core::device::{IdField, IdKind, trim};

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from proto/ocean.proto"
)]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/ocean.rta.rs"));
}

pub use wire::req::Geo;
pub use wire::rsp::{UserInfo, UserScore, UserType};
pub use wire::{Device, DidType, Platform, Req, Rsp};

/// `kind = "ocean"`
pub(super) const KIND: Kind = Kind {
    rules: KindRules {
        word: "ocean",
        strategy_id: "a whole number",
        // One spelling per id: no plus, no leading zeros.
        is_strategy_id: |id| {
            id.parse::<i64>()
                .is_ok_and(|number| number.to_string() == id)
        },
        sends: |attribute| match attribute {
            Attribute::Os | Attribute::App | Attribute::Slot | Attribute::Region => true,
            Attribute::RequestType => false,
        },
        carries: |key| match key {
            ValueKey::Quality | ValueKey::Weight => true,
            ValueKey::CpaPrice | ValueKey::CpcPrice | ValueKey::CpcFactor => false,
        },
        // Bounds are not published.
        value_bounds: &[],
        least_cache: Duration::ZERO,
        most_tag_number: 10,
        is_mapped: false,
    },
    build: |config, ids, values, tags| {
        let mut numbers = Vec::with_capacity(ids.len());
        for (id, strategy) in ids {
            let number = id.parse().expect("the config accepts only numbers");
            numbers.push((number, strategy));
        }
        let adapter = Ocean::new(numbers, config.into());
        Ok(Box::new(adapter.with_values(values).with_tags(tags)))
    },
    example: include_str!("ocean/example.toml"),
};

/// Values of `bid_type`.
const TAKES_PART: i32 = 0;
const NOT_THIS_DEVICE: i32 = 1;
/// `status_code` for an unreadable request; the platform accepts any value but 0.
const ERROR: i32 = 1;

const MD5: IdField = IdField::at("md5");
const IMEI: IdField = IdField::at("imei");
const IMEI_MD5: IdField = IdField::at("imei_md5");
const ANDROID_ID: IdField = IdField::at("android_id");
const ANDROID_ID_MD5: IdField = IdField::at("android_id_md5");
const IDFA: IdField = IdField::at("idfa");
const IDFA_MD5: IdField = IdField::at("idfa_md5");
const OAID: IdField = IdField::at("oaid");
const OAID_MD5: IdField = IdField::at("oaid_md5");
const CAID: IdField = IdField::at("caid");
const GAID: IdField = IdField::at("gaid");
const GAID_MD5: IdField = IdField::at("gaid_md5");

/// The protocol, with its configuration.
#[derive(Debug)]
pub struct Ocean {
    /// `rta_id`s.
    strategies: StrategyIds,
    cache: CacheTimes,
    values: ValueTable<UserScore>,
    /// `rta_vid` and `cus_vid` of buckets.
    tags: Vec<Tag>,
}

impl Ocean {
    /// An adapter for these `rta_id`s, with the indexes of their strategies.
    pub fn new(ids: Vec<(i64, usize)>, cache: CacheTimes) -> Self {
        Self {
            strategies: StrategyIds::new(ids),
            cache,
            values: ValueTable::default(),
            tags: Vec::new(),
        }
    }

    /// Adds the tags of buckets. Those that its strategies read have numbers within the bounds of
    /// this kind of platform.
    #[must_use]
    pub fn with_tags(self, tags: &[Tag]) -> Self {
        Self {
            tags: tags.to_vec(),
            ..self
        }
    }

    /// Adds the values of strategies.
    #[must_use]
    pub fn with_values(self, values: &StrategyValues) -> Self {
        let values = ValueTable::new(&self.strategies, values, |_, value| score(value));
        Self { values, ..self }
    }

    /// The one tag of an answer: that of a bid, or else that of a no-bid.
    #[inline(never)]
    fn tag(&self, verdicts: &[Verdict]) -> Option<&Tag> {
        let tag = first_tag(verdicts, true).or_else(|| first_tag(verdicts, false))?;
        Some(&self.tags[usize::from(tag)])
    }
}

/// The tag of the first verdict that is a bid, or that is none.
fn first_tag(verdicts: &[Verdict], bids: bool) -> Option<u16> {
    verdicts
        .iter()
        .filter(|verdict| verdict.bids() == bids)
        .find_map(|verdict| verdict.tag)
}

/// The score that a value gives: `quality`, or else `weight` as a coefficient.
fn score(value: &BidValue) -> Option<UserScore> {
    if let Some(quality) = value.get(ValueKey::Quality) {
        return Some(UserScore {
            user_type: UserType::Default.into(),
            quality,
        });
    }
    Some(UserScore {
        user_type: UserType::PriceCoefficient.into(),
        quality: value.get(ValueKey::Weight)?,
    })
}

impl Adapter for Ocean {
    fn kind(&self) -> &'static str {
        KIND.rules.word
    }

    fn strategies(&self) -> &StrategyIds {
        &self.strategies
    }

    #[inline]
    fn read<'a>(&'a self, request: &Request<'a>, read: &mut Read<'a>) -> Result<(), ReadError> {
        let message: Req = decode(request.body)?;
        check_asked(message.rta_ids.len())?;

        if !message.req_id.is_empty() {
            read.request_id = borrowed(request.body, &message.req_id);
        }
        read_ids(request.body, &message, read);

        let city = message.geo.as_ref().map_or(0, |geo| geo.city);
        for (attribute, number) in [
            (Attribute::App, message.app_id),
            (Attribute::Slot, message.slot_id),
            (Attribute::Region, city),
        ] {
            if number != 0 {
                read.attributes[attribute as usize] = Value::Int(number);
            }
        }

        match message.platform() {
            Platform::Android => read.attributes[Attribute::Os as usize] = "android".into(),
            Platform::Ios => read.attributes[Attribute::Os as usize] = "ios".into(),
            Platform::Unknown if message.platform != Platform::Unknown as i32 => {
                read.has_unknown_os = true;
                read.note("os, not known", Value::Int(message.platform.into()));
            }
            Platform::Unknown => {}
        }

        read.asked = if message.rta_ids.is_empty() {
            self.strategies.all()
        } else {
            let named = message.rta_ids.iter().map(|rta_id| {
                let id = Value::Int(*rta_id);
                Asked {
                    known: self.strategies.find(|known| *known == id),
                    id,
                    ad: None,
                }
            });
            AskedList::Named(named.collect())
        };
        Ok(())
    }

    /// A verdict for each requested strategy. If the request names none, all configured ones
    /// decide, and only `bid_type` is set.
    #[inline]
    fn write(&self, read: &Read<'_>, verdicts: &[Verdict]) -> Bytes {
        let is_fallback = read.purpose == Purpose::Fallback;
        let infos = read.asked.iter().map(|asked| UserInfo {
            is_interested: bids(verdicts, asked.known),
            user_scores: self.values.of(verdicts, asked.known).copied(),
            rta_id: match asked.id {
                Value::Int(number) => number,
                _ => 0,
            },
        });
        let user_infos = if read.asked.is_all() && !is_fallback {
            Vec::new()
        } else {
            infos.collect()
        };

        let is_bid = verdicts.iter().any(Verdict::bids);
        let cache = self.cache.of(is_bid, verdicts);
        let tag = if self.tags.is_empty() {
            None
        } else {
            self.tag(verdicts)
        };

        let mut vid = Bytes::new();
        let mut custom_vid = 0;
        if let Some(tag) = tag {
            if let Some(text) = &tag.text {
                vid = text.clone().into();
            }
            if let Some(number) = tag.number {
                custom_vid = number as i32;
            }
        }

        encode(&Rsp {
            status_code: if is_fallback { ERROR } else { 0 },
            req_id: read.shared_request_id().unwrap_or_default(),
            user_infos,
            bid_type: Some(if is_bid { TAKES_PART } else { NOT_THIS_DEVICE }),
            cache_time_secs: cache.map_or(0, |seconds| seconds.try_into().unwrap_or(i32::MAX)),
            rta_vid: vid,
            cus_vid: custom_vid,
            ..Rsp::default()
        })
    }

    /// An error, and no bid.
    fn refusal(&self) -> Bytes {
        encode(&Rsp {
            status_code: ERROR,
            bid_type: Some(NOT_THIS_DEVICE),
            ..Rsp::default()
        })
    }

    fn content_type(&self) -> Option<&'static str> {
        Some("application/x-protobuf")
    }

    fn answer_message(&self) -> Option<MessageDescriptor> {
        message_of_proto("ocean.rta.Rsp")
    }
}

/// Adds the device's ids, then the main id, which nearly always repeats one of them.
fn read_ids<'a>(body: &'a Bytes, request: &Req, into: &mut Read<'a>) {
    let mut read = |path, field, value: &Bytes| {
        if !value.is_empty() {
            let value = borrowed(body, value);
            into.add_id(Id {
                path,
                field,
                value,
                is_doubtful: false,
                is_accepted: false,
            });
        }
    };

    if let Some(device) = &request.device {
        read("device.imei_md5", IMEI_MD5, &device.imei_md5);
        read(
            "device.android_id_md5",
            ANDROID_ID_MD5,
            &device.android_id_md5,
        );
        read("device.oaid", OAID, &device.oaid);
        read("device.idfa", IDFA, &device.idfa);
        read("device.caid1", CAID, &device.caid1);
        read("device.caid2", CAID, &device.caid2);
        read("device.caid", CAID, &device.caid);
        read("device.gaid", GAID, &device.gaid);
    }

    let (field, other) = did_fields(request);
    read("did", field, &request.did);
    if let Some(other) = other {
        read("did", other, &request.did);
    }
}

/// The kind of `did`. `did_type` 0 means "IMEI" and "not set", so the id's shape decides, as for
/// unknown types. 32 hex digits are an md5; a UUID is an IDFA and, except on iOS, also an OAID; the
/// rest is an IMEI.
fn did_fields(request: &Req) -> (IdField, Option<IdField>) {
    let field = match request.did_type() {
        DidType::ImeiMd5 => IMEI_MD5,
        DidType::AndroidId => ANDROID_ID,
        DidType::AndroidIdMd5 => ANDROID_ID_MD5,
        DidType::Idfa => IDFA,
        DidType::IdfaMd5 => IDFA_MD5,
        DidType::Oaid => OAID,
        DidType::OaidMd5 => OAID_MD5,
        DidType::Gaid => GAID,
        DidType::GaidMd5 => GAID_MD5,
        // Unknown types are read as this one.
        DidType::Imei => match trim(&request.did) {
            did if IdKind::Md5.has_shape(did) => MD5,
            did if !IdKind::Idfa.has_shape(did) => IMEI,
            _ if request.platform() == Platform::Ios => IDFA,
            _ => return (IDFA, Some(OAID)),
        },
    };

    (field, None)
}

/// Decodes a request.
#[inline]
fn decode<M: Message + Default>(body: &Bytes) -> Result<M, ReadError> {
    if body.is_empty() {
        return Err(ReadError::Empty);
    }
    Ok(M::decode(body.clone())?)
}

/// A field of a decoded message, borrowed from the body that it shares.
#[inline]
fn borrowed<'a>(body: &'a Bytes, field: &Bytes) -> Value<'a> {
    if field.is_empty() {
        return Value::Bytes(b"");
    }
    let start = field.as_ptr().addr().wrapping_sub(body.as_ptr().addr());
    let part = body.get(start..).and_then(|rest| rest.get(..field.len()));
    Value::Bytes(part.expect("a decoded field is a part of the body"))
}

#[cfg(test)]
mod tests;
