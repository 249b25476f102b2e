//! Properties of answers to arbitrary bodies.
//!
//! Used by the fuzz targets and by `tests/platform_corpus`, which replays and mutates the corpus.
//! Answers come from the service's adapters and catalog, and must match the verdicts. A panic is a
//! failure.
//!
//! The custom adapter gets the same bodies: a mapping of Ocean Engine's messages, and one of the
//! JSON of `/v1/decide`. A new protocol needs a [`Protocol`] and an arm in each `match`.
//!
//! [`files`] has the properties of snapshot files, [`config`] those of the configuration.

pub mod config;
pub mod files;
pub mod memory;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use prost::Message as _;
use rtad::catalog::{Audience, Catalog, CatalogParts, RequestKeys};
use rtad::platform::ocean::{Req, Rsp};
use rtad::platform::tencent::{AdInfo, RequestType, RtaRequest, RtaResponse};
use rtad::platform::{
    Access, Adapter, Admission, CacheTimes, Failure, IdReader, MAX_IDS, MAX_READ_IDS,
    MAX_STRATEGIES, Ocean, Platform, Read, RequestHead, Tencent, Verdicts, api,
};
use rtad::serve::Assembly;
use rtad::strategy::{Outcome, Reason, Rule, Strategy};
use rtad::telemetry::Telemetry;
use rtad_core::device::{DeviceKey, IdKind, KeyMaker};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    BuiltChunk, ChunkDecoder, ChunkReader, GenerationFacts, ManifestBuilder, Snapshot,
};
use tokio::time::Instant;

/// The IMEI of the published examples: the only known device.
const KNOWN: &[u8] = b"868049039501257";
/// Strategies of the catalog.
const STRATEGIES: usize = 4;
/// Tencent's ids of strategies 0 to 3. Two ids share a strategy, which is decided once.
const OUT_TARGET_IDS: [(&str, usize); 5] = [("new", 0), ("T1", 0), ("T2", 1), ("T3", 2), ("T4", 3)];
/// Ocean Engine's ids.
const RTA_IDS: [(i64, usize); 4] = [(10003, 0), (10004, 1), (-7, 2), (0, 3)];

/// A protocol of request bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tencent,
    Ocean,
    /// The JSON of `/v1/decide`.
    Api,
    /// The custom adapter with Ocean Engine's messages.
    CustomProtobuf,
    /// The custom adapter with JSON like that of `/v1/decide`.
    CustomJson,
}

/// The custom adapter's part of a config; strategies are in the catalog's order.
const CUSTOM: &str = r#"
[store]
url = "/none"
[[audience]]
name = "old"
[[audience]]
name = "missing"
[[strategy]]
name = "new-users"
exclude = ["old"]
[[strategy]]
name = "careful"
exclude = ["old", "missing"]
[[strategy]]
name = "idless"
when = "missing"
[[strategy]]
name = "hopeless"
when = "missing"
[[platform]]
kind = "custom"
name = "custom_protobuf"
path = "/rta/custom_protobuf"
no_bid_cache = "24h"
strategies = { 10003 = "new-users", 10004 = "careful", -7 = "idless", 0 = "hopeless" }
body = "protobuf"
proto = "proto/ocean.proto"
request_message = "ocean.rta.Req"
response_message = "ocean.rta.Rsp"
[platform.request]
request_id = "req_id"
strategies = "rta_ids"
ids = { imei_md5 = "device.imei_md5", oaid = "device.oaid", caid = ["device.caid1", "device.caid2"] }
[platform.request.id_list]
value = "did"
type = "did_type"
kinds = { IMEI = "imei", IMEI_MD5 = "imei_md5", OAID = "oaid" }
[platform.response]
request_id = "req_id"
code = { field = "status_code", bid = 0, no_bid = 0, error = 1 }
verdicts = { list = "user_infos", strategy = "rta_id", accepted = "is_interested" }
cache = "cache_time_secs"
[[platform]]
kind = "custom"
name = "custom_json"
path = "/rta/custom_json"
strategies = { new-users = "new-users", careful = "careful", idless = "idless", T1 = "new-users" }
body = "json"
[platform.request]
request_id = "request_id"
strategies = "strategies"
[platform.request.ids]
imei = "device.imei"
imei_md5 = "device.imei_md5"
oaid = "device.oaid"
openid = "device.openid"
caid = "device.caid"
[platform.response]
request_id = "request_id"
code = { field = "code", bid = 0, no_bid = 1, error = 2 }
accepted = "accepted"
"#;

