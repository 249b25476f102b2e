//! Mutants of the corpus: structural changes of messages and JSON, which still parse, and for half
//! of the mutants byte changes, which break parsing.

use bytes::Bytes;
use prost::encoding::encode_varint;
use serde_json::{Map, Value as Json};
use testkit::random::SplitMix64;

use crate::message::{Field, Value, parse, write};

/// Boundary values: signs, widths, ids of the tests.
const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    3,
    6,
    7,
    127,
    128,
    10003,
    10004,
    u32::MAX as u64,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    1 << 63,
    (1 << 63) - 1,
    u64::MAX,
    u64::MAX - 6,
];
const WORDS: [&str; 16] = [
    "",
    "new-users",
    "careful",
    "T1",
    "T2",
    "T3",
    "new",
    "null",
    "0",
    "868049039501257",
    "8d3ebd3654fb46a2832296669cf1b536",
    "8D3EBD3654FB46A2832296669CF1B536",
    "d41d8cd98f00b204e9800998ecf8427e",
    "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5",
    "00000000-0000-0000-0000-000000000000",
    "\u{8bf7}",
];
/// Valid and invalid field names.
const NAMES: [&str; 10] = [
    "request_id",
    "strategies",
    "device",
    "imei",
    "imei_md5",
    "oaid",
    "caid",
    "openid",
    "idfa",
    "\"\\\u{1}",
];
/// JSON tokens.
const TOKENS: [&str; 20] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "null",
    "true",
    "-1e9",
    "\"device\":",
    "\"imei\":",
    "\"caid\":[",
    "\"request_id\":",
    "\"strategies\":[",
    "\"careful\"",
    "\\ud800",
    "\\u0000",
    " ",
];

/// Limit of lists and messages, which would grow with every mutant.
const LARGEST: usize = 4096;

/// Endless generator of mutants, deterministic per seed.
pub struct Mutants {
    seeds: Vec<Bytes>,
    /// Seeds that parse as messages.
    messages: Vec<Vec<Field>>,
    /// Seeds that parse as JSON.
    jsons: Vec<Json>,
    is_text: bool,
    random: SplitMix64,
}

impl Mutants {
    pub fn of(seeds: &[Bytes], is_text: bool, seed: u64) -> Self {
        let messages = seeds
            .iter()
            .filter_map(|body| parse(body, 0))
            .filter(|fields| !fields.is_empty());
        let jsons = seeds
            .iter()
            .filter_map(|body| serde_json::from_slice(body).ok())
            .collect();
        Self {
            messages: messages.collect(),
            jsons,
            seeds: seeds.to_vec(),
            is_text,
            random: SplitMix64::new(seed),
        }
    }

    /// The next mutant.
    pub fn next(&mut self) -> Bytes {
        let mut body = Vec::new();
        let is_whole = self.below(8) > 0;
        if is_whole && self.is_text {
            let index = self.below(self.jsons.len());
            let mut json = self.jsons[index].clone();
            for _ in 0..=self.below(3) {
                self.change_json(&mut json);
            }
            body.extend_from_slice(json.to_string().as_bytes());
        } else if is_whole {
            let mut message = self.message();
            for _ in 0..=self.below(4) {
                self.change(&mut message);
            }
            write(&message, &mut body);
        } else {
            let index = self.below(self.seeds.len());
            body.extend_from_slice(&self.seeds[index]);
        }
        if !is_whole || self.below(2) == 0 {
            for _ in 0..=self.below(3) {
                self.damage(&mut body);
            }
        }
        body.truncate(LARGEST);
        body.into()
    }

