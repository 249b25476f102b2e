//! `CURRENT` and the manifests: small JSON files, read with suspicion.
//!
//! Parsing takes two looks: first at `format` and `version` alone, so that a file of a later version is told from a broken
//! one; then at everything, where an unknown field is an error, since it might change what the others mean.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Fault;
use super::chunk::file_prefix_bytes;
use super::object::{Object, object, objects};
use crate::device::SHARDS;
use crate::filter::{FilterKind, FilterSpec, SizingError};

/// `CURRENT` is smaller than this.
pub const MAX_CURRENT_BYTES: u64 = 4096;
/// A manifest is smaller than this: room for 4,096 chunks four times over.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 20;

const VERSION: u32 = 1;
const MANIFEST_FORMAT: &str = "rtad-snapshot";
const CURRENT_FORMAT: &str = "rtad-current";

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

    fn field(field: impl Into<String>, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self::Field { field: field.into(), found: found.to_string(), expected: expected.to_string() }
    }
}

/// The name of an audience: 1 to 64 of `a-z`, `0-9`, `_`, `-`, starting with a letter or digit. Safe as a folder's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AudienceName(String);

/// A string that cannot name an audience.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("audience name {0:?}: accepted are 1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit")]
pub struct NameError(String);

impl AudienceName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AudienceName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        let starts_well = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if starts_well && name.len() <= 64 && name.bytes().all(allowed) {
            Ok(Self(name))
        } else {
            Err(NameError(name.chars().take(80).collect()))
        }
    }
}

impl std::str::FromStr for AudienceName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        name.to_owned().try_into()
    }
}

impl From<AudienceName> for String {
    fn from(name: AudienceName) -> Self {
        name.0
    }
}

impl fmt::Display for AudienceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The SHA-256 of a file; 64 lower-case hex digits in text, so that no path ever comes from a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes. About 1.5 GB/s on a core with SHA instructions.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(super) fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let shown: String = text.chars().take(80).collect();
        let error = || format!("digest {shown:?}: accepted are 64 lower-case hex digits");
        if text.len() != 64 || !text.bytes().all(digits) {
            return Err(error());
        }
        const_hex::decode_to_array(&text).map(Self).map_err(|_| error())
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        const_hex::encode(digest.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&const_hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// First look: what the file is, whatever else it holds.
#[derive(Deserialize)]
struct Envelope {
    format: String,
    version: u32,
}

fn check_envelope(bytes: &[u8], expected: &'static str) -> Result<(), ManifestError> {
    let Envelope { format, version } = from_json(bytes)?;
    if format != expected {
        return Err(ManifestError::Format { found: format.chars().take(40).collect(), expected });
    }
    if version != VERSION {
        return Err(ManifestError::Version { found: version });
    }
    Ok(())
}

fn at_most(what: &'static str, found: u64, limit: u64) -> Result<(), ManifestError> {
    if found > limit { Err(ManifestError::TooLarge { what, found, limit }) } else { Ok(()) }
}

/// `CURRENT`: which generation is live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Current {
    format: String,
    version: u32,
    /// Grows by one each time `CURRENT` is written, rollbacks included: tells a fresh copy from a stale one.
    pub sequence: u64,
    /// The live generation; at least 1.
    pub generation: u64,
    /// Size of its manifest.
    pub manifest_size_bytes: u64,
    /// Digest of its manifest.
    pub manifest_sha256: Digest,
    /// The highest generation that was live before an operator went back to this one: what a reader may still hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_from: Option<u64>,
}

impl Current {
    /// Points at a manifest's bytes.
    pub fn new(sequence: u64, generation: u64, manifest: &[u8], rolled_back_from: Option<u64>) -> Self {
        Self {
            format: CURRENT_FORMAT.to_owned(),
            version: VERSION,
            sequence,
            generation,
            manifest_size_bytes: manifest.len() as u64,
            manifest_sha256: Digest::of(manifest),
            rolled_back_from,
        }
    }

