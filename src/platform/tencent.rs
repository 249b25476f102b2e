//! Tencent Ads (GDT): `proto/tencent.proto` over POST, always with status 200.
//!
//! The protocol has two traps. An absent `code` means 0, *accept*, so `code` is always written. A
//! `code` of 0 without a strategy id that the platform knows accepts *every* ad, so only configured
//! ids are written, and 1 if none of them bids.

mod bytes;

use std::time::Duration;

use ::bytes::Bytes;
use prost_reflect::MessageDescriptor;
use smallvec::SmallVec;

use super::adapter::{
    Adapter, CacheTimes, Kind, Request, StrategyValues, ValueTable, Verdict, bids, encode,
    is_visible, verdict_of,
};
use super::describe::message_of_proto;
use super::read::{
    Asked, AskedList, Id, Purpose, Read, ReadError, StrategyIds, Value, check_asked,
};
use crate::config::{KindRules, ValueBounds};
use crate::strategy::{Attribute, Tag, ValueKey};
use rtad_core::device::{IdField, IdKind};

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from proto/tencent.proto"
)]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/tencent.ad.rta.rs"));
}

pub use wire::rta_request::{AdInfo, RequestInfo, RequestType};
pub use wire::{Device, RtaRequest, RtaResponse, device, rta_response};

use self::bytes::{
    CODE, Message, OUT_TARGET_ID, REQUEST_ID, RESPONSE_CACHE_TIME, TargetParts, TargetTag,
    TargetValue, bytes_length, number_length, put_bytes, put_number,
};
use wire::device::DoubtfulId;
use wire::rta_response::AdResult;

/// `kind = "tencent"`
pub(super) const KIND: Kind = Kind {
    rules: KindRules {
        word: "tencent",
        strategy_id: "1 to 32 visible characters",
        is_strategy_id: |id| is_visible(id, 32),
        sends: |attribute| match attribute {
            Attribute::Os | Attribute::RequestType => true,
            Attribute::App | Attribute::Slot | Attribute::Region => false,
        },
        carries: |key| match key {
            ValueKey::Weight | ValueKey::CpaPrice | ValueKey::CpcPrice | ValueKey::CpcFactor => {
                true
            }
            ValueKey::Quality => false,
        },
        value_bounds: &[
            ValueBounds {
                key: ValueKey::Weight,
                least: 0.2,
                most: 5.0,
            },
            ValueBounds {
                key: ValueKey::CpaPrice,
                least: 1.0,
                most: 1e9,
            },
            ValueBounds {
                key: ValueKey::CpcPrice,
                least: 10.0,
                most: 1e9,
            },
            ValueBounds {
                key: ValueKey::CpcFactor,
                least: 0.2,
                most: 5.0,
            },
        ],
        least_cache: Duration::from_secs(3600),
        most_tag_number: u32::MAX,
        is_mapped: false,
    },
    build: |config, ids, values, tags| {
        let adapter = Tencent::new(ids, config.into());
        Ok(Box::new(adapter.with_values(values).with_tags(tags)))
    },
    example: include_str!("tencent/example.toml"),
};

const ACCEPT: u32 = 0;
const REJECT: u32 = 1;

/// The protocol, with its configuration.
#[derive(Debug)]
pub struct Tencent {
    /// `out_target_id`s, of 1 to 32 bytes each.
    strategies: StrategyIds,
    cache: CacheTimes,
    values: ValueTable<TargetValue>,
    /// Tags of buckets, by their indexes.
    tags: Vec<TargetTag>,
}

impl Tencent {
    /// An adapter for these `out_target_id`s, with the indexes of their strategies.
    pub fn new(ids: Vec<(String, usize)>, cache: CacheTimes) -> Self {
        Self {
            strategies: StrategyIds::new(ids),
            cache,
            values: ValueTable::default(),
            tags: Vec::new(),
        }
    }

    /// Adds the tags of buckets.
    #[must_use]
    pub fn with_tags(self, tags: &[Tag]) -> Self {
        Self {
            tags: tags.iter().map(TargetTag::new).collect(),
            ..self
        }
    }

