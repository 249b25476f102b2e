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
//! | `writer`, `response`, `codes` | responses: their bytes and their plan |
//! | `signature`, `template` | signatures of requests, and the signed text |
//! | `form` | decoder of requests in forms, which may hold JSON |
//! | `protobuf`, `json` | decoders of other requests |
//! | `reading`, `plan` | requests: their values and their plan |
//! | `schema` | names to fields: compiles a `.proto` |
//!
//! `docs/examples/platforms` has mappings of some platforms.

mod codes;
mod form;
mod json;
mod plan;
mod protobuf;
mod reading;
mod response;
mod schema;
mod signature;
mod template;
mod writer;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use arrayvec::ArrayVec;
use bytes::Bytes;
use prost_reflect::MessageDescriptor;
use rtad_core::clock;

use self::codes::CodeCase;
use self::plan::{Planner, RequestPlan};
use self::reading::Reading;
use self::response::Response;
use self::schema::Schema;
use self::signature::Signature;
use self::writer::{AnswerValues, StrategyAnswer};
use super::adapter::{
    Adapter, Admission, CacheTimes, Kind, Request, StrategyValues, ValueTable, Verdict, bids,
    is_visible, verdict_of,
};
use super::read::{AskedList, Digits, Failure, Purpose, Read, ReadError, StrategyIds, Value};
use crate::config::{BodyFormat, KindRules, MAX_STRATEGIES, Mistake, PlatformConfig};
use crate::strategy::{Attribute, BidValue, Tag};

/// `kind = "custom"`
pub(super) const KIND: Kind = Kind {
    rules: KindRules {
        word: "custom",
        strategy_id: "1 to 128 visible characters",
        is_strategy_id: |id| is_visible(id, 128),
        sends: |_| false,
        carries: |_| false,
        value_bounds: &[],
        least_cache: Duration::ZERO,
        most_tag_number: u32::MAX,
        is_mapped: true,
    },
    build: |config, ids, values, tags| Ok(Box::new(Custom::build(config, ids, values, tags)?)),
    example: include_str!("custom/example.toml"),
};

/// A mapped protocol, with its configuration.
#[derive(Debug)]
pub struct Custom {
    /// The platform's strategy ids as text; numbers in decimal.
    strategies: StrategyIds,
    cache: CacheTimes,
    plan: RequestPlan,
    body: BodyFormat,
    response: Response,
    values: ValueTable<BidValue>,
    tags: Vec<Tag>,
    signature: Option<Signature>,
    refusal: Bytes,
    /// The message of answers, to show one as text; none for JSON.
    answer: Option<MessageDescriptor>,
    schema_fingerprint: u64,
}

impl Custom {
    /// An adapter for these strategy ids, the values of all strategies, and the tags of buckets
    /// that its strategies read.
    ///
    /// # Errors
    ///
    /// All mistakes in the mapping; empty if mistakes while reading left too little to build.
    fn build(
        config: &PlatformConfig,
        strategies: Vec<(String, usize)>,
        values: &StrategyValues,
        tags: &[Tag],
    ) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let schema = Schema::of_config(config, &mut mistakes);
        if !config.is_whole {
            return Err(mistakes);
        }
        let (Some(schema), Some(body), Some(request), Some(response)) =
            (schema, config.body, &config.request, &config.response)
        else {
            return Err(mistakes);
        };

        let ids: Vec<&[u8]> = strategies.iter().map(|(id, _)| id.as_bytes()).collect();
        let indexes: BTreeSet<usize> = strategies.iter().map(|(_, index)| *index).collect();
        let mut mapped: Vec<BidValue> = Vec::new();
        for index in indexes {
            mapped.extend(values.get(index).into_iter().flatten());
        }
        let response = Response::compile(&schema, response, &ids, &mapped, tags, &mut mistakes);

        let mut planner = Planner::new(&schema, request, &mut mistakes);
        let is_form = body == BodyFormat::Form;
        let signature = match &config.signature {
            Some(signature) => Signature::compile(&mut planner, signature, is_form),
            None => None,
        };

