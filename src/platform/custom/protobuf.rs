//! Protobuf decoder along a plan: one pass, no copies, unknown fields skipped.
//!
//! - Strings are slices of the body; invalid UTF-8 is accepted.
//! - A mapped field of another wire type than the schema's makes the body bad.
//! - Packed and unpacked lists are read alike.
//! - Unknown values of proto2 enums are skipped, so an earlier known value stays.
//! - The recursion is as deep as the plan; groups are skipped up to prost's limit.

use bytes::Buf as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::plan::{MessageNode, RequestContent};
use super::reading::{Malformed, Reading};
use super::schema::Scalar;
use crate::platform::read::Value;

/// Reads a body.
pub fn read<'a>(body: &'a [u8], reading: &mut Reading<'_, 'a>) -> Result<(), Malformed> {
    let root = &reading.plan.root;
    walk(body, root, reading)?;
    reading.end(root)
}

fn walk<'a>(
    mut body: &'a [u8],
    node: &'a MessageNode,
    reading: &mut Reading<'_, 'a>,
) -> Result<(), Malformed> {
    while !body.is_empty() {
        let (number, wire) = decode_key(&mut body).map_err(|_| Malformed)?;
        let Some(field) = node.numbered(number) else {
            skip_field(wire, number, &mut body, DecodeContext::default()).map_err(|_| Malformed)?;
            continue;
        };

        match &field.content {
            RequestContent::Node(child) if wire == WireType::LengthDelimited => {
                let inner = delimited(&mut body)?;
                if field.is_list {
                    reading.begin(child);
                    walk(inner, child, reading)?;
                    reading.end(child)?;
                } else {
                    walk(inner, child, reading)?;
                }
            }
            RequestContent::Node(_) => return Err(Malformed),
            RequestContent::Leaf(leaf)
                if field.is_list
                    && wire == WireType::LengthDelimited
                    && leaf.scalar.is_number() =>
            {
                let mut packed = delimited(&mut body)?;
                while !packed.is_empty() {
                    let value = scalar(leaf.scalar, leaf.scalar.wire(), &mut packed)?;
                    if leaf.knows(&value) {
                        reading.take(leaf, true, value)?;
                    }
                }
            }
            RequestContent::Leaf(leaf) => {
                let value = scalar(leaf.scalar, wire, &mut body)?;
                if leaf.knows(&value) {
                    reading.take(leaf, field.is_list, value)?;
                }
            }
        }
    }
    Ok(())
}

impl Scalar {
    /// Its wire type.
    pub const fn wire(self) -> WireType {
        match self {
            Self::Fixed32 | Self::Sfixed32 | Self::Float => WireType::ThirtyTwoBit,
            Self::Fixed64 | Self::Sfixed64 | Self::Double => WireType::SixtyFourBit,
            Self::Text => WireType::LengthDelimited,
            _ => WireType::Varint,
        }
    }
}

#[inline]
fn delimited<'a>(body: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let sent_length = decode_varint(body).map_err(|_| Malformed)?;
    let length = usize::try_from(sent_length).map_err(|_| Malformed)?;
    let (inner, rest) = body.split_at_checked(length).ok_or(Malformed)?;
    *body = rest;
    Ok(inner)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "defined by the format"
)]
#[inline]
fn scalar<'a>(scalar: Scalar, wire: WireType, body: &mut &'a [u8]) -> Result<Value<'a>, Malformed> {
    if wire != scalar.wire() {
        return Err(Malformed);
    }

    Ok(match scalar {
        Scalar::Text => Value::Bytes(delimited(body)?),
        Scalar::Fixed32 => Value::Uint(body.try_get_u32_le().map_err(|_| Malformed)?.into()),
        Scalar::Sfixed32 => Value::Int(body.try_get_i32_le().map_err(|_| Malformed)?.into()),
        Scalar::Fixed64 => Value::Uint(body.try_get_u64_le().map_err(|_| Malformed)?),
        Scalar::Sfixed64 => Value::Int(body.try_get_i64_le().map_err(|_| Malformed)?),
        _ => {
            let number = decode_varint(body).map_err(|_| Malformed)?;
            match scalar {
                Scalar::Int32 | Scalar::Enum => Value::Int((number as i32).into()),
                Scalar::Int64 => Value::Int(number as i64),
                Scalar::Uint32 => Value::Uint((number as u32).into()),
                Scalar::Sint32 => {
                    let number = number as u32;
                    Value::Int((((number >> 1) as i32) ^ -((number & 1) as i32)).into())
                }
                Scalar::Sint64 => Value::Int(((number >> 1) as i64) ^ -((number & 1) as i64)),
                Scalar::Bool => Value::Uint((number != 0).into()),
                _ => Value::Uint(number),
            }
        }
    })
}
