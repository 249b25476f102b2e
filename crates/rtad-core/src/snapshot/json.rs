//! What `CURRENT` and the manifests have in common: JSON read with suspicion.
//!
//! Parsing takes two looks: first at `format` and `version` alone, so that a file of a later
//! version is told from a broken one; then at everything, where an unknown field is an error, since
//! it might change what the others mean.
//!
//! What serde derives for a struct also takes a list of its values, without their names. The format
//! has no such spelling, and a reader that took it would read files that others refuse: so every
//! object here is read as an [`Object`].

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};

use super::Fault;
use super::name::Digest;
use crate::filter::SizingError;

/// `CURRENT` is smaller than this.
pub const MAX_CURRENT_BYTES: u64 = 4096;
/// A manifest is smaller than this: room for 4,096 chunks four times over.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// The version of both files.
pub(super) const VERSION: u32 = 1;

/// A `CURRENT` or manifest that is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Not JSON, or not the fields that the version has.
    #[error("is not what version 1 of the format allows")]
    Json(#[source] serde_json::Error),
    /// Another kind of file.
    #[error("format is {found:?}, expected {expected:?}")]
    Format {
        /// What the file says it is.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Written by a later rtad.
    #[error("version is {found}, this rtad reads version 1: upgrade rtad")]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// A filter kind that this build does not know.
    #[error("filter kind is {found:?}, this rtad knows classic and block512: upgrade rtad")]
    FilterKind {
        /// The name in the manifest.
        found: String,
    },
    /// The filter's numbers make no sense.
    #[error("filter")]
    Filter(#[source] SizingError),
    /// A field has a value that it cannot have.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Where in the file.
        field: String,
        /// Its value.
        found: String,
        /// What is accepted.
        expected: String,
    },
    /// The bytes are not those that were published.
    #[error(
        "digest is {found}, expected {expected}: the file was changed; publish again with `rtad-loader build`"
    )]
    Digest {
        /// Digest of the bytes read.
        found: Digest,
        /// Digest they were published under.
        expected: Digest,
    },
    /// The file is not as long as it was when it was published.
    #[error("has {found} bytes, expected {expected}")]
    Length {
        /// Bytes read.
        found: u64,
        /// Bytes published.
        expected: u64,
    },
    /// More than the reader may hold.
    #[error("{what} is {found} bytes, the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
}

impl ManifestError {
    /// The kind of fault, for counting.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Digest { .. } => Fault::Digest,
            Self::Length { .. } => Fault::Truncated,
            Self::TooLarge { .. } => Fault::TooLarge,
            _ => Fault::Format,
        }
    }

    pub(super) fn field(
        field: impl Into<String>,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self::Field {
            field: field.into(),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

/// First look: what the file is, whatever else it holds.
#[derive(serde::Deserialize)]
struct Envelope {
    format: String,
    version: u32,
}

/// Takes the first look.
pub(super) fn check_envelope(bytes: &[u8], expected: &'static str) -> Result<(), ManifestError> {
    let Envelope { format, version } = from_json(bytes)?;
    if format != expected {
        return Err(ManifestError::Format { found: format.chars().take(40).collect(), expected });
    }
    if version != VERSION {
        return Err(ManifestError::Version { found: version });
    }
    Ok(())
}

/// Refuses more than the limit.
pub(super) fn at_most(what: &'static str, found: u64, limit: u64) -> Result<(), ManifestError> {
    if found > limit { Err(ManifestError::TooLarge { what, found, limit }) } else { Ok(()) }
}

/// Reads an object of known fields.
pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ManifestError> {
    serde_json::from_slice(bytes).map(|Object(value)| value).map_err(ManifestError::Json)
}

/// Writes it for people to read, too.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("plain values serialise");
    bytes.push(b'\n');
    bytes
}

/// A struct that is read from an object only.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// For a field: `#[serde(deserialize_with = "object")]`.
pub(super) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// For a field that may be missing.
pub(super) fn some_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    object(deserializer).map(Some)
}

/// For a field that is a list of objects.
pub(super) fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|Object(value)| value).collect())
}
