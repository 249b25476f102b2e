//! Explanation of a captured request.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::HeaderMap;

use super::explainer::Explainer;
use super::input::Encoding;
use super::parts::{ExplainedDevice, canonical, explain_audience, explain_strategy};
use super::report::{
    AccessChecked, BodyRead, ExplainedAnswer, Explanation, FailureExplained, IdExplained,
    IdInAudience, NOT_CONFIGURED, StrategyExplained,
};
use super::trace::{Trace, TracedId};
use crate::catalog::{Catalog, IdResult, RequestKeys};
use crate::platform::{
    Admission, Failure, Keys, MAX_IDS, Platform, Purpose, Read, ReadError, RequestHead, Verdicts,
};
use crate::strategy::{Facts, Strategy, Tier, Units};

/// A captured request.
#[derive(Clone)]
pub struct Captured<'a> {
    /// Headers and query string.
    pub head: RequestHead<'a>,
    /// The time of the schedules; now without one.
    pub at: Option<SystemTime>,
    /// Whether the headers are complete; if not, the caller's access is not checked.
    pub has_headers: bool,
    /// The body's bytes.
    pub body: Bytes,
    /// The encoding in which the body was given.
    pub encoding: Encoding,
    /// `server.max_body`.
    pub max_body: usize,
}

/// Hides the body: it holds ids.
impl fmt::Debug for Captured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured")
            .field("encoding", &self.encoding)
            .finish_non_exhaustive()
    }
}

/// Explains the answer of `platform` to a captured request. Costs the answer itself and one lookup
/// per id and audience.
///
/// # Panics
///
/// If the platform is not one of the catalog's.
pub fn explain(
    explainer: &Explainer<'_>,
    platform: &Platform,
    captured: Captured<'_>,
) -> Explanation {
    let Explainer { catalog, ids, .. } = *explainer;
    let Captured {
        head,
        at: time,
        has_headers,
        body,
        encoding,
        max_body,
    } = captured;
    let size_bytes = body.len();
    let access = access_of(platform, head.headers, has_headers);
    let admission = if has_headers {
        Admission::ByHeaders
    } else {
        Admission::Granted
    };
    let body = if size_bytes > max_body {
        Err(Failure::TooLarge)
    } else {
        Ok(body)
    };
    let (mut read, at) = (Read::default(), Instant::now());
    // Several if each id is a device of its own.
    let mut decided: Vec<(Trace, Verdicts)> = Vec::new();
    let answered = platform.respond(admission, head, &body, &mut read, |read, answered| {
        let trace = Trace::of(read, ids);
        let mut facts = catalog.no_facts(&trace.keys);
        catalog.add_facts(&trace.keys, read, &mut facts);
        if let Some(time) = time {
            // A strategy that is paused now was not looked up.
            catalog.complete(&trace.keys, &mut facts);
            catalog.pause_at(time, &mut facts);
        }
        catalog.decide(read.strategies(), &facts, answered);
        catalog.would_admit(&trace.keys, at, answered);
        decided.push((trace, answered.clone()));
        catalog.remove_shadow(answered);
    });
    let is_of_devices = read.purpose == Purpose::Devices;
    let mut trace = Trace::of(&read, ids);
    let are_too_many = match is_of_devices {
        true => read.ids.len() > MAX_IDS,
        false => trace.keys.has_too_many_ids(),
    };
    let too_many = are_too_many.then_some(Failure::TooManyIds);
    let detail = answered.error.as_ref().and_then(|error| match error {
        ReadError::Failed(_) => None,
        unreadable => Some(unreadable.to_string()),
    });
    let failure = answered.failure().or(too_many);
    let failure = failure.map(|failure| FailureExplained {
        cause: failure.as_str(),
        detail,
    });

    let indexes = named_audiences(catalog, platform);
    let strategies = match is_of_devices {
        true => explain_devices(explainer, platform, &read, time, &mut trace, decided),
        false => {
            let verdicts = decided
                .pop()
                .map_or_else(Verdicts::new, |(_, verdicts)| verdicts);
            explain_strategies(catalog, platform, &read, time, &trace, &verdicts)
        }
    };
    // The ids of several devices have no membership as a whole.
    let no_keys = RequestKeys::of(Keys::new(), Units::default());
    let keys = if is_of_devices { &no_keys } else { &trace.keys };
    let facts = facts_of_keys(catalog, keys);
    let mut audiences = Vec::new();
    for index in &indexes {
        audiences.push(explain_audience(explainer, *index, &facts));
    }
    let mut ids = Vec::new();
    for id in &trace.ids {
        ids.push(explain_traced(catalog, id, &indexes));
    }
    let answer = ExplainedAnswer {
        status: 200,
        content_type: platform.content_type(),
        size_bytes: answered.bytes.len(),
        hex: const_hex::encode(&answered.bytes),
        text: platform.describe_answer(&answered.bytes),
    };
    Explanation {
        platform: platform.name.clone(),
        kind: platform.kind(),
        path: platform.path.clone(),
        body: BodyRead {
            read_as: encoding,
            size_bytes,
            max_bytes: max_body,
        },
        access,
        notes: trace.notes,
        ids,
        log_device: explainer.log_device(keys),
        audiences,
        strategies,
        failure,
        answer,
        unchecked_caps: Vec::new(),
    }
}

