//! Tencent Ads (GDT): `proto/tencent.proto` over POST, always with status 200.
//!
//! The protocol has two traps. An absent `code` means 0, *accept*, so `code` is always written. A
//! `code` of 0 without a strategy id that the platform knows accepts *every* ad, so only configured
//! ids are written, and 1 if none of them bids.

mod request_info;

use bytes::Bytes;
use prost::Message as _;

use super::adapter::{
    Adapter, Admission, CacheTimes, Head, Kind, StrategyIds, Verdicts, check_asked, decode, encode,
    is_visible,
};
use super::decider::{Decider, Failure, Id, Lossy, hide};
use super::describe::Lines;
use crate::config::KindRules;
use rtad_core::device::IdField;

#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated from proto/tencent.proto")]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/tencent.ad.rta.rs"));
}

pub use request_info::RequestInfo;
pub use wire::rta_request::{AdInfo, RequestType};
pub use wire::{Device, RtaRequest, RtaResponse, device, rta_response};

use wire::device::DoubtfulId;
use wire::rta_response::AdResult;

hide!(Device, device::QaidInfo, device::WxOpenid);

/// `kind = "tencent"`
pub(super) const KIND: Kind = Kind {
    rules: KindRules {
        word: "tencent",
        strategy_id: "1 to 32 visible characters",
        is_strategy_id: |id| is_visible(id, 32),
        is_mapped: false,
    },
    build: |config, ids| Ok(Box::new(Tencent::new(ids.map(Bytes::from), config.into()))),
};

const ACCEPT: u32 = 0;
const REJECT: u32 = 1;

/// The protocol, with its configuration.
#[derive(Debug)]
pub struct Tencent {
    /// `out_target_id`s, of 1 to 32 bytes each.
    strategies: StrategyIds<Bytes>,
    cache: CacheTimes,
}

impl Tencent {
    /// An adapter for these `out_target_id`s.
    pub const fn new(strategies: StrategyIds<Bytes>, cache: CacheTimes) -> Self {
        Self { strategies, cache }
    }

    /// The strategies that bid, or a rejection if none does.
    fn decide_device(&self, decider: &mut dyn Decider) -> RtaResponse {
        let mut verdicts = Verdicts::new(decider);
        let bidding = self.strategies.iter().filter(|(_, strategy)| verdicts.bids(*strategy));
        let out_target_id: Vec<Bytes> = bidding.map(|(id, _)| id.clone()).collect();
        let bids = !out_target_id.is_empty();
        RtaResponse {
            code: Some(if bids { ACCEPT } else { REJECT }),
            response_cache_time: self.cache.of(bids, &verdicts),
            out_target_id,
            ..RtaResponse::default()
        }
    }

    /// The answer to a second request: keeps the ads whose strategy bids, and no ads without a
    /// configured strategy. Without a kept ad it is a rejection: where `ignore` has no effect, 0
    /// would accept all.
    fn decide_ads(&self, ads: &[AdInfo], decider: &mut dyn Decider) -> RtaResponse {
        let mut verdicts = Verdicts::new(decider);
        let mut keeps_any = false;
        let mut result = |ad: &AdInfo| {
            let strategy = ad.out_target_id.as_ref().and_then(|id| self.strategies.strategy(id));
            verdicts.requested_strategy(
                &Lossy(ad.out_target_id.as_deref().unwrap_or(b"(none)")),
                strategy,
            );
            let is_kept = strategy.is_some_and(|strategy| verdicts.bids(strategy));
            keeps_any |= is_kept;
            AdResult {
                adgroup_id: ad.adgroup_id,
                ignore: (!is_kept).then_some(true),
                ..AdResult::default()
            }
        };
        let ad_results: Vec<AdResult> = ads.iter().map(&mut result).collect();
        if keeps_any {
            RtaResponse { code: Some(ACCEPT), ad_results, ..RtaResponse::default() }
        } else {
            RtaResponse { code: Some(REJECT), ..RtaResponse::default() }
        }
    }
}

