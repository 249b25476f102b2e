//! Writer of responses in Protocol Buffers.

use bytes::BufMut as _;
use prost::encoding::{encode_key, encode_varint};

use super::super::response::{AnswerContent, AnswerField};
use super::super::schema::Scalar;
use super::{AnswerValues, StrategyAnswer};
use crate::config::Code;
use crate::platform::read::{Digits, Value, canonical_integer_of};

/// False if it is a verdict whose strategy cannot be written.
pub fn message(
    fields: &[AnswerField],
    answer: &AnswerValues<'_, '_>,
    verdict: Option<&StrategyAnswer<'_, '_>>,
    out: &mut Vec<u8>,
) -> bool {
    for field in fields {
        let number = field.number;
        let is_required = field.is_required;

        match &field.content {
            // An optional message without values is omitted, even if it has required fields.
            AnswerContent::Message(fields) if !is_required && !has_values(fields, answer) => {}
            AnswerContent::Message(fields) => {
                let before = out.len();
                let start = delimited(number, out, |out| message(fields, answer, verdict, out));
                match start {
                    None => return false,
                    Some(start) if start == out.len() && !is_required => out.truncate(before),
                    Some(_) => {}
                }
            }
            AnswerContent::RequestId(scalar) => {
                let is_written = !answer.request_id.is_absent()
                    && value(number, *scalar, answer.request_id, out);
                if !is_written && is_required {
                    empty(number, *scalar, out);
                }
            }
            AnswerContent::Code(scalar, codes) => {
                match codes.of(answer.case) {
                    Code::Number(code) => integer(number, *scalar, (*code).into(), out),
                    Code::Bool(is) => integer(number, *scalar, (*is).into(), out),
                    Code::Text(text) => value(number, *scalar, &text.as_str().into(), out),
                };
            }
            AnswerContent::Verdicts { fields, is_of_bids } => {
                let listed = answer.verdicts.iter();
                for verdict in listed.filter(|verdict| verdict.is_accepted || !is_of_bids) {
                    let before = out.len();
                    if delimited(number, out, |out| {
                        message(fields, answer, Some(verdict), out)
                    })
                    .is_none()
                    {
                        out.truncate(before);
                    }
                }
            }

            AnswerContent::Strategy(scalar) => {
                if !verdict.is_some_and(|verdict| strategy(number, *scalar, verdict.strategy, out))
                {
                    return false;
                }
            }
            AnswerContent::IsAccepted(scalar) => {
                let is_accepted = verdict.is_some_and(|verdict| verdict.is_accepted);
                integer(number, *scalar, is_accepted.into(), out);
            }
            AnswerContent::Amount(key, scalar) => {
                if let Some(amount) = verdict.and_then(|answer| answer.amount(*key)) {
                    self::amount(number, *scalar, amount, out);
                }
            }
            AnswerContent::Tag(scalar) => match verdict.and_then(StrategyAnswer::tag) {
                Some(tag) => {
                    value(number, *scalar, &Value::Bytes(tag), out);
                }
                None if is_required => empty(number, *scalar, out),
                None => {}
            },

            AnswerContent::Accepted {
                scalar,
                is_packed: true,
            } => {
                if !answer.accepted.is_empty() {
                    delimited(number, out, |out| {
                        for integer in answer
                            .accepted
                            .iter()
                            .filter_map(|id| canonical_integer_of(id))
                        {
                            if scalar.holds(integer) {
                                bare_integer(*scalar, integer, out);
                            }
                        }
                        true
                    });
                }
            }
            AnswerContent::Accepted { scalar, .. } => {
                for id in answer.accepted {
                    strategy(number, *scalar, &Value::Bytes(id), out);
                }
            }
            AnswerContent::FirstAccepted(scalar) => match answer.accepted.first() {
                Some(first) => {
                    strategy(number, *scalar, &Value::Bytes(first), out);
                }
                None if is_required => empty(number, *scalar, out),
                None => {}
            },
            AnswerContent::AcceptedIds(scalar) => {
                for id in answer.accepted_ids() {
                    value(number, *scalar, id, out);
                }
            }
            AnswerContent::Cache(scalar) => {
                if let Some(seconds) = answer.cache_seconds {
                    let greatest = scalar.range().map_or(i128::MAX, |(_, greatest)| greatest);
                    integer(number, *scalar, i128::from(seconds).min(greatest), out);
                } else if is_required {
                    empty(number, *scalar, out);
                }
            }
        }
    }
    true
}

