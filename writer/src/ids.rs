//! Ids in JSON bodies: borrowed strings, with a limit on their number.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use rtad_http::body::split_keys;
use rtad_http::json::Text;
use rtad_http::request_error::RequestError;

/// The first `MAX` ids; further ones are counted but not kept.
pub struct Ids<'a, const MAX: usize> {
    kept: Vec<Option<Text<'a>>>,
    count: usize,
}

impl<'a, const MAX: usize> Ids<'a, MAX> {
    /// The bytes of each id, unless there are too many. An id of null is blank, as an empty one.
    pub fn texts(&self) -> Result<impl ExactSizeIterator<Item = &[u8]>, RequestError> {
        at_most::<MAX>(self.count)?;
        Ok(self
            .kept
            .iter()
            .map(|id| id.as_ref().map_or(&b""[..], |Text(id)| id.as_bytes())))
    }
}

/// Refuses more than `MAX` ids.
pub fn at_most<const MAX: usize>(count: usize) -> Result<(), RequestError> {
    if count <= MAX {
        return Ok(());
    }
    Err(RequestError::TooLarge(format!(
        "{count} ids; accepted: up to {MAX}"
    )))
}

/// Splits a binary body into keys.
pub fn keys_of<const MAX: usize>(body: &[u8]) -> Result<&[[u8; 16]], RequestError> {
    let keys = split_keys(body)?;
    at_most::<MAX>(keys.len())?;
    Ok(keys)
}

impl<'de: 'a, 'a, const MAX: usize> Deserialize<'de> for Ids<'a, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<const MAX: usize>;

        impl<'de, const MAX: usize> Visitor<'de> for List<MAX> {
            type Value = Ids<'de, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of ids")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < MAX {
                    match list.next_element()? {
                        Some(id) => kept.push(id),
                        None => {
                            return Ok(Ids {
                                count: kept.len(),
                                kept,
                            });
                        }
                    }
                }
                let mut count = kept.len();
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Ids { kept, count })
            }
        }

        deserializer.deserialize_seq(List::<MAX>)
    }
}