impl Adapter for Tencent {
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
        let request: RtaRequest = decode(body, decider)?;
        check_asked(request.ad_infos.len(), decider)?;
        note(&request, decider);
        let RtaRequest { id, is_ping, device, request_info, ad_infos, .. } = request;
        if is_ping == Some(true) {
            return Ok(encode(&RtaResponse {
                request_id: id,
                code: Some(ACCEPT),
                ..RtaResponse::default()
            }));
        }
        if let Some(device) = &device {
            read_ids(device, decider);
        }
        let mut response = match request_info.unwrap_or_default().request_type() {
            RequestType::AdList => self.decide_ads(&ad_infos, decider),
            RequestType::Normal | RequestType::Click => self.decide_device(decider),
        };
        response.request_id = id;
        Ok(encode(&response))
    }

    fn unavailable(&self, decider: &mut dyn Decider) -> Bytes {
        encode(&self.decide_device(decider))
    }

    /// `code` 1.
    fn refusal(&self) -> Bytes {
        encode(&RtaResponse { code: Some(REJECT), ..RtaResponse::default() })
    }

    fn content_type(&self) -> Option<&'static str> {
        None
    }

    fn strategy_ids(&self) -> Vec<(String, usize)> {
        self.strategies.texts(|id| String::from_utf8_lossy(id).into_owned())
    }

    fn describe_answer(&self, answer: &[u8]) -> Result<String, prost::DecodeError> {
        let answer = RtaResponse::decode(answer)?;
        let mut lines = Lines::default();
        lines.texts("request_id", &answer.request_id);
        let meaning = |code: u32| if code == ACCEPT { "accept" } else { "reject" };
        lines.each("code", answer.code.map(|code| format!("{code} ({})", meaning(code))));
        lines.each("processing_time_ms", answer.processing_time_ms);
        lines.each(
            "response_cache_time",
            answer.response_cache_time.map(|seconds| format!("{seconds} s")),
        );
        lines.each("dsp_tag", answer.dsp_tag);
        lines.texts("out_target_id", &answer.out_target_id);
        lines.each("target_infos", answer.target_infos.iter().map(|info| format!("{info:?}")));
        lines.each("aid_whitelist", answer.aid_whitelist);
        let kept = |ad: &AdResult| if ad.ignore() { "ignored" } else { "kept" };
        let result = |ad: &AdResult| format!("adgroup_id {}: {}", ad.adgroup_id(), kept(ad));
        lines.each("ad_results", answer.ad_results.iter().map(result));
        lines.texts("dsp_tag_str", &answer.dsp_tag_str);
        Ok(lines.joined())
    }
}

/// Records further fields for an explanation.
fn note(request: &RtaRequest, decider: &mut dyn Decider) {
    if let Some(id) = &request.id {
        decider.note("request_id", &Lossy(id));
    }
    for (what, is_so) in [("ping", request.is_ping), ("test call", request.is_test)] {
        if is_so == Some(true) {
            decider.note(what, &"yes");
        }
    }
    if let Some(info) = &request.request_info
        && info.request_type() == RequestType::AdList
    {
        decider.note("second request, ads", &request.ad_infos.len());
    }
    if let Some(kind) = request.device.as_ref().and_then(|device| device.cached_deviceid_type) {
        let name =
            device::CachedDeviceIdType::try_from(kind).map_or("unknown", |kind| kind.as_str_name());
        decider.note("cached_deviceid_type", &name);
    }
}

/// Passes on every id, and marks those that the platform lists as unreliable.
fn read_ids(device: &Device, decider: &mut dyn Decider) {
    // One pass over the list: a body can hold thousands of marks and ids.
    let kinds = device.doubtful_ids_list.iter().filter(|kind| (0..8).contains(*kind));
    let doubts = kinds.fold(0_u8, |doubts, kind| doubts | 1 << kind);
    let is_doubtful = |kind: DoubtfulId| doubts >> kind as i32 & 1 == 1;
    let mut read = |path, field, value: &Option<Bytes>, doubtful: Option<DoubtfulId>| {
        let Some(value) = value else { return };
        let id = Id { path, field, value };
        if doubtful.is_some_and(is_doubtful) {
            decider.doubtful(id);
        } else {
            decider.id(id);
        }
    };
    const IDFA_MD5: usize = IdField::at("idfa_md5");
    const IMEI_MD5: usize = IdField::at("imei_md5");
    const ANDROID_ID_MD5: usize = IdField::at("android_id_md5");
    const MAC_MD5: usize = IdField::at("mac_md5");
    const OAID_MD5: usize = IdField::at("oaid_md5");
    const OAID: usize = IdField::at("oaid");
    const CAID: usize = IdField::at("caid");
    const CAID_MD5: usize = IdField::at("caid_md5");
    const OPENID: usize = IdField::at("openid");
    read("device.idfa_md5sum", IDFA_MD5, &device.idfa_md5sum, Some(DoubtfulId::DoubtfulIdfaMd5));
    read("device.imei_md5sum", IMEI_MD5, &device.imei_md5sum, Some(DoubtfulId::DoubtfulImeiMd5));
    let doubtful = Some(DoubtfulId::DoubtfulAndroididMd5);
    read("device.android_id_md5sum", ANDROID_ID_MD5, &device.android_id_md5sum, doubtful);
    read("device.mac_md5sum", MAC_MD5, &device.mac_md5sum, Some(DoubtfulId::DoubtfulMacMd5));
    read("device.oaid_md5sum", OAID_MD5, &device.oaid_md5sum, Some(DoubtfulId::DoubtfulOaidMd5));
    read("device.oaid", OAID, &device.oaid, Some(DoubtfulId::DoubtfulOaid));
    for qaid in &device.qaid_infos {
        read("device.qaid_infos.qaid", CAID, &qaid.qaid, Some(DoubtfulId::DoubtfulQaid));
        read(
            "device.qaid_infos.qaid_md5sum",
            CAID_MD5,
            &qaid.qaid_md5sum,
            Some(DoubtfulId::DoubtfulQaid),
        );
    }
    for openid in &device.wx_openid {
        read("device.wx_openid.openid", OPENID, &openid.openid, None);
    }
}

#[cfg(test)]
mod tests;