/// Strategies of [`CUSTOM`]'s JSON.
const JSON_IDS: [(&str, usize); 4] = [("T1", 0), ("careful", 1), ("idless", 2), ("new-users", 0)];
/// The custom adapter's limit of strategies.
const MAX_ASKED: usize = 1024;

impl Protocol {
    pub const ALL: [Self; 5] = [
        Self::Tencent,
        Self::Ocean,
        Self::Api,
        Self::CustomProtobuf,
        Self::CustomJson,
    ];

    /// The name of the corpus.
    pub const fn corpus(self) -> &'static str {
        match self {
            Self::Tencent => "tencent",
            Self::Ocean | Self::CustomProtobuf => "ocean",
            Self::Api | Self::CustomJson => "api",
        }
    }
}

/// The answer to a body.
#[derive(Debug)]
pub struct Answer {
    pub bytes: Bytes,
    pub failure: Option<Failure>,
    /// Each strategy's decision, if it was decided.
    bids: [Option<bool>; STRATEGIES],
}

impl Answer {
    /// Whether any strategy bid.
    pub fn bids(&self) -> bool {
        self.bids.contains(&Some(true))
    }
}

/// A service without sockets.
pub struct World {
    catalog: Catalog,
    reader: IdReader,
    head: HeaderMap,
}

impl World {
    pub fn new() -> Self {
        let telemetry = Telemetry::default();
        let name = |name: &str| name.parse().expect("a name");
        let audiences = vec![
            Audience {
                snapshot: Some(Arc::new(known_devices())),
                ..Audience::unloaded(name("old"), true, None)
            },
            Audience::unloaded(name("missing"), false, None),
        ];
        let strategy =
            |name: &str, exclude: &[usize], required: Option<usize>, no_device, unavailable| {
                Strategy {
                    name: name.to_owned(),
                    exclude: exclude.to_vec(),
                    rule: required.map(Rule::Audience),
                    no_device,
                    unavailable,
                    ..Strategy::default()
                }
            };
        let (bid, no_bid) = (Outcome::Bid, Outcome::NoBid);
        // Unknown devices get bids of some strategies, requests without ids of one, the known
        // device of none.
        let strategies = vec![
            strategy("new-users", &[0], None, no_bid, no_bid),
            strategy("careful", &[0, 1], None, no_bid, bid),
            strategy("idless", &[], Some(1), bid, no_bid),
            strategy("hopeless", &[], Some(1), no_bid, no_bid),
        ];
        let cache = CacheTimes {
            bid: Some(3600),
            no_bid: Some(86400),
        };
        let ids = OUT_TARGET_IDS
            .map(|(id, strategy)| (id.to_owned(), strategy))
            .to_vec();
        let tencent = Box::new(Tencent::new(ids, cache));
        let ocean = Box::new(Ocean::new(RTA_IDS.to_vec(), cache));
        let platform = |name: &str, adapter: Box<dyn Adapter>| {
            let (name, path) = (name.to_owned(), format!("/rta/{name}"));
            Arc::new(Platform {
                name,
                path,
                access: Access::default(),
                adapter,
            })
        };
        let mut platforms = vec![platform("tencent", tencent), platform("ocean", ocean)];
        platforms.extend(custom_platforms());
        let parts = CatalogParts {
            audiences,
            strategies,
            platforms,
            ..CatalogParts::default()
        };
        Self {
            catalog: Catalog::new(parts, &telemetry),
            reader: IdReader::new(KeyMaker::default(), &telemetry),
            head: HeaderMap::new(),
        }
    }

