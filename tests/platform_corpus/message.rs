//! Protobuf messages without a schema: heuristic parser and writer.

use prost::encoding::{decode_varint, encode_varint};

/// A field of a message; bytes that parse as a message are one.
#[derive(Debug, Clone)]
pub struct Field {
    /// Number and wire type.
    pub(crate) key: u64,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub enum Value {
    Varint(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
    /// Start or end of a group.
    None,
}

/// Parses a message; `None` if the bytes are not one.
pub fn parse(mut body: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !body.is_empty() {
        let key = decode_varint(&mut body).ok()?;
        if key >> 3 == 0 || key >> 3 > 1000 {
            return None;
        }
        let mut take = |length: usize| body.split_off(..length).map(<[u8]>::to_vec);
        let value = match key & 7 {
            0 => Value::Varint(decode_varint(&mut body).ok()?),
            1 => Value::Fixed(take(8)?),
            5 => Value::Fixed(take(4)?),
            2 => {
                let length = decode_varint(&mut body).ok()?;
                let bytes = body.split_off(..usize::try_from(length).ok()?)?;
                let message = if depth < 8 && !bytes.is_empty() {
                    parse(bytes, depth + 1)
                } else {
                    None
                };
                message.map_or_else(|| Value::Bytes(bytes.to_vec()), Value::Message)
            }
            3 | 4 => Value::None,
            _ => return None,
        };
        fields.push(Field { key, value });
    }
    Some(fields)
}

pub fn write(fields: &[Field], body: &mut Vec<u8>) {
    for Field { key, value } in fields {
        encode_varint(*key, body);
        match value {
            Value::Varint(number) => encode_varint(*number, body),
            Value::Fixed(bytes) => body.extend_from_slice(bytes),
            Value::Bytes(bytes) => {
                encode_varint(bytes.len() as u64, body);
                body.extend_from_slice(bytes);
            }
            Value::Message(inside) => {
                let mut bytes = Vec::new();
                write(inside, &mut bytes);
                encode_varint(bytes.len() as u64, body);
                body.extend_from_slice(&bytes);
            }
            Value::None => {}
        }
    }
}
