//! Custom platforms: an operator's `.proto`, or JSON, mapped by field names.
//!
//! Field names are resolved once, when the platform is built, into a plan. A request is read in one
//! pass over its bytes along that plan, and a response is written along another. No message is
//! built, only JSON keys are looked up by name, and unmapped fields are skipped.
//!
//! Each file uses only those below it in the table, and the mapping of [`crate::config`].
//!
//! | file | job |
//! |---|---|
//! | `writer`, `response` | responses: their bytes and their plan |
//! | `signature`, `template` | signatures of requests, and the signed text |
//! | `protobuf`, `json` | decoders of requests |
//! | `reading`, `plan` | requests: their values and their plan |
//! | `schema` | names to fields: compiles a `.proto` |
//! | `value` | one value of a request |
//!
//! `profiles/` has mappings of some platforms.

mod json;
mod plan;
mod protobuf;
mod reading;
mod response;
mod schema;
mod signature;
mod template;
mod value;
mod writer;

use std::time::{Duration, SystemTime};

use arrayvec::ArrayVec;
use bytes::Bytes;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DynamicMessage, MessageDescriptor};

use self::plan::{Plan, Planner};
use self::reading::Reading;
use self::response::Response;
use self::schema::Schema;
use self::signature::Signature;
use self::value::{Digits, Value};
use self::writer::Answer;
use super::adapter::{
    Adapter, Admission, CacheTimes, EMPTY, Head, Kind, StrategyIds, Verdicts, is_visible,
};
use super::decider::{Decider, Failure, Id, Lossy, UNREADABLE};
use crate::config::{KindRules, MAX_STRATEGIES, Mistake, PlatformConfig};

/// `kind = "custom"`
pub(super) const KIND: Kind = Kind {
    rules: KindRules {
        word: "custom",
        strategy_id: "1 to 128 visible characters",
        is_strategy_id: |id| is_visible(id, 128),
        is_mapped: true,
    },
    build: |config, ids| Ok(Box::new(Custom::build(config, ids)?)),
};

/// A mapped protocol, with its configuration.
#[derive(Debug)]
pub struct Custom {
    /// The platform's strategy ids as text; numbers in decimal.
    strategies: StrategyIds<Bytes>,
    cache: CacheTimes,
    plan: Plan,
    response: Response,
    signature: Option<Signature>,
    refusal: Bytes,
    /// The message of answers, to show one as text; none for JSON.
    answer: Option<MessageDescriptor>,
    schema_fingerprint: u64,
}