    /// Answers a body as the routes do.
    pub fn answer(&self, protocol: Protocol, body: Bytes) -> Answer {
        let index = match protocol {
            Protocol::Tencent => 0,
            Protocol::Ocean => 1,
            Protocol::CustomProtobuf => 2,
            Protocol::CustomJson => 3,
            Protocol::Api => return self.answer_api(&body),
        };
        let served = &self.catalog.platforms()[index];
        let head = RequestHead {
            headers: &self.head,
            query: None,
        };
        let (body, mut read) = (Ok(body), Read::default());
        let mut bids = [None; STRATEGIES];
        let platform = &served.platform;
        let answered = platform.respond(
            Admission::ByHeaders,
            head,
            &body,
            &mut read,
            |read, verdicts| {
                let mut keys = self.catalog.no_keys();
                self.catalog.add_keys(served, &self.reader, read, &mut keys);
                let mut facts = self.catalog.no_facts(&keys);
                self.catalog.add_facts(&keys, read, &mut facts);
                self.catalog.decide(read.strategies(), &facts, verdicts);
                self.catalog.admit(&keys, Instant::now(), verdicts);
                self.catalog.count(served, &facts, verdicts);
                self.catalog.remove_shadow(verdicts);
                bids = self.bids(read, verdicts);
            },
        );
        assert_ne!(
            answered.failure(),
            Some(Failure::Internal),
            "nothing panics"
        );
        Answer {
            failure: answered.failure(),
            bytes: answered.bytes,
            bids,
        }
    }

    /// Each strategy's decision; checks that unread ids are not taken for those of non-members.
    fn bids(&self, read: &Read<'_>, verdicts: &Verdicts) -> [Option<bool>; STRATEGIES] {
        let key = |id: &rtad::platform::Id<'_>| {
            let text = id.value.to_string();
            self.reader
                .key_uncounted(id.field, text.as_bytes())
                .ok()
                .filter(|_| !id.is_doubtful)
        };
        let keys: HashSet<DeviceKey> = read.ids.iter().filter_map(key).collect();
        let are_too_many = keys.len() > MAX_IDS || read.ids.len() > MAX_READ_IDS;
        let mut bids = [None; STRATEGIES];
        for verdict in verdicts {
            assert_eq!(bids[verdict.strategy], None, "a strategy is decided once");
            let is_proven = matches!(
                verdict.decision.reason,
                Reason::Member | Reason::Unavailable
            );
            assert!(is_proven || !are_too_many, "an unread id might be a member");
            bids[verdict.strategy] = Some(verdict.decision.outcome == Outcome::Bid);
        }
        bids
    }

    fn answer_api(&self, body: &[u8]) -> Answer {
        let known = self.catalog.strategies();
        let mut bids = [None; STRATEGIES];
        let request = match api::decode(body, &self.reader) {
            Ok(request) => request,
            Err(error) => {
                return Answer {
                    bytes: format!("{error:?}").into(),
                    failure: Some(Failure::BadBody),
                    bids,
                };
            }
        };
        let named = |name: &_| {
            let name: &str = name;
            self.catalog.strategy_index(name)
        };
        let indexes: Vec<usize> = match request.strategies.is_empty() {
            true => (0..known.len()).collect(),
            false => request
                .strategies
                .iter()
                .filter_map(|name| named(name.as_ref()))
                .collect(),
        };
        let keys = RequestKeys::of(request.keys, request.units);
        let mut facts = self.catalog.no_facts(&keys);
        facts.attributes = request.attributes.values();
        let decided = self
            .catalog
            .decide_named(&keys, &indexes, Instant::now(), &mut facts);
        let mut decisions = Vec::new();
        for index in indexes {
            let mut verdicts = decided.iter();
            let verdict = verdicts.find(|verdict| verdict.strategy == index);
            let decision = verdict.expect("a verdict per strategy").decision;
            bids[index] = Some(decision.outcome == Outcome::Bid);
            let strategy = self.catalog.strategy(index);
            decisions.push(api::NamedDecision::new(
                strategy,
                decision,
                std::iter::empty(),
            ));
        }
        let bytes = api::encode(request.request_id.as_deref(), &decisions).into();
        Answer {
            bytes,
            failure: None,
            bids,
        }
    }

    /// Checks the properties of an answer.
    ///
    /// # Panics
    ///
    /// If one does not hold.
    pub fn check(&self, protocol: Protocol, body: &Bytes, answer: &Answer) {
        match protocol {
            Protocol::Tencent => check_tencent(body, answer),
            Protocol::Ocean => check_ocean(body, answer),
            Protocol::Api => check_api(answer),
            Protocol::CustomProtobuf => check_custom_protobuf(body, answer),
            Protocol::CustomJson => check_custom_json(body, answer),
        }
    }

    /// Answers a body and checks the answer.
    pub fn answer_and_check(&self, protocol: Protocol, body: impl Into<Bytes>) {
        let body = body.into();
        self.check(protocol, &body, &self.answer(protocol, body.clone()));
    }
}