fn access_of(platform: &Platform, headers: &HeaderMap, has_headers: bool) -> AccessChecked {
    if platform.access.is_open() {
        if platform.adapter.requires_signature() {
            return AccessChecked::BySignature;
        }
        return AccessChecked::Open;
    }
    if !has_headers {
        return AccessChecked::NotChecked;
    }
    if platform.access.admits(headers) {
        AccessChecked::Admitted
    } else {
        AccessChecked::Refused
    }
}

/// Names of the audiences that the platform's strategies use.
pub fn audiences_of<'a>(catalog: &'a Catalog, platform: &Platform) -> Vec<&'a str> {
    let name = |index: usize| catalog.audiences()[index].name.as_str();
    named_audiences(catalog, platform)
        .into_iter()
        .map(name)
        .collect()
}

/// The indexes of these audiences, in the config's order.
fn named_audiences(catalog: &Catalog, platform: &Platform) -> BTreeSet<usize> {
    let strategies = platform.strategies().map(|index| catalog.strategy(index));
    strategies.flat_map(Strategy::audiences).collect()
}

/// The answers of all audiences about a device with these keys.
fn facts_of_keys(catalog: &Catalog, keys: &RequestKeys) -> Facts<'static> {
    let mut facts = catalog.no_facts(keys);
    catalog.complete(keys, &mut facts);
    facts
}

fn explain_traced(catalog: &Catalog, id: &TracedId, indexes: &BTreeSet<usize>) -> IdExplained {
    let mut audiences = Vec::new();
    if id.found == IdResult::Usable {
        let keys = RequestKeys::of(Keys::from_iter(id.key), Units::default());
        let facts = facts_of_keys(catalog, &keys);
        for index in indexes {
            let mut value = None;
            if let Some(Tier::Value(tier)) = facts.answer_of(*index).map(|answer| answer.tier) {
                value = Some(tier);
            }
            audiences.push(IdInAudience {
                name: catalog.audiences()[*index].name.to_string(),
                answer: Some(facts.membership(*index)),
                tier: value,
            });
        }
    }

    IdExplained {
        path: id.path.clone(),
        kind: id.field.as_str(),
        value: id.value.clone(),
        result: id.found,
        canonical: id
            .key
            .and_then(|key| canonical(&id.value, id.field.kind(), key)),
        md5: id.key.map(|key| const_hex::encode(key.as_bytes())),
        shard: id.key.map(|key| format!("{:04x}", key.shard())),
        log_device: id.log_device.clone(),
        audiences,
    }
}

/// The requested strategies, in the request's order; every deciding strategy if it names none.
fn explain_strategies(
    catalog: &Catalog,
    platform: &Platform,
    read: &Read<'_>,
    at: Option<SystemTime>,
    trace: &Trace,
    verdicts: &Verdicts,
) -> Vec<StrategyExplained> {
    let device = ExplainedDevice::new(catalog, &trace.keys, read.attributes(), at);
    let decided = |(id, index): (String, usize)| {
        let decision = verdicts
            .iter()
            .find(|verdict| verdict.strategy == index)?
            .decision;
        Some(explain_strategy(catalog, id, index, decision, &device))
    };
    if trace.asked.is_empty() {
        return platform.strategy_ids().filter_map(decided).collect();
    }
    let asked = trace
        .asked
        .iter()
        .cloned()
        .filter_map(|(id, index)| match index {
            Some(index) => decided((id, index)),
            None => Some(not_configured(id)),
        });
    asked.collect()
}

/// The strategies' decisions about each id as a device of its own. The trace gets the results of
/// its ids.
fn explain_devices(
    explainer: &Explainer<'_>,
    platform: &Platform,
    read: &Read<'_>,
    at: Option<SystemTime>,
    trace: &mut Trace,
    decided: Vec<(Trace, Verdicts)>,
) -> Vec<StrategyExplained> {
    let mut explained = Vec::new();
    let listed = trace.ids.len();
    trace.ids.clear();
    for (mut device, verdicts) in decided.into_iter().take(listed) {
        let catalog = explainer.catalog;
        let strategies = explain_strategies(catalog, platform, read, at, &device, &verdicts);
        let Some(mut id) = device.ids.pop() else {
            continue;
        };
        id.log_device = explainer.log_device(&device.keys);
        let of_device = |one| StrategyExplained {
            device: Some(id.value.clone()),
            ..one
        };
        explained.extend(strategies.into_iter().map(of_device));
        trace.ids.push(id);
    }
    explained
}

/// A requested strategy id that the config does not map.
fn not_configured(id: String) -> StrategyExplained {
    StrategyExplained {
        id,
        device: None,
        strategy: None,
        exclude: Vec::new(),
        when: None,
        schedule: None,
        cap: None,
        unknown: None,
        buckets: Vec::new(),
        values: Vec::new(),
        shadow: false,
        bid: false,
        reason: NOT_CONFIGURED,
    }
}
