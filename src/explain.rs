//! Explains the answer to one captured request: the ids it carries and what became of each, what each audience says, what each
//! strategy decides, and the bytes that are answered. Of a single id it says the same, but for the bytes.
//!
//! The body goes through [`Platform::respond`], the very function that answers the platform, so what is explained is what is served.
//! Nothing is counted and nothing is logged. An explanation shows the ids to whoever handed the body in, and to nobody else; no secret is
//! ever in it.
//!
//! | file | job |
//! |---|---|
//! | `id` | a single id |
//! | `input` | hex and base64 to bytes |
//! | `trace` | the decider that keeps what it sees |
//! | `words` | why, in sentences |
//! | `text` | an explanation for a terminal |
//!
//! This module does *not* load snapshots or read sockets: it is told what is served.

mod id;
pub mod input;
mod text;
mod trace;
mod words;

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use std::fmt;

use crate::catalog::{Audience, Catalog};
use crate::platform::{Admission, Failure, Head, IdReader, Platform};
use crate::strategy::{Decision, Membership, Outcome};
use crate::sync::{SyncHistory, now_unix_seconds};
use id::canonical;
pub use id::{IdExplanation, explain_id};
use input::Encoding;
use rtad_core::device::DeviceKey;
use trace::{Found, Note, Trace, TracedId};

/// A request as somebody captured it.
#[derive(Clone)]
pub struct Captured<'a> {
    /// What came with its body.
    pub head: Head<'a>,
    /// Whether the headers are all that were sent: only then do they say whether the caller is let in.
    pub has_headers: bool,
    /// The body's bytes.
    pub body: Bytes,
    /// What they were given in.
    pub encoding: Encoding,
    /// `server.max_body`.
    pub max_body: usize,
}

/// Hides the body: it holds ids.
impl fmt::Debug for Captured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured").field("encoding", &self.encoding).finish_non_exhaustive()
    }
}

/// Why a request gets the answer it gets. Read as JSON or, by `Display`, as text.
#[derive(Debug, Serialize)]
pub struct Explanation {
    platform: String,
    kind: &'static str,
    path: String,
    body: BodyRead,
    access: AccessChecked,
    notes: Vec<Note>,
    ids: Vec<IdExplained>,
    audiences: Vec<AudienceExplained>,
    strategies: Vec<StrategyExplained>,
    failure: Option<FailureExplained>,
    answer: Answer,
    conclusion: String,
}

#[derive(Debug, Serialize)]
struct BodyRead {
    read_as: Encoding,
    size_bytes: usize,
}

/// What the headers say of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum AccessChecked {
    /// The platform has no headers configured.
    Open,
    /// There are some, but the captured request came without its own.
    NotChecked,
    Admitted,
    Refused,
}

#[derive(Debug, Serialize)]
struct IdExplained {
    path: String,
    kind: &'static str,
    /// As received; what is no UTF-8 in it is replaced.
    value: String,
    result: Found,
    /// Why it does not decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    /// What is hashed, if that is not the value itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
    /// Four hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
    /// What each audience says of this id alone; of one whose key decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audiences: Vec<IdInAudience>,
}

#[derive(Debug, Serialize)]
struct IdInAudience {
    name: String,
    #[serde(serialize_with = "as_word")]
    answer: Option<Membership>,
}

#[derive(Debug, Serialize)]
struct AudienceExplained {
    name: String,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<SnapshotExplained>,
    /// Of the whole device; null if it was not asked.
    #[serde(serialize_with = "as_word")]
    answer: Option<Membership>,
    /// Its place in the catalog.
    #[serde(skip)]
    place: usize,
}

#[derive(Debug, Serialize)]
struct SnapshotExplained {
    generation: u64,
    keys: u64,
    expected_fpr: f64,
    age_seconds: u64,
}

#[derive(Debug, Serialize)]
struct StrategyExplained {
    /// The platform's own id of it.
    id: String,
    /// Null if the id is not configured.
    strategy: Option<String>,
    exclude: Vec<String>,
    include: Vec<String>,
    bid: bool,
    /// That of a decision, or `not_configured`.
    reason: &'static str,
    because: String,
}

