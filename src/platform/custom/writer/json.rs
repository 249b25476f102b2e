//! Writer of responses in JSON.

use super::super::response::{AnswerContent, AnswerField};
use super::{AnswerValues, StrategyAnswer};
use crate::platform::read::{Digits, Value};

/// Writes an object; `verdict` is set in an entry of the verdicts.
pub fn object(
    fields: &[AnswerField],
    answer: &AnswerValues<'_, '_>,
    verdict: Option<&StrategyAnswer<'_, '_>>,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let start = out.len();

    for AnswerField { name, content, .. } in fields {
        let before = out.len();
        if before > start {
            out.push(b',');
        }
        string(name.as_bytes(), out);
        out.push(b':');

        if !member(content, answer, verdict, out) {
            out.truncate(before);
        }
    }

    out.push(b'}');
}

/// False if there is nothing to write.
fn member(
    content: &AnswerContent,
    answer: &AnswerValues<'_, '_>,
    verdict: Option<&StrategyAnswer<'_, '_>>,
    out: &mut Vec<u8>,
) -> bool {
    match content {
        AnswerContent::Message(fields) => object(fields, answer, verdict, out),
        AnswerContent::RequestId(_) => return echo(answer.request_id, out),
        AnswerContent::Code(_, codes) => serde_json::to_writer(out, codes.of(answer.case))
            .expect("a code can be written to memory"),
        AnswerContent::Verdicts { fields, is_of_bids } => {
            let listed = answer
                .verdicts
                .iter()
                .filter(|verdict| verdict.is_accepted || !is_of_bids);
            list(listed, out, |verdict, out| {
                object(fields, answer, Some(verdict), out);
                true
            });
        }

        AnswerContent::Strategy(_) => match verdict {
            Some(verdict) => string(verdict.strategy.text(&mut Digits::new()), out),
            None => return false,
        },
        AnswerContent::IsAccepted(_) => {
            let is_accepted = verdict.is_some_and(|verdict| verdict.is_accepted);
            out.extend(if is_accepted { &b"true"[..] } else { b"false" });
        }
        AnswerContent::Amount(key, _) => match verdict.and_then(|answer| answer.amount(*key)) {
            Some(amount) if key.is_price() => number(amount as i128, out),
            Some(amount) => {
                serde_json::to_writer(out, &amount).expect("a number can be written to memory")
            }
            None => return false,
        },
        AnswerContent::Tag(_) => match verdict.and_then(StrategyAnswer::tag) {
            Some(tag) => string(tag, out),
            None => return false,
        },

        AnswerContent::Accepted { .. } => list(answer.accepted.iter(), out, |strategy, out| {
            string(strategy, out);
            true
        }),
        AnswerContent::FirstAccepted(_) => match answer.accepted.first() {
            Some(strategy) => string(strategy, out),
            None => return false,
        },
        AnswerContent::AcceptedIds(_) => list(answer.accepted_ids(), out, echo),
        AnswerContent::Cache(_) => match answer.cache_seconds {
            Some(seconds) => number(seconds.into(), out),
            None => return false,
        },
    }

    true
}

/// A JSON list; elements for which `write` fails are omitted.
fn list<T>(
    elements: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>) -> bool,
) {
    out.push(b'[');
    let start = out.len();
    for element in elements {
        let before = out.len();
        if before > start {
            out.push(b',');
        }
        if !write(element, out) {
            out.truncate(before);
        }
    }
    out.push(b']');
}

/// A value of the request; false if it is absent.
fn echo(value: &Value<'_>, out: &mut Vec<u8>) -> bool {
    match value {
        Value::Absent => return false,
        Value::Int(_) | Value::Uint(_) => out.extend(value.text(&mut Digits::new())),
        text => string(text.text(&mut Digits::new()), out),
    }
    true
}

fn string(text: &[u8], out: &mut Vec<u8>) {
    serde_json::to_writer(out, &String::from_utf8_lossy(text))
        .expect("a string can be written to memory");
}

fn number(number: i128, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &number).expect("a number can be written to memory");
}