    /// Reads `CURRENT`.
    ///
    /// # Errors
    ///
    /// [`ManifestError`] names the fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        at_most("CURRENT", bytes.len() as u64, MAX_CURRENT_BYTES)?;
        check_envelope(bytes, CURRENT_FORMAT)?;
        let current: Self = from_json(bytes)?;
        at_most("the manifest", current.manifest_size_bytes, MAX_MANIFEST_BYTES)?;
        for (field, value) in [("sequence", current.sequence), ("generation", current.generation)] {
            if value == 0 {
                return Err(ManifestError::field(field, 0, "at least 1"));
            }
        }
        if let Some(from) = current.rolled_back_from
            && from <= current.generation
        {
            return Err(ManifestError::field(
                "rolled_back_from",
                from,
                "more than the generation rolled back to",
            ));
        }
        Ok(current)
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ManifestError> {
    serde_json::from_slice(bytes).map(|Object(value)| value).map_err(ManifestError::Json)
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("plain values serialise");
    bytes.push(b'\n');
    bytes
}

/// One chunk of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkEntry {
    /// SHA-256 of the file, which is also its name.
    pub digest: Digest,
    /// First shard whose filter it holds.
    pub first_shard: u32,
    /// How many neighbouring shards it holds; at least 1.
    pub shard_count: u32,
    /// Distinct keys in them; at least 1.
    pub keys: u64,
    /// Size of the file.
    pub size_bytes: u64,
}

/// Fractions of bits set, over the shards that have keys.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FillRatio {
    /// The emptiest shard.
    pub min: f64,
    /// All shards.
    pub mean: f64,
    /// The fullest shard.
    pub max: f64,
}

/// What the build read: for people, not for readers of the filters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildReport {
    /// Name and version of the program that built it.
    pub tool: String,
    /// Rows read.
    pub rows: u64,
    /// Keys that came up again.
    pub duplicates: u64,
    /// Rows without a usable id.
    pub rejected: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterFields {
    kind: String,
    hashes: u32,
    millibits_per_key: u32,
    target_fpr: f64,
    expected_fpr: f64,
    #[serde(deserialize_with = "object")]
    fill_ratio: FillRatio,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFields {
    format: String,
    version: u32,
    audience: AudienceName,
    generation: u64,
    created_unix_seconds: u64,
    keys: u64,
    size_bytes: u64,
    #[serde(deserialize_with = "object")]
    filter: FilterFields,
    #[serde(deserialize_with = "object")]
    build: BuildReport,
    #[serde(deserialize_with = "objects")]
    chunks: Vec<ChunkEntry>,
}

/// What a generation consists of. Can only be had checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    fields: ManifestFields,
    filter: FilterSpec,
}

/// What a builder knows of a manifest besides its chunks.
#[derive(Debug, Clone)]
pub(super) struct Description {
    pub(super) audience: AudienceName,
    pub(super) generation: u64,
    pub(super) created_unix_seconds: u64,
    pub(super) filter: FilterSpec,
    pub(super) target_fpr: f64,
    pub(super) expected_fpr: f64,
    pub(super) fill_ratio: FillRatio,
    pub(super) build: BuildReport,
}

impl Manifest {
    pub(super) fn from_parts(description: Description, chunks: Vec<ChunkEntry>) -> Self {
        let Description { audience, generation, created_unix_seconds, filter, .. } = description;
        let fields = ManifestFields {
            format: MANIFEST_FORMAT.to_owned(),
            version: VERSION,
            audience,
            generation,
            created_unix_seconds,
            keys: chunks.iter().map(|chunk| chunk.keys).sum(),
            size_bytes: chunks.iter().map(|chunk| chunk.size_bytes).sum(),
            filter: FilterFields {
                kind: filter.kind().as_str().to_owned(),
                hashes: filter.hashes(),
                millibits_per_key: filter.millibits_per_key(),
                target_fpr: description.target_fpr,
                expected_fpr: description.expected_fpr,
                fill_ratio: description.fill_ratio,
            },
            build: description.build,
            chunks,
        };
        Self { fields, filter }
    }

    /// Reads the manifest that a `CURRENT` names: its size and digest first.
    ///
    /// # Errors
    ///
    /// [`ManifestError`] names the fault.
    pub fn parse_named(
        bytes: &[u8],
        audience: &AudienceName,
        current: &Current,
    ) -> Result<Self, ManifestError> {
        let (found, expected) = (bytes.len() as u64, current.manifest_size_bytes);
        if found != expected {
            return Err(ManifestError::Length { found, expected });
        }
        let (found, expected) = (Digest::of(bytes), current.manifest_sha256);
        if found != expected {
            return Err(ManifestError::Digest { found, expected });
        }
        Self::parse(bytes, audience, current.generation)
    }

