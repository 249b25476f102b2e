//! serde over the tree of values. Errors carry the path of the value, and what it accepts.

use std::cell::RefCell;
use std::collections::btree_map;
use std::fmt::{self, Display};
use std::slice;

use serde::de::value::SeqDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::{Deserialize, Serialize, Serializer, forward_to_deserialize_any};

use crate::mistake::{Location, Mistake};
use crate::node::{Node, Path, Step, Value};

const NAMED: &str = "$rtad_config::Named";
const ONE_OR_MANY: &str = "$rtad_config::OneOrMany";
/// The accepted values of `OneOrMany<String>`.
const STRINGS: &str = "a string or a list of strings";

/// A text of the configuration with its location, for checks after reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Its location.
    pub location: Location,
    /// The text.
    pub text: String,
}

impl Named {
    /// A mistake about this text.
    pub fn mistake(&self, why: &str, accepted: &str) -> Mistake {
        let found = format!("is {:?}: {why}", self.text);
        Mistake {
            location: self.location.clone(),
            found,
            accepted: accepted.to_owned(),
        }
    }
}

/// Serializes the text alone, so that printed TOML reads back as the same.
impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Named;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string that is not empty")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Named, A::Error> {
                let mut part = || Ok(parts.next_element::<String>()?.unwrap_or_default());
                let (text, line, key) = (part()?, part()?, part()?);
                if text.is_empty() {
                    return Err(de::Error::invalid_value(Unexpected::Str(""), &self));
                }
                let location = Location {
                    line: line.parse().ok(),
                    key,
                    is_outside: false,
                };
                Ok(Named { location, text })
            }
        }
        deserializer.deserialize_newtype_struct(NAMED, Parts)
    }
}

/// A list, or a single value in place of a list with one.
#[derive(Debug, Clone)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(Vec<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                mut self,
                mut items: A,
            ) -> Result<Self::Value, A::Error> {
                while let Some(item) = items.next_element()? {
                    self.0.push(item);
                }
                Ok(OneOrMany(self.0))
            }
        }
        deserializer.deserialize_newtype_struct(ONE_OR_MANY, Items(Vec::new()))
    }
}

/// A value that cannot be read.
#[derive(Debug, Clone)]
pub struct Error {
    /// The path, once a table or list has added it.
    pub(crate) path: Option<Path>,
    pub(crate) fault: Fault,
}

#[derive(Debug, Clone)]
pub enum Fault {
    /// A required key of the table is missing.
    Missing(&'static str),
    Wrong {
        /// `None` stands for the value itself.
        found: Option<String>,
        accepted: String,
    },
}

impl Error {
    fn wrong(accepted: impl Into<String>) -> Self {
        Self {
            path: None,
            fault: Fault::Wrong {
                found: None,
                accepted: accepted.into(),
            },
        }
    }

    fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.clone());
        self
    }

    /// Adds that the string at `path` may be a list.
    fn or_list_at(mut self, path: &Path) -> Self {
        if let Fault::Wrong { accepted, .. } = &mut self.fault
            && accepted == "a string"
            && self.path.as_ref() == Some(path)
        {
            STRINGS.clone_into(accepted);
        }
        self
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.fault)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    /// A message of a type: the accepted values, `FOUND; accepted: ACCEPTED`, or
    /// `NAME: expected ACCEPTED`.
    fn custom<T: Display>(message: T) -> Self {
        let message = message.to_string();
        if let Some((found, accepted)) = message.split_once("; accepted: ") {
            let (found, accepted) = (Some(found.to_owned()), accepted.to_owned());
            return Self {
                path: None,
                fault: Fault::Wrong { found, accepted },
            };
        }
        let accepted = message
            .split_once(": expected ")
            .map(|(_, accepted)| accepted.to_owned());
        Self::wrong(accepted.unwrap_or(message))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        Self::wrong(match expected.as_str() {
            "a boolean" => "true or false",
            "a map" => "a table",
            "a sequence" => "a list",
            "path string" => "a path",
            "f64" => "a number",
            "i64" | "u64" | "usize" | "u16" => "a whole number",
            struct_name if struct_name.starts_with("struct ") => "a table",
            other => other,
        })
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::wrong(match expected.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => expected.concat(),
        })
    }

    fn missing_field(field: &'static str) -> Self {
        Self {
            path: None,
            fault: Fault::Missing(field),
        }
    }
}

/// A mistake that does not stop the reading.
#[derive(Debug, Clone, Copy)]
pub enum Noted {
    /// A key that is none of these.
    UnknownKey(&'static [&'static str]),
    /// A table in place of a list of tables. It is read as the only one of the list.
    SingleTable,
}

