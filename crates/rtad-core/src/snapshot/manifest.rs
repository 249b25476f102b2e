//! Manifest: the filter parameters, statistics and chunks of a generation.
//!
//! A [`Manifest`] is always checked: against the record that names it, or, for an older
//! generation, against the audience and generation in its path.

mod checks;

use serde::{Deserialize, Serialize};

use super::chunk::ChunkEntry;
use super::current::{GenerationEntry, check_in_order};
use super::delta::DeltaEntry;
use super::json::{
    MAX_MANIFEST_BYTES, ManifestError, VERSION, at_most, check_envelope, from_json, present,
    to_json,
};
use super::lineage::{BuildReport, Lineage};
use super::name::{AudienceName, Digest};
use crate::clock::now_unix_seconds;
use crate::filter::{FilterKind, FilterSpec};
use checks::{check_build, check_chunks, check_figures};

const FORMAT: &str = "rtad-snapshot";
/// The generation of a manifest before its publication.
const UNNUMBERED: u64 = 0;

/// Fraction of bits set, over the shards that have keys.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FillRatio {
    /// Lowest over the shards.
    pub min: f64,
    /// Mean over the shards.
    pub mean: f64,
    /// Highest over the shards.
    pub max: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterFields {
    kind: String,
    hashes: u32,
    millibits_per_key: u32,
    /// Bits of each key's value.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    value_bits: Option<u32>,
    target_fpr: f64,
    expected_fpr: f64,
    /// The fill of Bloom filters.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    fill_ratio: Option<FillRatio>,
    /// Keys outside the first tier of ribbon filters.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    diverted_keys: Option<u64>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    listed_keys: Option<u64>,
}

/// Figures of the filters, by their kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Figures {
    Bloom(FillRatio),
    Ribbon(OverflowKeys),
}

/// Keys that are in no first tier of a ribbon filter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct OverflowKeys {
    /// Keys of second tiers.
    pub(super) diverted_keys: u64,
    /// Entries of lists.
    pub(super) listed_keys: u64,
}

/// The deltas merged into a generation's filters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folded {
    /// The sequence of the record at the start of the build: deltas up to it are merged.
    pub through: u64,
    /// The merged deltas, oldest first; the last may have later changes, too. A rollback to an
    /// older generation applies them again. Set by the publish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deltas: Vec<DeltaEntry>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFields {
    format: String,
    version: u32,
    audience: AudienceName,
    generation: u64,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    base_generation: Option<u64>,
    created_unix_seconds: u64,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    expires_unix_seconds: Option<u64>,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    from_window: Option<AudienceName>,
    keys: u64,
    size_bytes: u64,
    filter: FilterFields,
    build: BuildReport,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    lineage: Option<Lineage>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    folded: Option<Folded>,
    chunks: Vec<ChunkEntry>,
}

/// A checked manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    fields: ManifestFields,
    filter: FilterSpec,
}

/// Facts of a generation, beside its audience and its chunks.
#[derive(Debug, Clone, Default)]
pub struct GenerationFacts {
    /// When it was built, in seconds since 1970 UTC.
    pub created_unix_seconds: u64,
    /// End of validity, in seconds since 1970 UTC; later than the build.
    pub expires_unix_seconds: Option<u64>,
    /// The window of events that the audience follows.
    pub from_window: Option<AudienceName>,
    /// Report of the build.
    pub build: BuildReport,
    /// Labels and inputs.
    pub lineage: Lineage,
    /// The deltas merged into the filters; `None` if nothing was live.
    pub folded: Option<Folded>,
}

impl GenerationFacts {
    /// Facts of a generation that `tool`, a name and a version, builds now.
    pub fn built_now_by(tool: &str) -> Self {
        Self {
            created_unix_seconds: now_unix_seconds(),
            build: BuildReport {
                tool: tool.to_owned(),
                ..BuildReport::default()
            },
            ..Self::default()
        }
    }
}

/// A builder's input for a manifest, except chunks.
#[derive(Debug, Clone)]
pub(super) struct Description {
    pub(super) audience: AudienceName,
    pub(super) filter: FilterSpec,
    pub(super) target_fpr: f64,
    pub(super) expected_fpr: f64,
    pub(super) figures: Figures,
    pub(super) facts: GenerationFacts,
}