        if let (Some(named), Some(separator)) = (&request.strategies, &request.strategies_separator)
            && response::contains(&ids, separator)
        {
            let why = "a strategy id of this platform contains strategies_separator";
            planner.mistake(named.mistake(why, "a separator that no id contains"));
        }
        if let Some(named) = &request.strategies {
            planner.check_strategies(named, &ids);
        }

        let mut plan = planner.finish();
        plan.answers_ids = response.lists_ids;
        if !mistakes.is_empty() {
            return Err(mistakes);
        }

        let strategies = StrategyIds::new(strategies);
        let values = ValueTable::new(&strategies, values, |_, value| Some(*value));
        let mut custom = Self {
            strategies,
            cache: config.into(),
            plan,
            body,
            response,
            values,
            tags: tags.to_vec(),
            signature,
            refusal: Bytes::new(),
            answer: schema.response().cloned(),
            schema_fingerprint: schema.fingerprint(),
        };

        let refusal = bare(
            &Value::Absent,
            CodeCase {
                is_bid: false,
                is_failure: true,
            },
        );
        custom.refusal = custom.response.write(&refusal).into();
        Ok(custom)
    }

    /// Reads a request. `now` is called only if a signature needs the time.
    fn read_at<'a>(
        &'a self,
        request: &Request<'a>,
        read: &mut Read<'a>,
        now: impl FnOnce() -> Duration,
    ) -> Result<(), ReadError> {
        let Request {
            admission,
            head,
            body,
        } = *request;

        let query = match head.query {
            Some(query) if self.body == BodyFormat::Form => query,
            _ => "",
        };
        if body.is_empty() && query.is_empty() {
            return Err(ReadError::Empty);
        }

        let mut reading = Reading::new(&self.plan, read);
        let decoded = match self.body {
            BodyFormat::Protobuf => protobuf::read(body, &mut reading),
            BodyFormat::Json => json::read(body, &mut reading),
            BodyFormat::Form => form::read(query.as_bytes(), body, &mut reading),
        };
        decoded.map_err(|_| ReadError::Mapped(self.expected()))?;

        reading.read.request_id = reading.value(self.plan.request_id).clone();

        if reading.value(self.plan.ping).is_true() {
            read.note("ping", "yes".into());
            read.purpose = Purpose::Ping;
            // A ping decides nothing.
            read.ids.clear();
            read.asked = AskedList::default();
            return Ok(());
        }

        for (attribute, slot) in &self.plan.attributes {
            let value = reading.value(Some(*slot)).clone();
            if *attribute != Attribute::Os {
                reading.read.attributes[*attribute as usize] = value;
                continue;
            }

            if let Some(word) = self.plan.os(&value) {
                reading.read.attributes[*attribute as usize] = word.into();
            } else if !is_blank(&value) {
                reading.read.has_unknown_os = true;
                reading.read.note("os, not known", value);
            }
        }

        if let Some(signature) = &self.signature {
            let is_captured = admission == Admission::Granted;
            if is_captured && !signature.is_in(&head) {
                let note = "not checked: its header or query was not given";
                reading.read.note("signature", note.into());
            } else if let Err(failure) = signature.check(&reading, &head, body, now) {
                let is_late = is_captured && failure == Failure::BadTimestamp;
                if !signature.is_observed && !is_late {
                    return Err(failure.into());
                }
                reading.read.observed = Some(failure);
            } else {
                reading.read.note("signature", "right".into());
            }
        }

        if self.response.lists_ids {
            read.purpose = Purpose::Devices;
        }

        match &mut read.asked {
            AskedList::Named(named) if !named.is_empty() => {
                for asked in named {
                    let mut digits = Digits::new();
                    let text = asked.id.text(&mut digits);
                    asked.known = self.strategies.find(|known| known.is_text(text));
                }
            }
            none => *none = self.strategies.all(),
        }
        Ok(())
    }

    /// The expected form of a body.
    const fn expected(&self) -> &'static str {
        match self.body {
            BodyFormat::Protobuf => "a request_message",
            BodyFormat::Json => "JSON",
            BodyFormat::Form => "a form",
        }
    }
}

