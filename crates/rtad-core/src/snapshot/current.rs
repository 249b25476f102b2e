//! `CURRENT`: the live generation of an audience and its deltas. The only file that changes.

use serde::{Deserialize, Serialize};

use super::delta::{DeltaEntry, MAX_DELTAS};
use super::json::{
    MAX_CURRENT_BYTES, MAX_MANIFEST_BYTES, ManifestError, VERSION, at_most, check_envelope,
    from_json, present, to_json,
};
use super::name::Digest;

const FORMAT: &str = "rtad-current";

/// The content of `CURRENT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Current {
    format: String,
    version: u32,
    /// Incremented on every write of `CURRENT`, including rollbacks: identifies stale copies.
    pub sequence: u64,
    /// The live generation; at least 1.
    pub generation: u64,
    /// Size of its manifest.
    pub manifest_size_bytes: u64,
    /// Digest of its manifest.
    pub manifest_sha256: Digest,
    /// The highest generation that was live before a rollback: readers may still have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_from: Option<u64>,
    /// Deltas up to this sequence are not merged with later ones, so that a rollback can omit them.
    /// They belong to a generation that was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_merge_through: Option<u64>,
    /// The sequence of the `CURRENT` that made this generation live; later ones change only deltas.
    /// Equal to `sequence` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published_sequence: Option<u64>,
    /// The deltas that apply, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deltas: Vec<DeltaEntry>,
    /// Erased devices: never members, in any generation, until the tombstone is lifted.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub tombstones: Option<DeltaEntry>,
    /// When the newest change was published, in seconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appended_unix_seconds: Option<u64>,
    /// Identifies the writer, for two writers that append the same at the same time. Readers ignore
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u64>,
    /// Whether the audience may be served.
    #[serde(default, skip_serializing_if = "State::is_live")]
    pub state: State,
    /// End of validity, in seconds since 1970 UTC; not served from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_seconds: Option<u64>,
}

/// Whether an audience may be served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Served.
    #[default]
    Live,
    /// Unavailable until it is enabled again. Its files stay.
    Disabled,
    /// Unavailable, and its files are deleted. Only `CURRENT` stays, for running pods.
    Deleted,
}

impl State {
    /// Whether it may be served.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Live)
    }

    /// The name in files and in the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
        }
    }
}

/// State and end of validity of an audience.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Validity {
    /// Whether the audience may be served.
    pub state: State,
    /// End of validity, in seconds since 1970 UTC; `None` is without end.
    pub expires_unix_seconds: Option<u64>,
}

impl Validity {
    /// The stricter state, and the earlier end of validity. A deletion cannot be undone.
    #[must_use]
    pub fn stricter(self, later: Self) -> Self {
        let state = match (self.state, later.state) {
            (State::Deleted, _) | (_, State::Live) => self.state,
            _ => later.state,
        };
        let expires_unix_seconds = match (self.expires_unix_seconds, later.expires_unix_seconds) {
            (Some(expires), Some(later)) => Some(expires.min(later)),
            (expires, later) => expires.or(later),
        };
        Self {
            state,
            expires_unix_seconds,
        }
    }
}