/// Side results of a reading.
#[derive(Debug, Default)]
pub struct Notes {
    /// Mistakes, with their paths.
    pub(crate) mistakes: RefCell<Vec<(Path, Noted)>>,
}

/// Reads a value of the tree.
#[derive(Clone)]
pub struct Reader<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: Path,
    pub(crate) notes: &'a Notes,
}

impl<'a> Reader<'a> {
    fn note(&self, path: Path, noted: Noted) {
        self.notes.mistakes.borrow_mut().push((path, noted));
    }

    fn child(&self, node: &'a Node, step: Step) -> Self {
        Self {
            node,
            path: self.path.step(step),
            notes: self.notes,
        }
    }

    fn invalid_type<T>(&self, expected: &dyn Expected) -> Result<T, Error> {
        Err(de::Error::invalid_type(
            Unexpected::Other("value"),
            expected,
        ))
    }

    fn items<'de, V: Visitor<'de>>(self, list: &'a [Node], visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Items {
            reader: self,
            list: list.iter().enumerate(),
        })
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let path = self.path.clone();
        let result = match &self.node.value {
            Value::String(text) | Value::Outside(text) => visitor.visit_str(text),
            Value::Integer(integer) => visitor.visit_i64(*integer),
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Boolean(boolean) => visitor.visit_bool(*boolean),
            Value::Other(_) | Value::Missing => self.invalid_type(&visitor),
            Value::List(list) => self.items(list, visitor),
            Value::Table(table) => visitor.visit_map(Entries {
                reader: self,
                entries: table.iter(),
                value: None,
            }),
        };
        result.map_err(|error| error.at(&path))
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Outside(text) => match text.parse() {
                Ok(number) => visitor.visit_i64(number),
                Err(_) => self.invalid_type(&visitor),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let path = self.path.clone();
        let result = match &self.node.value {
            Value::Table(_) => {
                self.note(path.clone(), Noted::SingleTable);
                let node = self.node;
                self.items(slice::from_ref(node), visitor)
            }
            _ => return self.deserialize_any(visitor),
        };
        result.map_err(|error: Error| error.at(&path))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Value::Table(table) = &self.node.value {
            for key in table.keys().filter(|key| !fields.contains(&key.as_str())) {
                self.note(self.path.key(key), Noted::UnknownKey(fields));
            }
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let word = match &self.node.value {
            Value::String(text) | Value::Outside(text) => text,
            // No variant: the error lists them all.
            _ => "",
        };
        visitor
            .visit_enum(word.into_deserializer())
            .map_err(|error: Error| error.at(&self.path))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let path = self.path.clone();
        let result = match (name, &self.node.value) {
            (NAMED, Value::String(text)) => {
                let line = self
                    .node
                    .line()
                    .map(|line| line.to_string())
                    .unwrap_or_default();
                let parts = [text.clone(), line, path.to_string()];
                visitor.visit_seq(SeqDeserializer::new(parts.into_iter()))
            }
            (NAMED, _) => self.invalid_type(&visitor),
            (ONE_OR_MANY, Value::List(list)) => self.items(list, visitor),
            (ONE_OR_MANY, _) => {
                let item = visitor.visit_seq(Single(Some(self)));
                item.map_err(|error: Error| error.or_list_at(&path))
            }
            _ => visitor.visit_newtype_struct(self),
        };
        result.map_err(|error: Error| error.at(&path))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    reader: Reader<'a>,
    list: std::iter::Enumerate<slice::Iter<'a, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some((index, node)) = self.list.next() else {
            return Ok(None);
        };
        let reader = self.reader.child(node, Step::Index(index));
        let path = reader.path.clone();
        seed.deserialize(reader)
            .map(Some)
            .map_err(|error| error.at(&path))
    }
}

/// A list of one value, whose path is that of the list.
struct Single<'a>(Option<Reader<'a>>);

impl<'de> SeqAccess<'de> for Single<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0
            .take()
            .map(|reader| seed.deserialize(reader))
            .transpose()
    }
}

struct Entries<'a> {
    reader: Reader<'a>,
    entries: btree_map::Iter<'a, String, Node>,
    value: Option<Reader<'a>>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, node)) = self.entries.next() else {
            return Ok(None);
        };
        let reader = self.reader.child(node, Step::Key(key.clone()));
        let path = reader.path.clone();
        self.value = Some(reader);
        let key = seed.deserialize(key.as_str().into_deserializer());
        key.map(Some).map_err(|error: Error| error.at(&path))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let reader = self.value.take().expect("a key comes before its value");
        let path = reader.path.clone();
        seed.deserialize(reader).map_err(|error| error.at(&path))
    }
}