#[derive(Debug, Serialize)]
struct FailureExplained {
    cause: &'static str,
    because: String,
}

#[derive(Debug, Serialize)]
struct Answer {
    status: u16,
    content_type: Option<&'static str>,
    size_bytes: usize,
    hex: String,
    text: String,
}

fn as_word<S: Serializer>(answer: &Option<Membership>, serializer: S) -> Result<S::Ok, S::Error> {
    answer.map(words::membership).serialize(serializer)
}

/// Explains what `platform` is answered to a captured request. Costs what the answer costs, and a look-up for each id and audience.
///
/// # Panics
///
/// If the platform is not one of the catalog's.
pub fn explain(
    catalog: &Catalog,
    platform: &Platform,
    ids: &IdReader,
    history: &SyncHistory,
    captured: Captured<'_>,
) -> Explanation {
    let Captured { head, has_headers, body, encoding, max_body } = captured;
    let size_bytes = body.len();
    let access = match (platform.access.is_open(), has_headers) {
        (true, _) => AccessChecked::Open,
        (false, false) => AccessChecked::NotChecked,
        (false, true) if platform.access.admits(head.headers) => AccessChecked::Admitted,
        (false, true) => AccessChecked::Refused,
    };
    let admission = if has_headers { Admission::ByHeaders } else { Admission::Granted };
    let body = if size_bytes > max_body { Err(Failure::TooLarge) } else { Ok(body) };
    let mut trace = Trace::new(catalog, ids);
    let answered = platform.respond(admission, &head, body, &mut trace);
    let failure = answered.failure.or_else(|| trace.too_many_ids.then_some(Failure::TooManyIds));
    let failure = failure.map(|failure| FailureExplained {
        cause: failure.as_str(),
        because: words::failure(failure, trace.unreadable.as_deref(), size_bytes, max_body),
    });

    let places = named_audiences(catalog, platform);
    let asked = |keys: &[DeviceKey]| {
        places
            .iter()
            .map(|place| &catalog.audiences()[*place])
            .map(|audience| audience.membership(keys))
            .collect()
    };
    let keys = trace.request_keys.keys();
    let memberships: Vec<Membership> = asked(keys);
    let audience = |(place, membership): (&usize, &Membership)| {
        let was_asked = !keys.is_empty();
        explain_audience(catalog, *place, was_asked.then_some(*membership), history)
    };
    let audiences: Vec<AudienceExplained> = places.iter().zip(&memberships).map(audience).collect();
    let ids: Vec<IdExplained> =
        trace.ids.iter().map(|id| explain_traced(id, &audiences, asked)).collect();
    let strategies = explain_strategies(
        catalog,
        platform,
        &trace,
        &words::Facts {
            ids: &ids,
            audiences: &audiences,
            failure: failure.as_ref().map(|failure| failure.cause),
        },
    );
    let notes = trace.notes();
    let answer = Answer {
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
        body: BodyRead { read_as: encoding, size_bytes },
        access,
        conclusion: words::conclusion(failure.as_ref(), &strategies, &notes),
        notes,
        ids,
        audiences,
        strategies,
        failure,
        answer,
    }
}

/// Names of the audiences that the platform's strategies ask.
pub fn audiences_of<'a>(catalog: &'a Catalog, platform: &Platform) -> Vec<&'a str> {
    let name = |place: usize| catalog.audiences()[place].name.as_str();
    named_audiences(catalog, platform).into_iter().map(name).collect()
}

/// Their places, in the config's order.
fn named_audiences(catalog: &Catalog, platform: &Platform) -> BTreeSet<usize> {
    let strategies = platform.strategies().map(|place| &catalog.strategies()[place]);
    strategies
        .flat_map(|strategy| strategy.exclude.iter().chain(&strategy.include))
        .copied()
        .collect()
}

fn explain_audience(
    catalog: &Catalog,
    place: usize,
    answer: Option<Membership>,
    history: &SyncHistory,
) -> AudienceExplained {
    let audience = &catalog.audiences()[place];
    let age = audience.age_seconds(now_unix_seconds());
    let snapshot = audience.snapshot.as_ref().map(|snapshot| {
        let manifest = snapshot.manifest();
        SnapshotExplained {
            generation: manifest.generation(),
            keys: manifest.keys(),
            expected_fpr: manifest.expected_fpr(),
            age_seconds: age.unwrap_or(0),
        }
    });
    AudienceExplained {
        name: audience.name.to_string(),
        available: audience.available().is_some(),
        unavailable_because: unavailable_because(audience, age, history),
        snapshot,
        answer,
        place,
    }
}