/// Whether a message has any value.
fn has_values(fields: &[AnswerField], answer: &AnswerValues<'_, '_>) -> bool {
    fields.iter().any(|field| match &field.content {
        AnswerContent::Message(fields) => has_values(fields, answer),
        AnswerContent::RequestId(_) => !answer.request_id.is_absent(),
        AnswerContent::Code(..)
        | AnswerContent::Strategy(_)
        | AnswerContent::IsAccepted(_)
        | AnswerContent::Amount(..)
        | AnswerContent::Tag(_) => true,
        AnswerContent::Verdicts { is_of_bids, .. } => answer
            .verdicts
            .iter()
            .any(|verdict| verdict.is_accepted || !is_of_bids),

        AnswerContent::Accepted { .. } | AnswerContent::FirstAccepted(_) => {
            !answer.accepted.is_empty()
        }
        AnswerContent::AcceptedIds(_) => answer.accepted_ids().next().is_some(),
        AnswerContent::Cache(_) => answer.cache_seconds.is_some(),
    })
}

/// Writes an empty string, or 0.
fn empty(number: u32, scalar: Scalar, out: &mut Vec<u8>) {
    if scalar.is_number() {
        integer(number, scalar, 0, out);
    } else {
        value(number, scalar, &Value::Absent, out);
    }
}

/// Writes a strategy; false if the field is a number and the strategy is not a canonical one.
fn strategy(number: u32, scalar: Scalar, id: &Value<'_>, out: &mut Vec<u8>) -> bool {
    let mut digits = Digits::new();
    if scalar.is_number() && canonical_integer_of(id.text(&mut digits)).is_none() {
        return false;
    }
    value(number, scalar, id, out)
}

/// Writes a length-delimited field, and returns the offset of its content; `None` if `write` fails.
fn delimited(
    number: u32,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> bool,
) -> Option<usize> {
    encode_key(number, prost::encoding::WireType::LengthDelimited, out);

    let offset = out.len();
    // One byte is usually enough; a longer length shifts the content.
    out.push(0);
    if !write(out) {
        return None;
    }

    let length = out.len() - offset - 1;
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out[offset] = short,
        _ => {
            let mut long = Vec::with_capacity(10);
            encode_varint(length as u64, &mut long);
            out.splice(offset..=offset, long);
        }
    }
    Some(offset + 1)
}

/// Writes a value in the field's type; false if the field is a number and the value is not.
fn value(number: u32, scalar: Scalar, value: &Value<'_>, out: &mut Vec<u8>) -> bool {
    if scalar.is_number() {
        return value
            .integer()
            .is_some_and(|number_of_value| integer(number, scalar, number_of_value, out));
    }
    let mut digits = Digits::new();
    let text = value.text(&mut digits);
    encode_key(number, scalar.wire(), out);
    encode_varint(text.len() as u64, out);
    out.extend(text);
    true
}

/// Writes a number of a value, which the field's type holds.
#[expect(
    clippy::cast_possible_truncation,
    reason = "checked when the platform was built"
)]
fn amount(number: u32, scalar: Scalar, amount: f64, out: &mut Vec<u8>) {
    match scalar {
        Scalar::Float => prost::encoding::float::encode(number, &(amount as f32), out),
        Scalar::Double => prost::encoding::double::encode(number, &amount, out),
        whole => {
            integer(number, whole, amount as i128, out);
        }
    }
}

fn integer(number: u32, scalar: Scalar, integer: i128, out: &mut Vec<u8>) -> bool {
    if !scalar.holds(integer) {
        return false;
    }
    encode_key(number, scalar.wire(), out);
    bare_integer(scalar, integer, out);
    true
}

/// Writes a number within the range of its type.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is in the range of the type"
)]
fn bare_integer(scalar: Scalar, integer: i128, out: &mut Vec<u8>) {
    let signed = integer as i64;
    match scalar {
        Scalar::Fixed32 | Scalar::Sfixed32 => out.put_u32_le(integer as u32),
        Scalar::Fixed64 | Scalar::Sfixed64 => out.put_u64_le(integer as u64),
        Scalar::Sint32 | Scalar::Sint64 => {
            encode_varint(((signed << 1) ^ (signed >> 63)) as u64, out)
        }
        _ => encode_varint(integer as u64, out),
    }
}