    /// Adds the values of strategies, which are within the bounds of this kind of platform.
    #[must_use]
    pub fn with_values(self, values: &StrategyValues) -> Self {
        let values = ValueTable::new(&self.strategies, values, |_, value| TargetValue::new(value));
        Self { values, ..self }
    }

    /// The strategies that bid, or a rejection if none does. A message of prost would need a list
    /// of shared ids, and costs three times as much.
    fn of_strategies(&self, read: &Read<'_>, verdicts: &[Verdict]) -> Bytes {
        // Walked twice, for the length and for the bytes: a list of them would be allocated.
        let bidding = || {
            read.asked
                .iter()
                .filter(|asked| bids(verdicts, asked.known))
        };
        // An id has a byte at least.
        let ids_length = bidding()
            .map(|asked| bytes_length(asked.id.bytes()))
            .sum::<usize>();
        let is_bid = ids_length > 0;
        let code = if is_bid { ACCEPT } else { REJECT };
        let cache = self.cache.of(is_bid, verdicts);
        let request_id = match read.request_id {
            Value::Bytes(id) => Some(id),
            _ => None,
        };
        let has_infos = !self.values.is_empty() || !self.tags.is_empty();
        let infos = || {
            read.asked
                .iter()
                .filter_map(|asked| self.target_info(asked, verdicts))
        };
        let infos_length = if has_infos {
            infos().map(|info| info.field_length()).sum()
        } else {
            0
        };

        // A buffer of the exact length becomes the answer without a copy.
        let length = request_id.map_or(0, bytes_length)
            + number_length(code)
            + cache.map_or(0, number_length)
            + ids_length
            + infos_length;
        let mut out = Vec::with_capacity(length);
        if let Some(id) = request_id {
            put_bytes(REQUEST_ID, id, &mut out);
        }
        put_number(CODE, code, &mut out);
        if let Some(seconds) = cache {
            put_number(RESPONSE_CACHE_TIME, seconds, &mut out);
        }
        for asked in bidding() {
            put_bytes(OUT_TARGET_ID, asked.id.bytes(), &mut out);
        }
        if has_infos {
            infos().for_each(|info| info.put(&mut out));
        }
        debug_assert_eq!(out.len(), length);
        out.into()
    }

    /// The value and the tag of a bid; `None` without both.
    fn target_info<'i>(
        &'i self,
        asked: &'i Asked<'_>,
        verdicts: &[Verdict],
    ) -> Option<TargetParts<'i>> {
        let verdict = verdict_of(verdicts, asked.known)?;
        if !verdict.bids() {
            return None;
        }

        let mut parts = TargetParts {
            id: asked.id.bytes(),
            value: &[],
            tag: &[],
        };
        if let Some(values) = self.values.of(verdicts, asked.known) {
            parts.value = &values.target_info;
        }
        if let Some(tag) = verdict.tag {
            parts.tag = &self.tags[usize::from(tag)].target_info;
        }

        if parts.value.is_empty() && parts.tag.is_empty() {
            return None;
        }
        Some(parts)
    }

    /// The answer to a second request: keeps the ads whose strategy bids, and no ads without a
    /// configured strategy. Without a kept ad it is a rejection: where `ignore` has no effect, 0
    /// would accept all. Prices override those of the first answer. An ad has no tag, so the answer
    /// has the first one of a kept ad.
    fn of_ads(&self, read: &Read<'_>, verdicts: &[Verdict]) -> RtaResponse {
        if !verdicts.iter().any(Verdict::bids) {
            return RtaResponse {
                code: Some(REJECT),
                ..RtaResponse::default()
            };
        }

        let mut ad_results = Vec::with_capacity(read.asked.iter().len());
        for asked in read.asked.iter() {
            let mut result = AdResult {
                adgroup_id: asked.ad,
                ..AdResult::default()
            };
            if let Some(value) = self.values.of(verdicts, asked.known) {
                result.cpc_price = value.cpc_price;
                result.cpa_price = value.cpa_price;
            }
            if !bids(verdicts, asked.known) {
                result.ignore = Some(true);
            }
            ad_results.push(result);
        }

        let mut tag = Tag::default();
        for verdict in verdicts {
            if verdict.bids()
                && let Some(index) = verdict.tag
            {
                tag = self.tags[usize::from(index)].tag.clone();
                break;
            }
        }

        RtaResponse {
            code: Some(ACCEPT),
            ad_results,
            dsp_tag: tag.number,
            dsp_tag_str: tag.text.map(Bytes::from),
            ..RtaResponse::default()
        }
    }
}