impl Current {
    /// A `CURRENT` that names a manifest by its bytes.
    pub fn new(
        sequence: u64,
        generation: u64,
        manifest: &[u8],
        rolled_back_from: Option<u64>,
    ) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            sequence,
            generation,
            manifest_size_bytes: manifest.len() as u64,
            manifest_sha256: Digest::of(manifest),
            rolled_back_from,
            no_merge_through: None,
            published_sequence: None,
            deltas: Vec::new(),
            tombstones: None,
            appended_unix_seconds: None,
            owner: None,
            state: State::Live,
            expires_unix_seconds: None,
        }
    }

    /// Parses `CURRENT`.
    ///
    /// # Errors
    ///
    /// [`ManifestError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        at_most("CURRENT", bytes.len() as u64, MAX_CURRENT_BYTES)?;
        check_envelope(bytes, FORMAT)?;
        let current: Self = from_json(bytes)?;
        at_most(
            "the manifest",
            current.manifest_size_bytes,
            MAX_MANIFEST_BYTES,
        )?;
        for (field, value) in [
            ("sequence", current.sequence),
            ("generation", current.generation),
        ] {
            if value == 0 {
                return Err(ManifestError::field(field, 0, "at least 1"));
            }
        }
        if current
            .published_sequence
            .is_some_and(|published| published == 0 || published > current.sequence)
        {
            return Err(ManifestError::field(
                "published_sequence",
                current.published_sequence(),
                format!("1 to {}", current.sequence),
            ));
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
        current.check_deltas()?;
        Ok(current)
    }

    fn check_deltas(&self) -> Result<(), ManifestError> {
        if self.deltas.len() > MAX_DELTAS {
            return Err(ManifestError::field(
                "deltas",
                self.deltas.len(),
                format!("at most {MAX_DELTAS}"),
            ));
        }
        check_in_order(&self.deltas, "deltas", self.sequence)?;
        let Some(tombstones) = &self.tombstones else {
            return Ok(());
        };
        tombstones.check("tombstones", self.sequence)?;
        match tombstones.added {
            0 => Ok(()),
            added => Err(ManifestError::field("tombstones.added", added, 0)),
        }
    }

    /// The sequence of the `CURRENT` that made this generation live. Later ones with the same value
    /// differ only in deltas.
    pub fn published_sequence(&self) -> u64 {
        self.published_sequence.unwrap_or(self.sequence)
    }

    /// The next `CURRENT` with the same content.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            sequence: self.sequence.saturating_add(1),
            published_sequence: Some(self.published_sequence()),
            ..self.clone()
        }
    }

    /// The next `CURRENT` of the audience, deleted and without deltas. Tombstones stay: a later
    /// build from an export must omit erased devices. Counts as a publish, so that a build begun
    /// before the deletion cannot publish after it.
    #[must_use]
    pub fn deleted(&self) -> Self {
        Self {
            sequence: self.sequence.saturating_add(1),
            published_sequence: None,
            no_merge_through: None,
            deltas: Vec::new(),
            appended_unix_seconds: None,
            owner: None,
            state: State::Deleted,
            expires_unix_seconds: None,
            ..self.clone()
        }
    }

    /// Its tombstones, then its deltas, oldest first: the order in which they are read.
    pub fn delta_entries(&self) -> impl Iterator<Item = &DeltaEntry> {
        self.tombstones.iter().chain(&self.deltas)
    }

    /// The state and the end of validity.
    pub const fn validity(&self) -> Validity {
        Validity {
            state: self.state,
            expires_unix_seconds: self.expires_unix_seconds,
        }
    }

    /// Restricts this `CURRENT` to the stricter state and the earlier expiry of both.
    #[must_use]
    pub fn restricted_by(self, later: &Self) -> Self {
        let Validity {
            state,
            expires_unix_seconds,
        } = self.validity().stricter(later.validity());
        Self {
            state,
            expires_unix_seconds,
            ..self
        }
    }

    /// This `CURRENT` with the tombstones of a later one.
    #[must_use]
    pub fn with_tombstones_of(self, later: &Self) -> Self {
        Self {
            // No entry may be newer than its `CURRENT`.
            sequence: self.sequence.max(later.sequence),
            published_sequence: Some(self.published_sequence()),
            tombstones: later.tombstones.clone(),
            ..self
        }
    }

    /// The highest generation that a reader of this or an earlier `CURRENT` may have.
    pub fn highest_generation(&self) -> u64 {
        self.rolled_back_from.unwrap_or(self.generation)
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }
}

/// Checks that the deltas are valid and ordered from oldest to newest.
pub fn check_in_order(
    deltas: &[DeltaEntry],
    field: &str,
    newest: u64,
) -> Result<(), ManifestError> {
    let mut oldest = 0;
    for (index, delta) in deltas.iter().enumerate() {
        let field = format!("{field}[{index}]");
        delta.check(&field, newest)?;
        if delta.last <= oldest {
            return Err(ManifestError::field(
                format!("{field}.last"),
                delta.last,
                format!("more than {oldest}"),
            ));
        }
        oldest = delta.last;
    }
    Ok(())
}
