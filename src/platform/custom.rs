//! Any other platform: an operator's own `.proto`, or JSON, mapped by the names of its fields.
//!
//! Names are looked up once, when the platform is built, and become a plan; a request is one walk
//! over its bytes along that plan, and a response one more over another. No message is built in
//! between, nothing is looked up by name but JSON's own keys, and fields that are not mapped are
//! skipped.
//!
//! Each file uses only those below it in the table, and the mapping as [`crate::config`] has it.
//!
//! | file | job |
//! |---|---|
//! | `writer`, `response` | responses: their bytes, and the plan of them |
//! | `signature`, `template` | signatures of requests, and the text that is signed |
//! | `protobuf`, `json` | the walks over requests |
//! | `reading`, `plan` | requests: their values, and the plan of reading them |
//! | `schema` | names to fields: compiles a `.proto` |
//! | `value` | one value of a request |
//!
//! It knows no platform: profiles of some are in `profiles/`.

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
    Adapter, Admission, CacheTimes, Head, Kind, StrategyIds, Verdicts, is_visible,
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

/// A mapped protocol, and what the config says of it.
#[derive(Debug)]
pub struct Custom {
    /// The platform's strategy ids as text; numbers in decimal.
    strategies: StrategyIds<Bytes>,
    cache: CacheTimes,
    plan: Plan,
    response: Response,
    signature: Option<Signature>,
    refusal: Bytes,
    /// The message of answers, to describe one; none for JSON, which describes itself.
    answer: Option<MessageDescriptor>,
    schema_fingerprint: u64,
}

impl Custom {
    /// An adapter for these strategy ids.
    ///
    /// # Errors
    ///
    /// Everything in the mapping that cannot be; nothing at all if reading it has found mistakes
    /// that leave nothing to look up.
    fn build(
        config: &PlatformConfig,
        strategies: StrategyIds<String>,
    ) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let mapping = config.custom.as_ref().ok_or_else(Vec::new)?;
        let schema = Schema::of_config(mapping, &mut mistakes).filter(|_| mapping.is_whole);
        let Some(schema) = schema else { return Err(mistakes) };
        let strategies = strategies.map(Bytes::from);
        let ids: Vec<&[u8]> = strategies.iter().map(|(id, _)| &**id).collect();
        let response = Response::compile(&schema, &mapping.response, &ids, &mut mistakes);
        let mut planner = Planner::new(&schema, &mapping.request, &mut mistakes);
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

    /// Answers a request. The time is asked for only if a signature needs it.
    fn answer_at(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: &[u8],
        decider: &mut dyn Decider,
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
            decider.report_failure(failure);
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

    /// The fault of a body that does not parse, in words.
    const fn format(&self) -> &'static str {
        if self.response.is_json {
            "it is not JSON, or a mapped field is not of its kind"
        } else {
            "it is not of the request_message, or a mapped field is not of its type"
        }
    }

    /// A verdict for each strategy asked about; if none is, for all that are configured.
    fn about<'a>(
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
        // `known` is the index of a configured id, and its strategy.
        let mut give = |asked: Option<&[u8]>, known: Option<(usize, usize)>, value: Value<'a>| {
            if let Some(id) = asked {
                verdicts.asked(&Lossy(id), known.map(|(_, strategy)| strategy));
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
        self.about(&Value::Absent, &[], code, decider)
    }

    /// The error's code, or else that of no bid, and no strategy.
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

/// An answer about no strategy.
const fn bare<'s>(request_id: &'s Value<'s>, code: i64) -> Answer<'s, 's> {
    Answer { request_id, code, verdicts: &[], accepted: &[], cache_seconds: None }
}

/// Tells the decider what else is of interest to whoever explains a request.
fn note(reading: &Reading<'_, '_>, decider: &mut dyn Decider) {
    let mut digits = Digits::new();
    let request_id = reading.value(reading.plan.request_id);
    if !request_id.is_absent() {
        decider.note("request_id", &Lossy(request_id.text(&mut digits)));
    }
}

#[cfg(test)]
mod tests;