impl Manifest {
    /// A manifest without a number, checked as readers check it.
    pub(super) fn from_parts(
        description: Description,
        chunks: Vec<ChunkEntry>,
    ) -> Result<Self, ManifestError> {
        let Description {
            audience,
            filter,
            facts,
            ..
        } = description;

        // Chunks may be from a damaged journal; parsing rejects a saturated sum.
        let (fill_ratio, ribbon) = match description.figures {
            Figures::Bloom(fill_ratio) => (Some(fill_ratio), None),
            Figures::Ribbon(ribbon) => (None, Some(ribbon)),
        };
        let sum =
            |size: fn(&ChunkEntry) -> u64| chunks.iter().map(size).fold(0, u64::saturating_add);
        let fields = ManifestFields {
            format: FORMAT.to_owned(),
            version: VERSION,
            audience,
            generation: UNNUMBERED,
            base_generation: None,
            created_unix_seconds: facts.created_unix_seconds,
            expires_unix_seconds: facts.expires_unix_seconds,
            from_window: facts.from_window,
            keys: sum(|chunk| chunk.keys),
            size_bytes: sum(|chunk| chunk.size_bytes),
            filter: FilterFields {
                kind: filter.kind().as_str().to_owned(),
                hashes: filter.hashes(),
                millibits_per_key: filter.millibits_per_key(),
                value_bits: (filter.value_bits() > 0).then_some(filter.value_bits()),
                target_fpr: description.target_fpr,
                expected_fpr: description.expected_fpr,
                fill_ratio,
                diverted_keys: ribbon.map(|ribbon| ribbon.diverted_keys),
                listed_keys: ribbon.map(|ribbon| ribbon.listed_keys),
            },
            build: facts.build,
            lineage: Some(facts.lineage).filter(|lineage| *lineage != Lineage::default()),
            folded: facts.folded,
            chunks,
        };

        let manifest = Self { fields, filter };
        Self::parse(&manifest.to_bytes(), manifest.audience(), UNNUMBERED)?;
        Ok(manifest)
    }

    /// Parses the manifest that a record names, after checking its size and digest.
    ///
    /// # Errors
    ///
    /// [`ManifestError`].
    pub fn parse_named(
        bytes: &[u8],
        audience: &AudienceName,
        entry: &GenerationEntry,
    ) -> Result<Self, ManifestError> {
        let found = bytes.len() as u64;
        let expected = entry.manifest_size_bytes;
        if found != expected {
            return Err(ManifestError::Length { found, expected });
        }
        let found = Digest::of(bytes);
        let expected = entry.manifest_sha256;
        if found != expected {
            return Err(ManifestError::Digest { found, expected });
        }
        Self::parse(bytes, audience, entry.generation)
    }

    /// Parses a manifest without a digest to check, such as that of an older generation.
    ///
    /// # Errors
    ///
    /// [`ManifestError`].
    pub fn parse(
        bytes: &[u8],
        audience: &AudienceName,
        generation: u64,
    ) -> Result<Self, ManifestError> {
        at_most("the manifest", bytes.len() as u64, MAX_MANIFEST_BYTES)?;
        check_envelope(bytes, FORMAT)?;
        let fields: ManifestFields = from_json(bytes)?;
        if &fields.audience != audience {
            return Err(ManifestError::field("audience", &fields.audience, audience));
        }
        if fields.generation != generation {
            return Err(ManifestError::field(
                "generation",
                fields.generation,
                generation,
            ));
        }

        if let Some(base) = fields.base_generation.filter(|base| *base >= generation) {
            let expected = format!("less than generation, {generation}");
            return Err(ManifestError::field("base_generation", base, expected));
        }

        let FilterFields {
            kind,
            hashes,
            millibits_per_key,
            target_fpr,
            expected_fpr,
            ..
        } = &fields.filter;

        let known: FilterKind = kind.parse().map_err(|_| ManifestError::FilterKind {
            found: kind.chars().take(40).collect(),
        })?;
        let filter =
            FilterSpec::new(known, *hashes, *millibits_per_key).map_err(ManifestError::Filter)?;
        let filter = match fields.filter.value_bits {
            Some(bits) => filter
                .with_value_bits(bits)
                .map_err(ManifestError::Filter)?,
            None => filter,
        };

        let FillRatio { min, mean, max } = check_figures(known, &fields.filter)?;
        for (name, value) in [
            ("target_fpr", *target_fpr),
            ("expected_fpr", *expected_fpr),
            ("fill_ratio.min", min),
            ("fill_ratio.mean", mean),
            ("fill_ratio.max", max),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(ManifestError::field(
                    format!("filter.{name}"),
                    value,
                    "0 to 1",
                ));
            }
        }

