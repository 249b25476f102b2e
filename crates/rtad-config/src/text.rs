//! Texts with their locations, and lists that may be single values.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::{Deserialize, Serialize, Serializer};
use toml::Spanned;

use crate::mistake::{Location, Mistake};

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
        let accepted = "a string that is not empty";
        let spanned =
            Spanned::<String>::deserialize(deserializer).map_err(|_| D::Error::custom(accepted))?;
        let location = Location::Byte(spanned.span().start);
        let text = spanned.into_inner();
        if text.is_empty() {
            return Err(D::Error::custom(accepted));
        }
        Ok(Self { location, text })
    }
}

/// Texts with their locations: a list, or a single one in place of a list with one.
#[derive(Debug, Clone)]
pub struct NamedList(pub Vec<Named>);

impl<'de> Deserialize<'de> for NamedList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Texts>::deserialize(deserializer)?;
        let location = Location::Byte(spanned.span().start);
        Ok(match spanned.into_inner() {
            Texts::One(text) => Self(vec![Named { location, text }]),
            Texts::Many(list) => Self(list),
        })
    }
}

enum Texts {
    /// Its location is that of the whole value.
    One(String),
    Many(Vec<Named>),
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string that is not empty, or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
        if text.is_empty() {
            return Err(E::invalid_value(Unexpected::Str(""), &self));
        }
        Ok(Texts::One(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Texts, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Texts::Many(list))
    }
}

/// A list, or a single value in place of a list with one.
#[derive(Debug, Clone)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Items(PhantomData))
    }
}

struct Items<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(OneOrMany(list))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let item = T::deserialize(text.into_deserializer())?;
        Ok(OneOrMany(vec![item]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let item = T::deserialize(MapAccessDeserializer::new(map))?;
        Ok(OneOrMany(vec![item]))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        refused::<T, E>(number.into_deserializer())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        refused::<T, E>(number.into_deserializer())
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Self::Value, E> {
        refused::<T, E>(is.into_deserializer())
    }
}

/// The item's own words for a value that is no item, with a list of strings beside a string.
fn refused<'de, T: Deserialize<'de>, E: Error>(
    value: impl Deserializer<'de, Error = E>,
) -> Result<OneOrMany<T>, E> {
    let item = T::deserialize(value).map_err(|error| {
        let message = error.to_string();
        match message.trim_end().strip_suffix("expected a string") {
            Some(begin) => E::custom(format!("{begin}expected a string or a list of strings")),
            None => error,
        }
    })?;
    Ok(OneOrMany(vec![item]))
}