/// The platforms of [`CUSTOM`], with paths relative to the project's root.
fn custom_platforms() -> Vec<Arc<Platform>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = root
        .into_iter()
        .find(|folder| folder.join("proto").is_dir())
        .expect("the project's root");
    let file = root.join("rtad.toml").display().to_string();
    let assembly =
        Assembly::read(Some((&file, CUSTOM)), |_| None, &Vec::new()).expect("a good config");
    assembly.platforms
}

fn check_tencent(body: &Bytes, answer: &Answer) {
    let response = RtaResponse::decode(&answer.bytes[..]).expect("the answer decodes");
    let code = response
        .code
        .expect("`code` is present; without it every ad is accepted");
    let request = RtaRequest::decode(body.clone());
    if request
        .as_ref()
        .is_err_and(|error| error.to_string().contains("recursion limit"))
    {
        // The adapter counts nested groups from the message around them.
        return;
    }
    let request = request.ok();
    let request = request.filter(|read| !body.is_empty() && read.ad_infos.len() <= MAX_ASKED);
    assert_eq!(request.is_some(), answer.failure.is_none());
    let request = request.unwrap_or_default();
    assert_eq!(response.request_id, request.id);
    if request.is_ping == Some(true) {
        let pong = RtaResponse {
            request_id: request.id,
            code: Some(0),
            ..RtaResponse::default()
        };
        assert_eq!(response, pong);
        assert_eq!(answer.bids, [None; STRATEGIES], "a ping decides nothing");
        return;
    }
    let bids = |strategy: usize| answer.bids[strategy].unwrap_or_default();
    let request_type = request.request_info.and_then(|info| info.request_type);
    if request_type.is_some_and(|number| RequestType::try_from(number).is_err()) {
        // In prost, an unknown value of an enum replaces a known one.
        return;
    }
    if request.request_info.unwrap_or_default().request_type() == RequestType::AdList {
        let keeps = |ad: &AdInfo| {
            let mut known = OUT_TARGET_IDS.iter();
            let strategy = known.find(|(id, _)| ad.out_target_id.as_deref() == Some(id.as_bytes()));
            strategy.is_some_and(|(_, index)| bids(*index))
        };
        assert_eq!(code == 0, request.ad_infos.iter().any(keeps));
        assert!(response.out_target_id.is_empty());
        assert_eq!(
            response.ad_results.len(),
            if code == 0 { request.ad_infos.len() } else { 0 }
        );
        for (ad, result) in request.ad_infos.iter().zip(&response.ad_results) {
            let ignored = (!keeps(ad)).then_some(true);
            assert_eq!((result.adgroup_id, result.ignore), (ad.adgroup_id, ignored));
        }
        return;
    }
    let bidding = OUT_TARGET_IDS
        .iter()
        .filter(|(_, index)| bids(*index))
        .map(|(id, _)| id.as_bytes());
    assert!(
        bidding.eq(response.out_target_id.iter().map(|id| &id[..])),
        "only what bids is listed"
    );
    assert_eq!(code, u32::from(response.out_target_id.is_empty()));
    assert!(response.ad_results.is_empty());
}

fn check_ocean(body: &Bytes, answer: &Answer) {
    let response = Rsp::decode(&answer.bytes[..]).expect("the answer decodes");
    let bid_type = response.bid_type.expect("bid_type is always written");
    let bids = |strategy: usize| answer.bids[strategy].unwrap_or_default();
    let infos: Vec<_> = response
        .user_infos
        .iter()
        .map(|info| (info.rta_id, info.is_interested))
        .collect();
    assert_eq!(
        bid_type == 0,
        answer.bids(),
        "bid_type is 0 if any strategy bids"
    );
    let request = Req::decode(body.clone()).ok();
    let request = request.filter(|read| !body.is_empty() && read.rta_ids.len() <= MAX_ASKED);
    let Some(request) = request else {
        assert_eq!(answer.failure, Some(Failure::BadBody));
        assert_ne!(response.status_code, 0, "errors have a status code");
        assert_eq!(infos, RTA_IDS.map(|(id, strategy)| (id, bids(strategy))));
        return;
    };
    assert_eq!((answer.failure, response.status_code), (None, 0));
    assert_eq!(response.req_id, request.req_id);
    let verdict = |id: &i64| {
        let strategy = RTA_IDS.iter().find(|(known, _)| known == id);
        (*id, strategy.is_some_and(|(_, index)| bids(*index)))
    };
    assert!(
        request.rta_ids.iter().map(verdict).eq(infos),
        "every requested id is echoed"
    );
}

