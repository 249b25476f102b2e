//! Writer of responses in JSON.

use super::super::response::{AnswerContent, AnswerField, Response};
use super::{AnswerValues, StrategyAnswer};
use crate::platform::value::{Digits, Value, canonical_integer_of};

impl Response {
    /// False if it is a verdict whose strategy cannot be written.
    pub fn object(
        &self,
        fields: &[AnswerField],
        answer: &AnswerValues<'_, '_>,
        verdict: Option<&StrategyAnswer<'_, '_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        out.push(b'{');
        let start = out.len();
        for AnswerField { name, content, .. } in fields {
            let before = out.len();
            if before > start {
                out.push(b',');
            }
            string(name.as_bytes(), out);
            out.push(b':');
            if !self.member(content, answer, verdict, out) {
                // An object fails only if its strategy cannot be written: the verdict is omitted.
                if matches!(
                    content,
                    AnswerContent::Strategy(_) | AnswerContent::Message(_)
                ) {
                    return false;
                }
                out.truncate(before);
            }
        }
        out.push(b'}');
        true
    }

    /// False if there is nothing to write.
    fn member(
        &self,
        content: &AnswerContent,
        answer: &AnswerValues<'_, '_>,
        verdict: Option<&StrategyAnswer<'_, '_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        match content {
            AnswerContent::Message(fields) => return self.object(fields, answer, verdict, out),
            AnswerContent::RequestId(_) => return echo(answer.request_id, out),
            AnswerContent::Code(_, codes) => serde_json::to_writer(out, codes.of(answer.case))
                .expect("a code can be written to memory"),
            AnswerContent::Verdicts { fields, is_of_bids } => {
                list(answer.verdicts.iter(), out, |verdict, out| {
                    (verdict.is_accepted || !is_of_bids)
                        && self.object(fields, answer, Some(verdict), out)
                });
            }
            AnswerContent::Strategy(_) => {
                return verdict.is_some_and(|StrategyAnswer { strategy, .. }| {
                    let mut digits = Digits::new();
                    self.strategy(strategy.text(&mut digits), out)
                });
            }
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
            AnswerContent::TagNumber(_) => match verdict.and_then(StrategyAnswer::tag_number) {
                Some(tag) => number(tag.into(), out),
                None => return false,
            },
            AnswerContent::Accepted { .. } => list(answer.accepted.iter(), out, |strategy, out| {
                self.strategy(strategy, out)
            }),
            AnswerContent::FirstAccepted(_) => {
                return answer
                    .accepted
                    .first()
                    .is_some_and(|strategy| self.strategy(strategy, out));
            }
            AnswerContent::AcceptedIds(_) => list(answer.accepted_ids(), out, echo),
            AnswerContent::Joined { separator } => {
                string(&answer.accepted.join(separator.as_bytes()), out)
            }
            AnswerContent::Cache(_) => match answer.cache_seconds {
                Some(seconds) => number(seconds.into(), out),
                None => return false,
            },
        }
        true
    }

    fn strategy(&self, text: &[u8], out: &mut Vec<u8>) -> bool {
        if !self.strategies_are_numbers {
            string(text, out);
            return true;
        }
        let integer = canonical_integer_of(text);
        integer.map(|integer| number(integer, out)).is_some()
    }
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
