//! Any other platform: an operator's own `.proto`, or JSON, mapped by the names of its fields.
//!
//! Names are looked up once, when the config is read, and become a plan; a request is one walk over its bytes along that plan, and a
//! response one more over another. No message is built in between, nothing is looked up by name but JSON's own keys, and what is not
//! mapped is skipped.
//!
//! | file | job |
//! |---|---|
//! | `mapping` | what the config says, by name |
//! | `schema` | names to fields: compiles a `.proto` |
//! | `plan`, `reading`, `value` | what is read out of a request, and what was |
//! | `protobuf`, `json` | the walks |
//! | `signature`, `template` | who has signed a request |
//! | `response`, `writer` | what goes into a response |
//!
//! It knows no platform: profiles of some are in `profiles/`.

mod json;
mod mapping;
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

pub use mapping::{
    CodeMapping, IdListMapping, Mapping, Mistake, Named, Place, RequestMapping, ResponseMapping,
    SignatureMapping, VerdictsMapping,
};
pub use schema::{Schema, compile as compile_schema, messages};
pub use signature::{Algorithm, HexCase, TimestampUnit};

use self::plan::{Plan, Planner};
use self::reading::Reading;
use self::response::Response;
use self::signature::Signature;
use self::value::{Digits, Value};
use self::writer::Answer;
use super::{
    Admission, CacheTimes, Decider, Failure, Head, Id, Lossy, MAX_STRATEGIES, StrategyIds, UNREADABLE,
    Verdicts,
};

/// A mapped protocol, and what the config says of it.
#[derive(Debug)]
pub struct Custom {
    /// The platform's strategy ids as text; numbers in decimal.
    pub(super) strategies: StrategyIds<Bytes>,
    cache: CacheTimes,
    plan: Plan,
    response: Response,
    signature: Option<Signature>,
    refusal: Bytes,
    /// What an answer is, for whoever explains one; none for JSON, which explains itself.
    answer: Option<MessageDescriptor>,
}