    fn message(&mut self) -> Vec<Field> {
        let index = self.below(self.messages.len());
        self.messages[index].clone()
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end.max(1))
    }

    /// Changes a message, at any depth.
    fn change(&mut self, fields: &mut Vec<Field>) {
        let index = self.below(fields.len());
        if let Some(Field {
            value: Value::Message(inside),
            ..
        }) = fields.get_mut(index)
            && self.below(3) > 0
        {
            return self.change(inside);
        }
        match self.below(9) {
            0 if !fields.is_empty() => {
                fields.remove(index);
            }
            1 if !fields.is_empty() => {
                let copy = fields[index].clone();
                let times = if self.below(20) == 0 { 80 } else { 1 };
                fields.splice(index..index, std::iter::repeat_n(copy, times));
            }
            2 if !fields.is_empty() => {
                let other = self.below(fields.len());
                fields.swap(index, other);
            }
            3 => {
                // A part of another message, or all of it as one field.
                let mut other = self.message();
                if self.below(2) == 0 && !other.is_empty() {
                    let from = self.below(other.len());
                    fields.push(other.swap_remove(from));
                } else {
                    fields.push(Field {
                        key: (1 + self.random.number() % 20) << 3 | 2,
                        value: Value::Message(other),
                    });
                }
            }
            4 if !fields.is_empty() => {
                // Another field number, same wire type.
                fields[index].key = (1 + self.random.number() % 35) << 3 | fields[index].key & 7;
            }
            5 => {
                let number = NUMBERS[self.below(NUMBERS.len())];
                fields.push(Field {
                    key: (1 + self.random.number() % 35) << 3,
                    value: Value::Varint(number),
                });
            }
            6 => {
                let word = WORDS[self.below(WORDS.len())].as_bytes().to_vec();
                fields.push(Field {
                    key: (1 + self.random.number() % 35) << 3 | 2,
                    value: Value::Bytes(word),
                });
            }
            _ => {
                if let Some(field) = fields.get_mut(index) {
                    self.change_value(&mut field.value);
                }
            }
        }
    }

    fn change_value(&mut self, value: &mut Value) {
        match value {
            Value::Varint(number) => *number = NUMBERS[self.below(NUMBERS.len())],
            Value::Bytes(bytes) => match self.below(3) {
                0 => *bytes = WORDS[self.below(WORDS.len())].as_bytes().to_vec(),
                1 => {
                    // A packed list.
                    for _ in 0..self.below(12) {
                        encode_varint(NUMBERS[self.below(NUMBERS.len())], bytes);
                    }
                }
                _ => self.damage(bytes),
            },
            Value::Message(fields) => {
                let mut bytes = Vec::new();
                write(fields, &mut bytes);
                self.damage(&mut bytes);
                *value = Value::Bytes(bytes);
            }
            Value::Fixed(bytes) => bytes.reverse(),
            Value::None => {}
        }
    }

    /// Changes JSON, at any depth.
    fn change_json(&mut self, json: &mut Json) {
        let count = json
            .as_object()
            .map(Map::len)
            .or(json.as_array().map(Vec::len))
            .unwrap_or_default();
        let index = self.below(count);
        let inside = match json {
            Json::Object(object) => object.values_mut().nth(index),
            Json::Array(list) => list.get_mut(index),
            _ => None,
        };
        if let Some(inside) = inside
            && self.below(4) > 0
        {
            return self.change_json(inside);
        }
        let new = self.json();
        match json {
            Json::Object(object) => {
                let name = NAMES[self.below(NAMES.len())];
                object.insert(name.to_owned(), new);
            }
            Json::Array(list) => {
                let times = if self.below(20) == 0 { 70 } else { 1 };
                list.splice(index..index, std::iter::repeat_n(new, times));
            }
            _ => *json = new,
        }
    }

    fn json(&mut self) -> Json {
        let word = |mutants: &mut Self| Json::from(WORDS[mutants.below(WORDS.len())]);
        match self.below(10) {
            0 => Json::Null,
            1 => Json::from(NUMBERS[self.below(NUMBERS.len())]),
            2 => Json::Object(Map::new()),
            3 | 4 => (0..self.below(4)).map(|_| word(self)).collect(),
            _ => word(self),
        }
    }

    /// Changes bytes, ignoring structure.
    fn damage(&mut self, body: &mut Vec<u8>) {
        let index = self.below(body.len() + 1);
        match self.below(9) {
            0 if index < body.len() => body[index] ^= 1 << self.below(8),
            1 if index < body.len() => body[index] = self.random.number() as u8,
            2 => body.truncate(index),
            3 => {
                let end = (index + self.below(8)).min(body.len());
                body.drain(index..end);
            }
            4 => {
                let count = self.below(8);
                let random: Vec<u8> = (0..count).map(|_| self.random.number() as u8).collect();
                body.splice(index..index, random);
            }
            5 => {
                let end = (index + self.below(40)).min(body.len());
                let copy = body[index..end].to_vec();
                body.splice(index..index, copy);
            }
            6 => {
                // Splice: the rest of another seed.
                let other = self.below(self.seeds.len());
                let from = self.below(self.seeds[other].len() + 1);
                body.truncate(index);
                body.extend_from_slice(&self.seeds[other][from..]);
            }
            7 if self.is_text => {
                let token = TOKENS[self.below(TOKENS.len())].bytes();
                body.splice(index..index, token);
            }
            7 if index < body.len() => {
                // Possibly a length: one more, one less, or far too much.
                body[index] = match self.below(4) {
                    0 => body[index].wrapping_add(1),
                    1 => body[index].wrapping_sub(1),
                    2 => 0x7f,
                    _ => 0xff,
                };
            }
            _ => {
                let mut number = Vec::new();
                encode_varint(NUMBERS[self.below(NUMBERS.len())], &mut number);
                body.splice(index..index, number);
            }
        }
    }
}