    /// Reads a manifest that nothing but its name vouches for, as when an older generation is looked at.
    ///
    /// # Errors
    ///
    /// [`ManifestError`] names the fault.
    pub fn parse(bytes: &[u8], audience: &AudienceName, generation: u64) -> Result<Self, ManifestError> {
        at_most("the manifest", bytes.len() as u64, MAX_MANIFEST_BYTES)?;
        check_envelope(bytes, MANIFEST_FORMAT)?;
        let fields: ManifestFields = from_json(bytes)?;
        if &fields.audience != audience {
            return Err(ManifestError::field("audience", &fields.audience, audience));
        }
        if fields.generation != generation {
            return Err(ManifestError::field("generation", fields.generation, generation));
        }
        let FilterFields { kind, hashes, millibits_per_key, target_fpr, expected_fpr, fill_ratio } =
            &fields.filter;
        let known: FilterKind =
            kind.parse().map_err(|_| ManifestError::FilterKind { found: kind.chars().take(40).collect() })?;
        let filter = FilterSpec::new(known, *hashes, *millibits_per_key).map_err(ManifestError::Filter)?;
        let FillRatio { min, mean, max } = fill_ratio;
        for (name, value) in [
            ("target_fpr", target_fpr),
            ("expected_fpr", expected_fpr),
            ("fill_ratio.min", min),
            ("fill_ratio.mean", mean),
            ("fill_ratio.max", max),
        ] {
            if !(0.0..=1.0).contains(value) {
                return Err(ManifestError::field(format!("filter.{name}"), value, "0 to 1"));
            }
        }
        check_chunks(&fields)?;
        Ok(Self { fields, filter })
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(&self.fields)
    }

    /// The audience.
    pub const fn audience(&self) -> &AudienceName {
        &self.fields.audience
    }

    /// The generation; at least 1.
    pub const fn generation(&self) -> u64 {
        self.fields.generation
    }

    /// When it was built, in seconds since 1970 UTC.
    pub const fn created_unix_seconds(&self) -> u64 {
        self.fields.created_unix_seconds
    }

    /// Distinct device keys.
    pub const fn keys(&self) -> u64 {
        self.fields.keys
    }

    /// Bytes of all its chunks.
    pub const fn size_bytes(&self) -> u64 {
        self.fields.size_bytes
    }

    /// How every shard's filter is read.
    #[inline]
    pub const fn filter(&self) -> &FilterSpec {
        &self.filter
    }

    /// The false-positive rate that was asked for, 0 to 1.
    pub const fn target_fpr(&self) -> f64 {
        self.fields.filter.target_fpr
    }

    /// The false-positive rate that the filters' fill gives, over all 65,536 shards, 0 to 1.
    pub const fn expected_fpr(&self) -> f64 {
        self.fields.filter.expected_fpr
    }

    /// Fractions of bits set.
    pub const fn fill_ratio(&self) -> FillRatio {
        self.fields.filter.fill_ratio
    }

    /// What the build read.
    pub const fn build(&self) -> &BuildReport {
        &self.fields.build
    }

    /// The chunks, in shard order. Shards between two chunks have no keys.
    pub fn chunks(&self) -> &[ChunkEntry] {
        &self.fields.chunks
    }
}

/// Chunks stand in shard order, overlap nowhere, are big enough for their own header, and add up to the totals.
fn check_chunks(fields: &ManifestFields) -> Result<(), ManifestError> {
    let mut next_shard = 0;
    // Wide enough that no chunks overflow them: a sum that stopped at the highest u64 could agree with a false total.
    let (mut keys, mut size_bytes) = (0_u128, 0_u128);
    for (index, chunk) in fields.chunks.iter().enumerate() {
        let field = |name: &str| format!("chunks[{index}].{name}");
        let first = u64::from(chunk.first_shard);
        let end = first + u64::from(chunk.shard_count);
        if first < next_shard || first >= SHARDS as u64 {
            let expected = format!("{next_shard} to {}", SHARDS - 1);
            return Err(ManifestError::field(field("first_shard"), first, expected));
        }
        if chunk.shard_count == 0 || end > SHARDS as u64 {
            let expected = format!("1 to {}", SHARDS as u64 - first);
            return Err(ManifestError::field(field("shard_count"), chunk.shard_count, expected));
        }
        if chunk.keys == 0 {
            return Err(ManifestError::field(field("keys"), 0, "at least 1"));
        }
        let least = file_prefix_bytes(chunk.shard_count) + 8;
        if chunk.size_bytes < least {
            return Err(ManifestError::field(
                field("size_bytes"),
                chunk.size_bytes,
                format!("at least {least}"),
            ));
        }
        next_shard = end;
        keys += u128::from(chunk.keys);
        size_bytes += u128::from(chunk.size_bytes);
    }
    for (field, found, expected) in
        [("keys", fields.keys, keys), ("size_bytes", fields.size_bytes, size_bytes)]
    {
        if u128::from(found) != expected {
            return Err(ManifestError::field(field, found, format!("{expected}, the sum over its chunks")));
        }
    }
    Ok(())
}
