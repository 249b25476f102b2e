//! `CURRENT`: the one file that changes. Names a generation and the deltas that apply to it.

use serde::{Deserialize, Serialize};

use super::delta::{DeltaEntry, MAX_DELTAS};
use super::json::{
    MAX_CURRENT_BYTES, MAX_MANIFEST_BYTES, ManifestError, VERSION, at_most, check_envelope,
    from_json, objects, some_object, to_json,
};
use super::name::Digest;

const FORMAT: &str = "rtad-current";

/// `CURRENT`: which generation is live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Current {
    format: String,
    version: u32,
    /// Grows by one each time `CURRENT` is written, rollbacks included: tells a fresh copy from a
    /// stale one.
    pub sequence: u64,
    /// The live generation; at least 1.
    pub generation: u64,
    /// Size of its manifest.
    pub manifest_size_bytes: u64,
    /// Digest of its manifest.
    pub manifest_sha256: Digest,
    /// The highest generation that was live before an operator went back to this one: what a reader
    /// may still hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_from: Option<u64>,
    /// Deltas up to this sequence are not merged with later ones, so that a rollback can leave them
    /// out: they belong to a generation that was rolled back from, or are this one's residual.
    /// Files written before the rename have the old name.
    #[serde(default, alias = "kept_apart_through", skip_serializing_if = "Option::is_none")]
    pub no_merge_through: Option<u64>,
    /// The sequence of the `CURRENT` that a build or a rollback made this generation live with;
    /// what was written since is about deltas alone. This one's own, if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published_sequence: Option<u64>,
    /// The deltas that apply, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "objects")]
    pub deltas: Vec<DeltaEntry>,
    /// Devices that are no members, whatever anything else says: of all generations, until told
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_object")]
    pub tombstones: Option<DeltaEntry>,
    /// When the newest change was published, in seconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appended_unix_seconds: Option<u64>,
    /// Tells two writers apart that append the same at the same time: only one of them has written
    /// what it finds there. Means nothing to readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u64>,
    /// Whether it may be served at all.
    #[serde(default, skip_serializing_if = "State::is_live")]
    pub state: State,
    /// From when on it may not be served, in seconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_seconds: Option<u64>,
}

/// Whether an audience may be served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It may.
    #[default]
    Live,
    /// It counts as unavailable until it is enabled again. Its files stay.
    Disabled,
    /// The same, and its files go: only this one stays, so that pods that run learn of it.
    Deleted,
}

impl State {
    /// Whether it may be served.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Live)
    }

    /// Its name in files and on status pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
        }
    }
}

impl Current {
    /// Points at a manifest's bytes.
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

    /// Reads `CURRENT`.
    ///
    /// # Errors
    ///
    /// [`ManifestError`] names the fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        at_most("CURRENT", bytes.len() as u64, MAX_CURRENT_BYTES)?;
        check_envelope(bytes, FORMAT)?;
        let current: Self = from_json(bytes)?;
        at_most("the manifest", current.manifest_size_bytes, MAX_MANIFEST_BYTES)?;
        for (field, value) in [("sequence", current.sequence), ("generation", current.generation)] {
            if value == 0 {
                return Err(ManifestError::field(field, 0, "at least 1"));
            }
        }
        if current
            .published_sequence
            .is_some_and(|published| published == 0 || published > current.sequence)
        {
            let accepted = format!("1 to {}", current.sequence);
            return Err(ManifestError::field(
                "published_sequence",
                current.published_sequence(),
                accepted,
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
        let Some(tombstones) = &self.tombstones else { return Ok(()) };
        tombstones.check("tombstones", self.sequence)?;
        match tombstones.added {
            0 => Ok(()),
            added => Err(ManifestError::field("tombstones.added", added, 0)),
        }
    }

    /// The sequence of the `CURRENT` that made this generation live. Later ones with the same
    /// differ in deltas alone.
    pub fn published_sequence(&self) -> u64 {
        self.published_sequence.unwrap_or(self.sequence)
    }

    /// The same generation, named once more, with what else it says taken over.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            sequence: self.sequence.saturating_add(1),
            published_sequence: Some(self.published_sequence()),
            ..self.clone()
        }
    }

    /// The same audience, deleted: nothing said over a generation applies any more. Tombstones
    /// stay, as whoever builds the audience anew from an export must leave out who was erased. It
    /// counts as published, so that what was begun over the generation is not published over its
    /// deletion.
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

    /// The highest generation that any reader of it, or of one before it, may hold.
    pub fn highest_generation(&self) -> u64 {
        self.rolled_back_from.unwrap_or(self.generation)
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }
}

/// That deltas can be, and stand from the oldest to the newest.
pub(super) fn check_in_order(
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