        if let Some(expires) = fields.expires_unix_seconds
            && expires <= fields.created_unix_seconds
        {
            let expected = format!(
                "more than created_unix_seconds, {}",
                fields.created_unix_seconds
            );
            return Err(ManifestError::field(
                "expires_unix_seconds",
                expires,
                expected,
            ));
        }

        check_build(&fields.build)?;
        check_chunks(&fields, known)?;
        if let Some(folded) = &fields.folded {
            check_in_order(&folded.deltas, "folded.deltas", u64::MAX)?;
        }
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

    /// The generation: at least 1, or 0 before its publication.
    pub const fn generation(&self) -> u64 {
        self.fields.generation
    }

    /// Sets the generation.
    #[must_use]
    pub const fn numbered(mut self, generation: u64) -> Self {
        self.fields.generation = generation;
        self
    }

    /// Sets the generation that was live when this one was published; 0 if there was none.
    #[must_use]
    pub const fn over_generation(mut self, base: u64) -> Self {
        self.fields.base_generation = Some(base);
        self
    }

    /// The generation that was live when this one was published; 0 if there was none, `None` if the
    /// writer did not say.
    pub const fn base_generation(&self) -> Option<u64> {
        self.fields.base_generation
    }

    /// When it was built, in seconds since 1970 UTC.
    pub const fn created_unix_seconds(&self) -> u64 {
        self.fields.created_unix_seconds
    }

    /// End of validity, in seconds since 1970 UTC; not served from then on. `None` if unlimited.
    pub const fn expires_unix_seconds(&self) -> Option<u64> {
        self.fields.expires_unix_seconds
    }

    /// Whether its validity has ended at `now`, in seconds since 1970 UTC.
    pub fn is_expired(&self, now_unix_seconds: u64) -> bool {
        self.fields
            .expires_unix_seconds
            .is_some_and(|expires| now_unix_seconds >= expires)
    }

    /// The window of events that the audience follows: it changes at any second, and readers poll
    /// it more often. No other command or window may write it.
    pub const fn from_window(&self) -> Option<&AudienceName> {
        self.fields.from_window.as_ref()
    }

    /// Distinct device keys.
    pub const fn keys(&self) -> u64 {
        self.fields.keys
    }

    /// Size of all chunks, in bytes.
    pub const fn size_bytes(&self) -> u64 {
        self.fields.size_bytes
    }

    /// The spec of the shards' filters.
    #[inline]
    pub const fn filter(&self) -> &FilterSpec {
        &self.filter
    }

    /// The requested false-positive rate, 0 to 1.
    pub const fn target_fpr(&self) -> f64 {
        self.fields.filter.target_fpr
    }

    /// The false-positive rate by the filters' fill, over all 65,536 shards, 0 to 1.
    pub const fn expected_fpr(&self) -> f64 {
        self.fields.filter.expected_fpr
    }

    /// Fractions of bits set; `None` for ribbon filters.
    pub const fn fill_ratio(&self) -> Option<FillRatio> {
        self.fields.filter.fill_ratio
    }

    /// Keys in second tiers of ribbon filters, and in their lists; `None` for Bloom filters.
    pub fn diverted_and_listed_keys(&self) -> Option<(u64, u64)> {
        self.fields
            .filter
            .diverted_keys
            .zip(self.fields.filter.listed_keys)
    }

    /// Report of the build.
    pub const fn build(&self) -> &BuildReport {
        &self.fields.build
    }

    /// The merged deltas; `None` if there were none at the build.
    pub const fn folded(&self) -> Option<&Folded> {
        self.fields.folded.as_ref()
    }

    /// Every delta that it names. A rollback may need them.
    pub fn folded_deltas(&self) -> impl Iterator<Item = &DeltaEntry> {
        self.folded().into_iter().flat_map(|folded| &folded.deltas)
    }

    /// Origin of the generation; `None` if nothing is known.
    pub const fn lineage(&self) -> Option<&Lineage> {
        self.fields.lineage.as_ref()
    }

    /// Sets the merged deltas.
    #[must_use]
    pub fn with_folded(mut self, folded: Folded) -> Self {
        self.fields.folded = Some(folded);
        self
    }

    /// The chunks, in shard order. Shards between two chunks have no keys.
    pub fn chunks(&self) -> &[ChunkEntry] {
        &self.fields.chunks
    }
}