impl Adapter for Tencent {
    fn kind(&self) -> &'static str {
        KIND.rules.word
    }

    fn strategies(&self) -> &StrategyIds {
        &self.strategies
    }

    #[inline]
    fn read<'a>(&'a self, request: &Request<'a>, read: &mut Read<'a>) -> Result<(), ReadError> {
        if request.body.is_empty() {
            return Err(ReadError::Empty);
        }
        let mut message = Message::default();
        message.merge(request.body)?;
        check_asked(message.ads.len())?;

        read.request_id = message.id.map_or(Value::Absent, Value::Bytes);
        note(&message, read);
        if message.is_ping {
            read.purpose = Purpose::Ping;
            return Ok(());
        }

        read_ids(&message.device, read);
        read.cached_kind = cached_kind(&message.device);
        read_os(message.device.os, read);
        read.attributes[Attribute::RequestType as usize] = match message.request_type {
            RequestType::Normal => "normal".into(),
            RequestType::Click => "click".into(),
            RequestType::AdList => "ads".into(),
        };

        match message.request_type {
            RequestType::AdList => {
                read.purpose = Purpose::Ads;
                let mut named = SmallVec::with_capacity(message.ads.len());
                for ad in &message.ads {
                    let mut asked = Asked {
                        id: Value::Absent,
                        known: None,
                        ad: ad.adgroup_id,
                    };
                    if let Some(id) = ad.out_target_id {
                        asked.id = Value::Bytes(id);
                        asked.known = self.strategies.find(|known| known.is_text(id));
                    }
                    named.push(asked);
                }
                read.asked = AskedList::Named(named);
            }
            RequestType::Normal | RequestType::Click => read.asked = self.strategies.all(),
        }
        Ok(())
    }

    #[inline]
    fn write(&self, read: &Read<'_>, verdicts: &[Verdict]) -> Bytes {
        let mut response = match read.purpose {
            Purpose::Strategies | Purpose::Devices | Purpose::Fallback => {
                return self.of_strategies(read, verdicts);
            }
            Purpose::Ping => RtaResponse {
                code: Some(ACCEPT),
                ..RtaResponse::default()
            },
            Purpose::Ads => self.of_ads(read, verdicts),
        };
        response.request_id = read.shared_request_id();
        encode(&response)
    }

    /// `code` 1.
    fn refusal(&self) -> Bytes {
        encode(&RtaResponse {
            code: Some(REJECT),
            ..RtaResponse::default()
        })
    }

    fn content_type(&self) -> Option<&'static str> {
        None
    }

    fn answer_message(&self) -> Option<MessageDescriptor> {
        message_of_proto("tencent.ad.rta.RtaResponse")
    }
}

/// Notes further fields.
fn note(message: &Message<'_>, read: &mut Read<'_>) {
    for (what, is_so) in [("ping", message.is_ping), ("test call", message.is_test)] {
        if is_so {
            read.note(what, "yes".into());
        }
    }
    if message.request_type == RequestType::AdList {
        read.note("second request, ads", Value::Uint(message.ads.len() as u64));
    }
    if let Some(kind) = message.device.cached_kind {
        let name =
            device::CachedDeviceIdType::try_from(kind).map_or("unknown", |kind| kind.as_str_name());
        read.note("cached_deviceid_type", name.into());
    }
}

/// The kind of id by which the platform caches the answer.
fn cached_kind(device: &bytes::Device<'_>) -> Option<IdKind> {
    use device::CachedDeviceIdType as Cached;
    Some(match Cached::try_from(device.cached_kind?).ok()? {
        Cached::CachedIdfaMd5 => IdKind::Idfa,
        Cached::CachedImeiMd5 => IdKind::Imei,
        Cached::CachedOaid | Cached::CachedOaidMd5 => IdKind::Oaid,
        Cached::CachedAndroididMd5 => IdKind::AndroidId,
        Cached::CachedMacMd5 => IdKind::Mac,
        Cached::CachedQaid => IdKind::Caid,
        Cached::CachedNil => return None,
    })
}

