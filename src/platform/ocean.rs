//! Ocean Engine (ByteDance): `proto/ocean.proto` over POST.
//!
//! The answer has a verdict for every requested strategy, also for rejected and unknown ones.
//! `bid_type` states whether any strategy bids, and is written even as 0. A `status_code` other
//! than 0 means an error, not a no-bid: it answers unreadable requests.

use bytes::Bytes;
use prost::Message as _;

use super::adapter::{
    Adapter, Admission, CacheTimes, Head, Kind, StrategyIds, Verdicts, check_asked, decode, encode,
};
use super::decider::{Decider, Failure, Id, Lossy, hide};
use super::describe::Lines;
use crate::config::KindRules;
use rtad_core::device::{IdField, IdKind};

#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated from proto/ocean.proto")]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/ocean.rta.rs"));
}

pub use wire::rsp::UserInfo;
pub use wire::{Device, DidType, Platform, Req, Rsp};

hide!(Req, Device);

/// `kind = "ocean"`
pub(super) const KIND: Kind = Kind {
    rules: KindRules {
        word: "ocean",
        strategy_id: "a whole number",
        // One spelling per id: no plus, no leading zeros.
        is_strategy_id: |id| id.parse::<i64>().is_ok_and(|number| number.to_string() == id),
        is_mapped: false,
    },
    build: |config, ids| {
        let ids = ids.map(|id| id.parse().expect("the config accepts only numbers"));
        Ok(Box::new(Ocean::new(ids, config.into())))
    },
};

/// Values of `bid_type`.
const TAKES_PART: i32 = 0;
const NOT_THIS_DEVICE: i32 = 1;
/// `status_code` for an unreadable request; the platform accepts any value but 0.
const ERROR: i32 = 1;

const MD5: usize = IdField::at("md5");
const IMEI: usize = IdField::at("imei");
const IMEI_MD5: usize = IdField::at("imei_md5");
const ANDROID_ID: usize = IdField::at("android_id");
const ANDROID_ID_MD5: usize = IdField::at("android_id_md5");
const IDFA: usize = IdField::at("idfa");
const IDFA_MD5: usize = IdField::at("idfa_md5");
const OAID: usize = IdField::at("oaid");
const OAID_MD5: usize = IdField::at("oaid_md5");
const CAID: usize = IdField::at("caid");
const GAID: usize = IdField::at("gaid");
const GAID_MD5: usize = IdField::at("gaid_md5");

/// The protocol, with its configuration.
#[derive(Debug)]
pub struct Ocean {
    /// `rta_id`s.
    strategies: StrategyIds<i64>,
    cache: CacheTimes,
}

impl Ocean {
    /// An adapter for these `rta_id`s.
    pub const fn new(strategies: StrategyIds<i64>, cache: CacheTimes) -> Self {
        Self { strategies, cache }
    }

    /// A verdict for each requested strategy. If the request names none, all configured ones
    /// decide, and only `bid_type` is set.
    fn verdicts(&self, asked: &[i64], decider: &mut dyn Decider) -> Rsp {
        let mut verdicts = Verdicts::new(decider);
        let mut bids = false;
        let mut user_infos = Vec::with_capacity(asked.len());
        for rta_id in asked {
            let strategy = self.strategies.strategy(rta_id);
            verdicts.requested_strategy(rta_id, strategy);
            let is_interested = strategy.is_some_and(|strategy| verdicts.bids(strategy));
            bids |= is_interested;
            user_infos.push(UserInfo { is_interested, rta_id: *rta_id });
        }
        if asked.is_empty() {
            for (_, strategy) in self.strategies.iter() {
                bids |= verdicts.bids(strategy);
            }
        }
        let cache = self.cache.of(bids, &verdicts);
        Rsp {
            user_infos,
            bid_type: Some(if bids { TAKES_PART } else { NOT_THIS_DEVICE }),
            cache_time_secs: cache.map_or(0, |seconds| seconds.try_into().unwrap_or(i32::MAX)),
            ..Rsp::default()
        }
    }
}

