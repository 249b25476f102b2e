//! JSON decoder along a plan: one pass, no tree, strings without escapes borrowed from the body.
//!
//! - Unmapped names are skipped; null counts as absent; the last value of a repeated key wins.
//! - Ids and strategies may be lists.
//! - An object may be JSON in a text.
//! - Objects may come in lists. Several in the path of a single value make the body bad, as do
//!   several within an entry of the id list.
//! - A mapped object, or a number that is not a 64-bit integer, makes the body bad.
//! - The recursion is as deep as the plan; skipped values use no stack at any depth.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::plan::{Leaf, MessageNode, RequestContent, RequestField};
use super::reading::{Malformed, Reading};
use crate::platform::read::Value;

/// Reads a body.
pub fn read<'a>(body: &'a [u8], reading: &mut Reading<'_, 'a>) -> Result<(), Malformed> {
    let root = &reading.plan.root;
    let mut json = serde_json::Deserializer::from_slice(body);
    json.deserialize_map(MappedObject {
        node: root,
        is_in_list: false,
        reading,
    })
    .map_err(|_| Malformed)?;
    json.end().map_err(|_| Malformed)?;
    reading.end(root)
}

/// Reads an object from a text that the body holds.
pub fn read_text<'p>(
    text: &str,
    node: &'p MessageNode,
    reading: &mut Reading<'p, '_>,
) -> Result<(), Malformed> {
    if text.is_empty() {
        reading.begin(node);
        return Ok(());
    }

    // A reader passes owned strings: the text may not live as long as the body.
    let mut json = serde_json::Deserializer::from_reader(text.as_bytes());
    json.deserialize_map(MappedObject {
        node,
        is_in_list: false,
        reading,
    })
    .map_err(|_| Malformed)?;
    json.end().map_err(|_| Malformed)
}

/// An error of the visitors. [`read`] discards its text.
fn bad<E: Error>() -> E {
    E::custom("type mismatch")
}

/// A key, if it is mapped.
struct MappedKey<'p>(&'p MessageNode);

impl<'de, 'p> DeserializeSeed<'de> for MappedKey<'p> {
    type Value = Option<&'p RequestField>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'p> Visitor<'_> for MappedKey<'p> {
    type Value = Option<&'p RequestField>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.named(name))
    }
}

/// An object, a list of them, or null.
struct MappedObject<'r, 'p, 'a> {
    node: &'p MessageNode,
    is_in_list: bool,
    reading: &'r mut Reading<'p, 'a>,
}

impl<'de> DeserializeSeed<'de> for MappedObject<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MappedObject<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.reading.begin(self.node);
        Ok(())
    }

    /// JSON in a text.
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let Self {
            node,
            is_in_list,
            reading,
        } = self;
        read_text(text, node, reading).map_err(|Malformed| bad())?;
        if is_in_list {
            reading.end(node).map_err(|Malformed| bad())?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self {
            node,
            is_in_list,
            reading,
        } = self;

        reading.begin(node);
        while let Some(field) = map.next_key_seed(MappedKey(node))? {
            match field.map(|field| &field.content) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(RequestContent::Node(node)) => {
                    map.next_value_seed(MappedObject {
                        node,
                        is_in_list: false,
                        reading: &mut *reading,
                    })?;
                }
                Some(RequestContent::Leaf(leaf)) => {
                    map.next_value_seed(MappedScalar {
                        leaf,
                        is_in_list: false,
                        reading: &mut *reading,
                    })?;
                }
            }
        }

        if is_in_list {
            reading.end(node).map_err(|Malformed| bad())?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self {
            node,
            is_in_list,
            reading,
        } = self;

        if is_in_list {
            return Err(bad());
        }

        reading.begin(node);
        let mut objects = 0;
        while list
            .next_element_seed(MappedObject {
                node,
                is_in_list: true,
                reading: &mut *reading,
            })?
            .is_some()
        {
            objects += 1;
        }
        // Nothing tells which of several objects has the value.
        if objects > 1 && reading.has_single(node) {
            return Err(bad());
        }
        Ok(())
    }
}

/// A value, a list of them, or null.
struct MappedScalar<'r, 'p, 'a> {
    leaf: &'p Leaf,
    is_in_list: bool,
    reading: &'r mut Reading<'p, 'a>,
}

impl<'a> MappedScalar<'_, '_, 'a> {
    fn take<E: Error>(self, value: Value<'a>) -> Result<(), E> {
        self.reading
            .take(self.leaf, self.is_in_list, value)
            .map_err(|Malformed| bad())
    }
}

impl<'de> DeserializeSeed<'de> for MappedScalar<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MappedScalar<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an integer")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<(), E> {
        self.take(Value::Bytes(text.as_bytes()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.take(Value::Owned(text.as_bytes().into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.take(Value::Uint(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.take(Value::Int(number))
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<(), E> {
        self.take(Value::Uint(is.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.is_in_list {
            Ok(())
        } else {
            self.take(Value::Absent)
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self {
            leaf,
            is_in_list,
            reading,
        } = self;
        if is_in_list {
            return Err(bad());
        }

        while list
            .next_element_seed(MappedScalar {
                leaf,
                is_in_list: true,
                reading: &mut *reading,
            })?
            .is_some()
        {}
        Ok(())
    }
}