/// Reads the attribute as one of [`crate::strategy::OS_WORDS`].
fn read_os(number: Option<i32>, read: &mut Read<'_>) {
    let Some(number) = number else {
        return;
    };
    let Ok(os) = device::Os::try_from(number) else {
        read.has_unknown_os = true;
        return read.note("os, not known", Value::Int(number.into()));
    };

    let word = match os {
        device::Os::Ios => "ios",
        device::Os::Android => "android",
        device::Os::Harmony => "harmony",
        device::Os::Windows => "windows",
        device::Os::Mac => "mac",
        device::Os::Symbian => "symbian",
        device::Os::Java => "java",
        device::Os::Unknown => return,
    };
    read.attributes[Attribute::Os as usize] = word.into();
}

/// Adds every id, and marks those that the platform lists as unreliable.
fn read_ids<'a>(device: &bytes::Device<'a>, into: &mut Read<'a>) {
    // One pass over the list into a bit per kind: a body can hold thousands of marks and ids.
    let mut doubts = 0_u8;
    for kind in &device.doubtful_ids {
        if (0..8).contains(kind) {
            doubts |= 1 << kind;
        }
    }

    let mut add = |path, field, value: Option<&'a [u8]>, doubtful: Option<DoubtfulId>| {
        let Some(value) = value else { return };
        let is_doubtful = doubtful.is_some_and(|kind| doubts >> kind as i32 & 1 == 1);
        let value = Value::Bytes(value);
        into.add_id(Id {
            path,
            field,
            value,
            is_doubtful,
            is_accepted: false,
        });
    };

    const IDFA_MD5: IdField = IdField::at("idfa_md5");
    const IMEI_MD5: IdField = IdField::at("imei_md5");
    const ANDROID_ID_MD5: IdField = IdField::at("android_id_md5");
    const MAC_MD5: IdField = IdField::at("mac_md5");
    const OAID_MD5: IdField = IdField::at("oaid_md5");
    const OAID: IdField = IdField::at("oaid");
    const CAID: IdField = IdField::at("caid");
    const CAID_MD5: IdField = IdField::at("caid_md5");
    const OPENID: IdField = IdField::at("openid");

    add(
        "device.idfa_md5sum",
        IDFA_MD5,
        device.idfa_md5sum,
        Some(DoubtfulId::DoubtfulIdfaMd5),
    );
    add(
        "device.imei_md5sum",
        IMEI_MD5,
        device.imei_md5sum,
        Some(DoubtfulId::DoubtfulImeiMd5),
    );
    let doubtful = Some(DoubtfulId::DoubtfulAndroididMd5);
    add(
        "device.android_id_md5sum",
        ANDROID_ID_MD5,
        device.android_id_md5sum,
        doubtful,
    );
    add(
        "device.mac_md5sum",
        MAC_MD5,
        device.mac_md5sum,
        Some(DoubtfulId::DoubtfulMacMd5),
    );
    add(
        "device.oaid_md5sum",
        OAID_MD5,
        device.oaid_md5sum,
        Some(DoubtfulId::DoubtfulOaidMd5),
    );
    add(
        "device.oaid",
        OAID,
        device.oaid,
        Some(DoubtfulId::DoubtfulOaid),
    );

    for qaid in &device.qaids {
        add(
            "device.qaid_infos.qaid",
            CAID,
            qaid.qaid,
            Some(DoubtfulId::DoubtfulQaid),
        );
        add(
            "device.qaid_infos.qaid_md5sum",
            CAID_MD5,
            qaid.qaid_md5sum,
            Some(DoubtfulId::DoubtfulQaid),
        );
    }

    for openid in &device.openids {
        add("device.wx_openid.openid", OPENID, *openid, None);
    }
}

#[cfg(test)]
mod tests;