impl Adapter for Custom {
    fn kind(&self) -> &'static str {
        KIND.rules.word
    }

    fn strategies(&self) -> &StrategyIds {
        &self.strategies
    }

    fn requires_signature(&self) -> bool {
        let signature = self.signature.as_ref();
        signature.is_some_and(|signature| !signature.is_observed)
    }

    fn read<'a>(&'a self, request: &Request<'a>, read: &mut Read<'a>) -> Result<(), ReadError> {
        self.read_at(request, read, || {
            clock::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
        })
    }

    /// A verdict for each requested strategy; for all configured ones if the request names none. Or
    /// the ids that are accepted.
    fn write(&self, read: &Read<'_>, verdicts: &[Verdict]) -> Bytes {
        if read.purpose == Purpose::Ping {
            let case = CodeCase {
                is_bid: true,
                is_failure: false,
            };
            return self.response.write(&bare(&read.request_id, case)).into();
        }

        if self.response.lists_ids {
            // The ids of an unreadable request are unknown: none is accepted.
            let ids = &read.ids[..];
            let is_bid = ids.iter().any(|id| id.is_accepted);
            let case = CodeCase {
                is_bid,
                is_failure: read.purpose == Purpose::Fallback,
            };
            let answer = AnswerValues {
                ids,
                ..bare(&read.request_id, case)
            };
            return self.response.write(&answer).into();
        }

        let mut answers = Vec::with_capacity(read.asked.iter().len());
        let mut accepted: ArrayVec<&[u8], MAX_STRATEGIES> = ArrayVec::new();
        let mut is_listed = [false; MAX_STRATEGIES];
        for asked in read.asked.iter() {
            let is_bid = bids(verdicts, asked.known);
            if is_bid
                && let Some(known) = asked.known
                && !is_listed[known.id.0]
            {
                is_listed[known.id.0] = true;
                accepted.push(self.strategies.get(known.id).bytes());
            }

            let verdict = verdict_of(verdicts, asked.known);
            let tag = verdict.and_then(|verdict| verdict.tag);
            answers.push(StrategyAnswer {
                strategy: &asked.id,
                is_accepted: is_bid,
                value: self.values.of(verdicts, asked.known),
                tag: tag.map(|tag| &self.tags[usize::from(tag)]),
            });
        }

        let is_bid = !accepted.is_empty();
        let case = CodeCase {
            is_bid,
            is_failure: read.purpose == Purpose::Fallback,
        };
        let answer = AnswerValues {
            request_id: &read.request_id,
            case,
            verdicts: &answers,
            accepted: &accepted,
            ids: &[],
            cache_seconds: self.cache.of(is_bid, verdicts),
        };
        self.response.write(&answer).into()
    }

    /// The error code, or else the no-bid code, without strategies.
    fn refusal(&self) -> Bytes {
        self.refusal.clone()
    }

    fn content_type(&self) -> Option<&'static str> {
        Some(if self.response.is_json {
            "application/json"
        } else {
            "application/x-protobuf"
        })
    }

    fn answer_message(&self) -> Option<MessageDescriptor> {
        self.answer.clone()
    }

    fn schema_fingerprint(&self) -> u64 {
        self.schema_fingerprint
    }
}

/// Whether a value says nothing: a blank text, or the number of a field that was not sent.
fn is_blank(value: &Value<'_>) -> bool {
    *value == Value::Uint(0) || value.text(&mut Digits::new()).trim_ascii().is_empty()
}

/// An answer without strategies.
const fn bare<'s>(request_id: &'s Value<'s>, case: CodeCase) -> AnswerValues<'s, 's> {
    AnswerValues {
        request_id,
        case,
        verdicts: &[],
        accepted: &[],
        ids: &[],
        cache_seconds: None,
    }
}

#[cfg(test)]
mod tests;