fn check_custom_protobuf(body: &Bytes, answer: &Answer) {
    let response = Rsp::decode(&answer.bytes[..]).expect("the answer decodes");
    let bids = |strategy: usize| answer.bids[strategy].unwrap_or_default();
    let infos: Vec<_> = response
        .user_infos
        .iter()
        .map(|info| (info.rta_id, info.is_interested))
        .collect();
    let mut all = RTA_IDS.map(|(id, strategy)| (id, bids(strategy)));
    // Sorted as text, as in the config.
    all.sort_by_key(|(id, _)| id.to_string());
    assert_eq!(response.status_code, i32::from(answer.failure.is_some()));
    if answer.failure.is_some() {
        assert_eq!(
            (answer.failure, &infos[..]),
            (Some(Failure::BadBody), &all[..])
        );
        return;
    }
    // Ignores unmapped fields, so it may accept messages that the built-in adapter rejects.
    let Ok(request) = Req::decode(body.clone()) else {
        return;
    };
    assert_eq!(response.req_id, request.req_id);
    assert!(request.rta_ids.len() <= MAX_ASKED);
    let verdict = |id: &i64| {
        let strategy = RTA_IDS.iter().find(|(known, _)| known == id);
        (*id, strategy.is_some_and(|(_, index)| bids(*index)))
    };
    let expected: Vec<_> = if request.rta_ids.is_empty() {
        all.to_vec()
    } else {
        request.rta_ids.iter().map(verdict).collect()
    };
    assert_eq!(infos, expected, "every requested id is echoed");
}

fn check_custom_json(body: &[u8], answer: &Answer) {
    let response: serde_json::Value =
        serde_json::from_slice(&answer.bytes).expect("the answer decodes");
    let accepted = response["accepted"]
        .as_array()
        .expect("a list of strategies");
    let accepted: Vec<&str> = accepted
        .iter()
        .map(|id| id.as_str().expect("a string"))
        .collect();
    let code = response["code"].as_i64().expect("a code is always written");
    assert_eq!(
        code,
        if answer.failure.is_some() {
            2
        } else {
            i64::from(accepted.is_empty())
        }
    );
    let bids = |id: &str| {
        JSON_IDS
            .iter()
            .any(|(known, strategy)| *known == id && answer.bids[*strategy] == Some(true))
    };
    assert!(
        accepted.iter().all(|id| bids(id)),
        "only bidding strategies are accepted"
    );
    for (index, id) in accepted.iter().enumerate() {
        assert!(!accepted[..index].contains(id), "each once");
    }
    if answer.failure.is_none() {
        serde_json::from_slice::<serde::de::IgnoredAny>(body).expect("an answered body is JSON");
    }
}

fn check_api(answer: &Answer) {
    if answer.failure.is_some() {
        return;
    }
    let response: serde_json::Value =
        serde_json::from_slice(&answer.bytes).expect("the answer decodes");
    let decisions = response["decisions"].as_array().expect("decisions");
    assert!(decisions.len() <= MAX_STRATEGIES);
    let names = ["new-users", "careful", "idless", "hopeless"];
    for decision in decisions {
        let index = names
            .iter()
            .position(|name| decision["strategy"] == *name)
            .expect("a known strategy");
        assert_eq!(decision["bid"].as_bool(), answer.bids[index]);
    }
}

fn known_devices() -> Snapshot {
    let keys: Vec<_> = KeyMaker::default()
        .key(IdKind::Imei, KNOWN)
        .into_iter()
        .collect();
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-4).expect("a valid rate");
    let built = BuiltChunk::build(&spec, &keys);
    let mut manifest = ManifestBuilder::new(spec, 1e-4);
    manifest.add(&built);
    let manifest = manifest.finish("old".parse().expect("a name"), GenerationFacts::default());
    let manifest = manifest.expect("a valid chunk");
    let mut decoder = ChunkDecoder::new(manifest.filter(), &built.entry);
    decoder.feed(&built.bytes).expect("a valid chunk");
    Snapshot::assemble(
        manifest,
        vec![Arc::new(decoder.finish().expect("a complete chunk"))],
    )
}