fn unavailable_because(
    audience: &Audience,
    age: Option<u64>,
    history: &SyncHistory,
) -> Option<String> {
    if audience.available().is_some() {
        return None;
    }
    if audience.is_expired(now_unix_seconds()) {
        return Some("its snapshot has expired".to_owned());
    }
    let overlay = audience.snapshot.as_ref().map(|snapshot| snapshot.overlay());
    if let Some(reason) = overlay.and_then(|overlay| overlay.not_served(now_unix_seconds())) {
        return Some(format!("it is {reason}"));
    }
    if let (Some(age), Some(limit)) = (age, audience.max_age) {
        let (age, limit) = (words::duration(age), words::duration(limit.as_secs()));
        return Some(format!("its snapshot is {age} old, and max_age is {limit}"));
    }
    let error = history.last(&audience.name).and_then(|last| last.error);
    Some(error.unwrap_or_else(|| "no snapshot of it has been loaded yet".to_owned()))
}

fn explain_traced(
    id: &TracedId,
    audiences: &[AudienceExplained],
    asked: impl FnOnce(&[DeviceKey]) -> Vec<Membership>,
) -> IdExplained {
    let decides =
        id.found == Found::Usable && audiences.iter().any(|audience| audience.answer.is_some());
    let memberships = id.key.filter(|_| decides).map_or_else(Vec::new, |key| asked(&[key]));
    let in_audience = |(audience, answer): (&AudienceExplained, Membership)| IdInAudience {
        name: audience.name.clone(),
        answer: Some(answer),
    };
    IdExplained {
        path: id.path.clone(),
        kind: id.field.as_str(),
        value: id.value.clone(),
        result: id.found,
        because: words::id(id.found, id.field.kind),
        canonical: id.key.and_then(|key| canonical(&id.value, id.field.kind, key)),
        md5: id.key.map(|key| const_hex::encode(key.as_bytes())),
        shard: id.key.map(|key| format!("{:04x}", key.shard())),
        audiences: audiences.iter().zip(memberships).map(in_audience).collect(),
    }
}

/// The strategies that the request names, in its order; if it names none, all that decided.
fn explain_strategies(
    catalog: &Catalog,
    platform: &Platform,
    trace: &Trace<'_>,
    facts: &words::Facts<'_>,
) -> Vec<StrategyExplained> {
    let decided = |(id, place): (String, usize)| {
        Some(explain_strategy(catalog, id, place, trace.decisions[place]?, facts))
    };
    // What a request names that could not be answered is not what decides.
    if trace.asked.is_empty()
        || facts.failure.is_some_and(|cause| cause != Failure::TooManyIds.as_str())
    {
        return platform.strategy_ids().into_iter().filter_map(decided).collect();
    }
    let asked = trace.asked.iter().cloned().filter_map(|(id, place)| match place {
        Some(place) => decided((id, place)),
        None => Some(words::not_configured(id)),
    });
    asked.collect()
}

fn explain_strategy(
    catalog: &Catalog,
    id: String,
    place: usize,
    decision: Decision,
    facts: &words::Facts<'_>,
) -> StrategyExplained {
    let strategy = &catalog.strategies()[place];
    let names = |places: &[usize]| -> Vec<String> {
        places.iter().map(|place| catalog.audiences()[*place].name.to_string()).collect()
    };
    StrategyExplained {
        id,
        strategy: Some(strategy.name.clone()),
        exclude: names(&strategy.exclude),
        include: names(&strategy.include),
        bid: decision.outcome == Outcome::Bid,
        reason: decision.reason.as_str(),
        because: facts.because(strategy, decision),
    }
}

/// The reasons are those of the decisions, and one of explanations alone.
const NOT_CONFIGURED: &str = "not_configured";

#[cfg(test)]
mod tests;
