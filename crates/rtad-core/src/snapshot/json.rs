//! JSON of records and manifests: strict parsing and errors.
//!
//! Parsing has two steps. The first reads only `format` and `version`, to distinguish a newer
//! version from a broken file. The second reads all fields; an unknown field is an error, because
//! it could change the meaning of the others.

use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

use super::Fault;
use super::name::Digest;
use crate::filter::SizingError;

/// Size limit of a record.
pub const MAX_RECORD_BYTES: u64 = 64 << 10;
/// Size limit of a manifest: four times the size for 4,096 chunks.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// The version of both formats.
pub const VERSION: u32 = 1;

/// Reason why a record or manifest is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Not JSON, or not the fields of this version.
    #[error("is not valid in version 1 of the format: {reason}")]
    Json {
        /// The parser's message: one line, shortened.
        reason: String,
    },
    /// Another kind of file.
    #[error("format is {found:?}, expected {expected:?}")]
    Format {
        /// The format found.
        found: String,
        /// The expected format.
        expected: &'static str,
    },
    /// Written by a newer rtad.
    #[error("version is {found}, this rtad reads version 1: upgrade rtad")]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// Unknown filter kind.
    #[error("filter kind is {found:?}, this rtad knows block512 and ribbon: upgrade rtad")]
    FilterKind {
        /// The name in the manifest.
        found: String,
    },
    /// The filter's numbers are out of range.
    #[error("filter")]
    Filter(#[source] SizingError),
    /// A field has an invalid value.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Its path in the file.
        field: String,
        /// The value found.
        found: String,
        /// The accepted values.
        expected: String,
    },
    /// The bytes are not the published ones.
    #[error(
        "digest is {found}, expected {expected}: \
         the file was changed; publish again with `rtad-loader build`"
    )]
    Digest {
        /// Digest of the bytes read.
        found: Digest,
        /// Digest in the record.
        expected: Digest,
    },
    /// The file does not have its published size.
    #[error("has {found} bytes, expected {expected}")]
    Length {
        /// Bytes read.
        found: u64,
        /// Bytes published.
        expected: u64,
    },
    /// Larger than the limit.
    #[error("{what} is {found} bytes, the limit is {limit}")]
    TooLarge {
        /// The file.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
}

impl ManifestError {
    /// The kind of fault, for the metric.
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

/// The fields that identify a file; ignores all others.
#[derive(serde::Deserialize)]
struct Envelope {
    format: String,
    version: u32,
}

/// Checks format and version.
pub fn check_envelope(bytes: &[u8], expected: &'static str) -> Result<(), ManifestError> {
    let Envelope { format, version } = from_json(bytes)?;
    if format != expected {
        return Err(ManifestError::Format {
            found: format.chars().take(40).collect(),
            expected,
        });
    }
    if version != VERSION {
        return Err(ManifestError::Version { found: version });
    }
    Ok(())
}

/// Rejects sizes above the limit.
pub fn at_most(what: &'static str, found: u64, limit: u64) -> Result<(), ManifestError> {
    if found > limit {
        Err(ManifestError::TooLarge { what, found, limit })
    } else {
        Ok(())
    }
}

/// Parses an object with known fields only.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ManifestError> {
    serde_json::from_slice(bytes).map_err(json_error)
}

/// The error of a file that is not valid. The parser quotes unknown fields whole.
fn json_error(error: serde_json::Error) -> ManifestError {
    const MAX_CHARS: usize = 500;
    let text = error.to_string();
    let mut reason = String::new();
    for character in text.chars().take(MAX_CHARS) {
        if character.is_control() {
            reason.extend(character.escape_debug());
        } else {
            reason.push(character);
        }
    }
    if text.chars().nth(MAX_CHARS).is_some() {
        reason.push_str(&format!(
            "… at line {} column {}",
            error.line(),
            error.column()
        ));
    }
    ManifestError::Json { reason }
}

/// Formats a value as indented JSON.
pub fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("plain values serialize");
    bytes.push(b'\n');
    bytes
}

/// `deserialize_with` for an optional value: the field may be absent, but not `null`.
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// `skip_serializing_if` for a number.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub const fn is_zero(number: &u64) -> bool {
    *number == 0
}