impl Custom {
    /// An adapter for these strategy ids.
    ///
    /// # Errors
    ///
    /// All mistakes in the mapping; empty if mistakes while reading left too little to build.
    fn build(
        config: &PlatformConfig,
        strategies: StrategyIds<String>,
    ) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let schema = Schema::of_config(config, &mut mistakes).filter(|_| config.is_whole);
        let (Some(schema), Some(request), Some(response)) =
            (schema, &config.request, &config.response)
        else {
            return Err(mistakes);
        };
        let strategies = strategies.map(Bytes::from);
        let ids: Vec<&[u8]> = strategies.iter().map(|(id, _)| &**id).collect();
        let response = Response::compile(&schema, response, &ids, &mut mistakes);
        let mut planner = Planner::new(&schema, request, &mut mistakes);
        let signature = config.signature.as_ref();
        let signature = signature.and_then(|signature| Signature::compile(&mut planner, signature));
        if let (Some(named), Some(separator)) = (&request.strategies, &request.strategies_separator)
            && response::contains(&ids, separator)
        {
            let why = "a strategy id of this platform contains strategies_separator";
            planner.mistake(named.mistake(why, "a separator that no id contains"));
        }
        if let Some(named) = &request.strategies {
            planner.check_strategies(named, &ids);
        }
        let plan = planner.finish();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let mut custom = Self {
            strategies,
            cache: config.into(),
            plan,
            response,
            signature,
            refusal: Bytes::new(),
            answer: schema.response().cloned(),
            schema_fingerprint: schema.fingerprint(),
        };
        let error = custom.response.codes.and_then(|codes| codes.error);
        custom.refusal =
            custom.write(&bare(&Value::Absent, error.unwrap_or_else(|| custom.code(false))));
        Ok(custom)
    }

    /// Answers a request. `now` is called only if a signature needs the time.
    fn answer_at(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: &[u8],
        decider: &mut dyn Decider,
        now: impl FnOnce() -> Duration,
    ) -> Result<Bytes, Failure> {
        if body.is_empty() {
            decider.note(UNREADABLE, &EMPTY);
            return Err(Failure::BadBody);
        }
        let mut reading = Reading::new(&self.plan, decider.wants_skipped());
        let read = if self.response.is_json { json::read } else { protobuf::read };
        if read(body, &mut reading).is_err() {
            decider.note(UNREADABLE, &self.unreadable());
            return Err(Failure::BadBody);
        }
        let request_id = reading.value(self.plan.request_id);
        note(&reading, decider);
        if reading.value(self.plan.ping).is_true() {
            decider.note("ping", &"yes");
            return Ok(self.write(&bare(request_id, self.code(true))));
        }
        if let Some(signature) = &self.signature {
            let is_captured = admission == Admission::Granted;
            if is_captured && !signature.is_in(head) {
                decider.note("signature", &"not checked: its header or query was not given");
            } else if let Err(failure) = signature.check(&reading, head, body, now) {
                let is_late = is_captured && failure == Failure::BadTimestamp;
                if !signature.is_observed && !is_late {
                    return Err(failure);
                }
                decider.report_failure(failure);
            }
        }
        if let (Some(list), Some(skipped)) = (&self.plan.list, &reading.skipped) {
            for why in skipped {
                decider.skipped(&list.path, why);
            }
        }
        for found in reading.ids() {
            let (mut digits, path, field) = (Digits::new(), found.path, found.field);
            decider.id(Id { path, field, value: found.value.text(&mut digits) });
        }
        Ok(self.decide(request_id, &reading.asked, None, decider))
    }

    /// The message about an unreadable body.
    const fn unreadable(&self) -> &'static str {
        if self.response.is_json {
            "it is not JSON, or a mapped field has another type"
        } else {
            "it is not a request_message, or a mapped field has another type"
        }
    }

    /// A verdict for each requested strategy; for all configured ones if the request names none.
    fn decide<'a>(
        &'a self,
        request_id: &Value<'a>,
        asked: &[Value<'a>],
        code: Option<i64>,
        decider: &mut dyn Decider,
    ) -> Bytes {
        let mut verdicts = Verdicts::new(decider);
        let mut given: Vec<(Value<'_>, bool)> =
            Vec::with_capacity(asked.len().max(self.strategies.iter().len()));
        let mut is_accepted = [false; MAX_STRATEGIES];
        // `known`: index of a configured id, and its strategy.
        let mut give = |asked: Option<&[u8]>, known: Option<(usize, usize)>, value: Value<'a>| {
            if let Some(id) = asked {
                verdicts.requested_strategy(&Lossy(id), known.map(|(_, strategy)| strategy));
            }
            let bids = known.is_some_and(|(_, strategy)| verdicts.bids(strategy));
            if let Some((index, _)) = known {
                is_accepted[index] = bids;
            }
            given.push((value, bids));
        };
        let ids = self.strategies.iter().enumerate();
        for value in asked {
            let mut digits = Digits::new();
            let text = value.text(&mut digits);
            let known = ids.clone().find(|(_, (id, _))| *id == text);
            give(Some(text), known.map(|(index, (_, strategy))| (index, strategy)), value.clone());
        }
        if asked.is_empty() {
            for (index, (id, strategy)) in ids {
                give(None, Some((index, strategy)), Value::Bytes(id));
            }
        }
        let ids = self.strategies.iter().zip(is_accepted);
        let accepted: ArrayVec<&[u8], MAX_STRATEGIES> =
            ids.filter(|(_, is_accepted)| *is_accepted).map(|((id, _), _)| &**id).collect();
        let bids = !accepted.is_empty();
        let cache_seconds = self.cache.of(bids, &verdicts);
        let code = code.unwrap_or_else(|| self.code(bids));
        self.write(&Answer {
            request_id,
            code,
            verdicts: &given,
            accepted: &accepted,
            cache_seconds,
        })
    }

    fn code(&self, bids: bool) -> i64 {
        self.response.codes.map_or(0, |codes| if bids { codes.bid } else { codes.no_bid })
    }

    fn write(&self, answer: &Answer<'_, '_>) -> Bytes {
        self.response.write(answer).into()
    }
}

impl Adapter for Custom {
    fn kind(&self) -> &'static str {
        KIND.rules.word
    }

    fn answer(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: Bytes,
        decider: &mut dyn Decider,
    ) -> Result<Bytes, Failure> {
        let since_1970 =
            || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.answer_at(admission, head, &body, decider, since_1970)
    }

    fn unavailable(&self, decider: &mut dyn Decider) -> Bytes {
        let code = self.response.codes.and_then(|codes| codes.error);
        self.decide(&Value::Absent, &[], code, decider)
    }

    /// The error code, or else the no-bid code, without strategies.
    fn refusal(&self) -> Bytes {
        self.refusal.clone()
    }

    fn content_type(&self) -> Option<&'static str> {
        Some(if self.response.is_json { "application/json" } else { "application/x-protobuf" })
    }

    fn strategy_ids(&self) -> Vec<(String, usize)> {
        self.strategies.texts(|id| String::from_utf8_lossy(id).into_owned())
    }

    fn describe_answer(&self, answer: &[u8]) -> Result<String, prost::DecodeError> {
        let Some(message) = &self.answer else {
            return Ok(String::from_utf8_lossy(answer).into_owned());
        };
        let message = DynamicMessage::decode(message.clone(), answer)?;
        Ok(message.to_text_format_with_options(&FormatOptions::new().pretty(true)))
    }

    fn schema_fingerprint(&self) -> u64 {
        self.schema_fingerprint
    }
}

/// An answer without strategies.
const fn bare<'s>(request_id: &'s Value<'s>, code: i64) -> Answer<'s, 's> {
    Answer { request_id, code, verdicts: &[], accepted: &[], cache_seconds: None }
}

/// Records further fields for an explanation.
fn note(reading: &Reading<'_, '_>, decider: &mut dyn Decider) {
    let mut digits = Digits::new();
    let request_id = reading.value(reading.plan.request_id);
    if !request_id.is_absent() {
        decider.note("request_id", &Lossy(request_id.text(&mut digits)));
    }
}

#[cfg(test)]
mod tests;