impl Adapter for Ocean {
    fn kind(&self) -> &'static str {
        KIND.rules.word
    }

    #[inline]
    fn answer(
        &self,
        _: Admission,
        _: &Head<'_>,
        body: Bytes,
        decider: &mut dyn Decider,
    ) -> Result<Bytes, Failure> {
        let request: Req = decode(body, decider)?;
        check_asked(request.rta_ids.len(), decider)?;
        if !request.req_id.is_empty() {
            decider.note("req_id", &Lossy(&request.req_id));
        }
        for rta_id in &request.rta_ids {
            decider.note("rta_id", rta_id);
        }
        read_ids(&request, decider);
        let mut response = self.verdicts(&request.rta_ids, decider);
        response.req_id = request.req_id;
        Ok(encode(&response))
    }

    fn unavailable(&self, decider: &mut dyn Decider) -> Bytes {
        let all: Vec<i64> = self.strategies.iter().map(|(id, _)| *id).collect();
        encode(&Rsp { status_code: ERROR, ..self.verdicts(&all, decider) })
    }

    /// An error, and no bid.
    fn refusal(&self) -> Bytes {
        encode(&Rsp { status_code: ERROR, bid_type: Some(NOT_THIS_DEVICE), ..Rsp::default() })
    }

    fn content_type(&self) -> Option<&'static str> {
        Some("application/x-protobuf")
    }

    fn strategy_ids(&self) -> Vec<(String, usize)> {
        self.strategies.texts(i64::to_string)
    }

    fn describe_answer(&self, answer: &[u8]) -> Result<String, prost::DecodeError> {
        let answer = Rsp::decode(answer)?;
        let mut lines = Lines::default();
        let status = if answer.status_code == 0 { "ok" } else { "an error" };
        lines.each("status_code", [format!("{} ({status})", answer.status_code)]);
        lines.texts("req_id", Some(&answer.req_id).filter(|id| !id.is_empty()));
        let verdict =
            |info: &UserInfo| if info.is_interested { "interested" } else { "not interested" };
        let info = |info: &UserInfo| format!("rta_id {}: {}", info.rta_id, verdict(info));
        lines.each("user_infos", answer.user_infos.iter().map(info));
        lines.each("ts", Some(answer.ts).filter(|ts| *ts != 0));
        let meaning = |bid_type| match bid_type {
            TAKES_PART => "takes part",
            NOT_THIS_DEVICE => "not with this device",
            _ => "not in this slot",
        };
        lines.each(
            "bid_type",
            answer.bid_type.map(|bid_type| format!("{bid_type} ({})", meaning(bid_type))),
        );
        let seconds = Some(answer.cache_time_secs).filter(|seconds| *seconds != 0);
        lines.each("cache_time_secs", seconds.map(|seconds| format!("{seconds} s")));
        lines.texts("rta_vid", Some(&answer.rta_vid).filter(|vid| !vid.is_empty()));
        lines.each("cus_vid", Some(answer.cus_vid).filter(|vid| *vid != 0));
        Ok(lines.joined())
    }
}

/// Passes on the device's ids, then the main id, which nearly always repeats one of them.
fn read_ids(request: &Req, decider: &mut dyn Decider) {
    let mut read = |path, field, value: &Bytes| {
        if !value.is_empty() {
            decider.id(Id { path, field, value });
        }
    };
    if let Some(device) = &request.device {
        read("device.imei_md5", IMEI_MD5, &device.imei_md5);
        read("device.android_id_md5", ANDROID_ID_MD5, &device.android_id_md5);
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
fn did_fields(request: &Req) -> (usize, Option<usize>) {
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
        DidType::Imei => match request.did.trim_ascii() {
            did if IdKind::Md5.has_shape(did) => MD5,
            did if !IdKind::Idfa.has_shape(did) => IMEI,
            _ if request.platform() == Platform::Ios => IDFA,
            _ => return (IDFA, Some(OAID)),
        },
    };
    (field, None)
}

#[cfg(test)]
mod tests;