impl Custom {
    /// An adapter for these strategy ids.
    ///
    /// # Errors
    ///
    /// Everything in the mapping that cannot be.
    pub fn compile(
        mapping: &Mapping,
        strategies: StrategyIds<Bytes>,
        cache: CacheTimes,
    ) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let ids: Vec<&[u8]> = strategies.iter().map(|(id, _)| &**id).collect();
        let response = Response::compile(&mapping.schema, &mapping.response, &ids, &mut mistakes);
        let mut planner = Planner::new(&mapping.schema, &mapping.request, &mut mistakes);
        let signature = mapping.signature.as_ref();
        let signature = signature.and_then(|signature| Signature::compile(&mut planner, signature));
        if let (Some(named), Some(separator)) =
            (&mapping.request.strategies, &mapping.request.strategies_separator)
            && strategies
                .iter()
                .any(|(id, _)| id.windows(separator.len()).any(|part| part == separator.as_bytes()))
        {
            let why = "a strategy id of this platform has strategies_separator in it";
            planner.mistake(named.mistake(why, "a separator that no id has"));
        }
        if let Some(named) = &mapping.request.strategies {
            planner.check_asked(named, &ids);
        }
        let plan = planner.finish();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let answer = mapping.schema.response().cloned();
        let refusal = Bytes::new();
        let mut custom = Self { strategies, cache, plan, response, signature, refusal, answer };
        let error = custom.response.codes.and_then(|codes| codes.error);
        custom.refusal = custom.write(&bare(&Value::Absent, error.unwrap_or_else(|| custom.code(false))));
        Ok(custom)
    }

    /// Answers a request; see [`super::Platform::answer`].
    pub(super) fn answer(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: Bytes,
        decider: &mut impl Decider,
    ) -> Result<Bytes, Failure> {
        let since_1970 = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.answer_at(admission, head, &body, decider, since_1970)
    }

    /// The same at a time that is asked for only if a signature needs it.
    fn answer_at(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: &[u8],
        decider: &mut impl Decider,
        now: impl FnOnce() -> Duration,
    ) -> Result<Bytes, Failure> {
        let mut reading = Reading::new(&self.plan, decider.wants_skipped());
        let read = if self.response.is_json { json::read } else { protobuf::read };
        if read(body, &mut reading).is_err() {
            decider.note(UNREADABLE, &self.format());
            return Err(Failure::BadBody);
        }
        let request_id = reading.value(self.plan.request_id);
        note(&reading, decider);
        if reading.value(self.plan.ping).is_true() {
            decider.note("ping", &"yes");
            return Ok(self.write(&bare(request_id, self.code(true))));
        }
        if let Some(signature) = &self.signature
            && let Err(failure) = signature.check(&reading, head, body, now)
        {
            if admission == Admission::ByHeaders && !signature.is_observed {
                return Err(failure);
            }
            decider.observed(failure);
        }
        if let (Some(list), Some(skipped)) = (&self.plan.list, &reading.skipped) {
            for why in skipped {
                decider.skipped(&list.path, why);
            }
        }
        for found in &reading.ids {
            let (mut digits, path, field) = (Digits::new(), found.path, found.field);
            decider.id(Id { path, field, value: found.value.text(&mut digits) });
        }
        Ok(self.about(request_id, &reading.asked, None, decider))
    }

    /// The answer when there is no request to go by; see [`super::Platform::unavailable`].
    pub(super) fn unavailable(&self, decider: &mut impl Decider) -> Bytes {
        let code = self.response.codes.and_then(|codes| codes.error);
        self.about(&Value::Absent, &[], code, decider)
    }

    /// The error's code, or else that of no bid, and no strategy.
    pub(super) fn refusal(&self) -> Bytes {
        self.refusal.clone()
    }

    /// What a body must be, in words.
    const fn format(&self) -> &'static str {
        if self.response.is_json {
            "it is not JSON, or a mapped field is not of its kind"
        } else {
            "it is not of the request_message, or a mapped field is not of its type"
        }
    }

    /// The bodies' media type.
    pub(super) const fn content_type(&self) -> &'static str {
        if self.response.is_json { "application/json" } else { "application/x-protobuf" }
    }

    /// See [`super::Platform::describe_answer`].
    pub(super) fn describe_answer(&self, answer: &[u8]) -> Result<String, prost::DecodeError> {
        let Some(message) = &self.answer else { return Ok(String::from_utf8_lossy(answer).into_owned()) };
        let message = DynamicMessage::decode(message.clone(), answer)?;
        Ok(message.to_text_format_with_options(&FormatOptions::new().pretty(true)))
    }

    /// A verdict for each strategy asked about; if none is, for all that are configured.
    fn about<'a>(
        &'a self,
        request_id: &Value<'a>,
        asked: &[Value<'a>],
        code: Option<i64>,
        decider: &mut impl Decider,
    ) -> Bytes {
        let mut verdicts = Verdicts::new(decider);
        let mut given: Vec<(Value<'_>, bool)> = Vec::with_capacity(asked.len().max(self.strategies.0.len()));
        let mut is_accepted = [false; MAX_STRATEGIES];
        let mut give = |asked: Option<&[u8]>, place: Option<usize>, value: Value<'a>| {
            let strategy = place.map(|place| self.strategies.0[place].1);
            if let Some(id) = asked {
                verdicts.asked(&Lossy(id), strategy);
            }
            let bids = strategy.is_some_and(|strategy| verdicts.bids(strategy));
            if let Some(place) = place {
                is_accepted[place] = bids;
            }
            given.push((value, bids));
        };
        for value in asked {
            let mut digits = Digits::new();
            let text = value.text(&mut digits);
            let place = self.strategies.0.iter().position(|(id, _)| id == text);
            give(Some(text), place, value.clone());
        }
        if asked.is_empty() {
            for (place, (id, _)) in self.strategies.0.iter().enumerate() {
                give(None, Some(place), Value::Bytes(id));
            }
        }
        let ids = self.strategies.0.iter().zip(is_accepted);
        let accepted: ArrayVec<&[u8], MAX_STRATEGIES> =
            ids.filter(|(_, is_accepted)| *is_accepted).map(|((id, _), _)| &**id).collect();
        let bids = !accepted.is_empty();
        let cache_seconds = self.cache.of(bids, &verdicts);
        let code = code.unwrap_or_else(|| self.code(bids));
        self.write(&Answer { request_id, code, verdicts: &given, accepted: &accepted, cache_seconds })
    }

    fn code(&self, bids: bool) -> i64 {
        self.response.codes.map_or(0, |codes| if bids { codes.bid } else { codes.no_bid })
    }

    fn write(&self, answer: &Answer<'_, '_>) -> Bytes {
        self.response.write(answer).into()
    }
}

/// An answer about no strategy.
const fn bare<'s>(request_id: &'s Value<'s>, code: i64) -> Answer<'s, 's> {
    Answer { request_id, code, verdicts: &[], accepted: &[], cache_seconds: None }
}

/// Tells the decider what else is of interest to whoever explains a request.
fn note(reading: &Reading<'_, '_>, decider: &mut impl Decider) {
    let mut digits = Digits::new();
    let request_id = reading.value(reading.plan.request_id);
    if !request_id.is_absent() {
        decider.note("request_id", &Lossy(request_id.text(&mut digits)));
    }
}

#[cfg(test)]
mod tests;
