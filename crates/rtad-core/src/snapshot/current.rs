//! Record: the whole state of an audience at one number: the live generation, those that a rollback
//! may return to, and the deltas. Created once and never changed; the newest record is live.

use serde::{Deserialize, Serialize};

use super::delta::{DeltaEntry, MAX_DELTAS};
use super::json::{
    MAX_MANIFEST_BYTES, MAX_RECORD_BYTES, ManifestError, VERSION, at_most, check_envelope,
    from_json, present,
};
use super::name::{AudienceName, Digest};

const FORMAT: &str = "rtad-record";

/// Places of pods in the order of a stage.
const STAGE_PLACES: u32 = 1_000_000;

/// Generations that a record names besides the live one, at most.
pub const MAX_KEPT_GENERATIONS: usize = 64;

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Current {
    format: String,
    version: u32,
    /// The record's number: each change of the audience creates the next one.
    pub sequence: u64,
    /// A random number, other in each record that is written: of two writers that create the same
    /// number, each knows its own record.
    pub writer: u64,
    /// The live generation; at least 1.
    pub generation: u64,
    /// Size of its manifest.
    pub manifest_size_bytes: u64,
    /// Digest of its manifest.
    pub manifest_sha256: Digest,
    /// The other generations that a rollback may return to, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<GenerationEntry>,
    /// A generation that a share of the pods serves instead of the live one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub staged: Option<Staged>,
    /// The highest generation that was live before a rollback: readers may still have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_from: Option<u64>,
    /// Deltas up to this sequence are not merged with later ones, so that a rollback can omit them.
    /// They belong to a generation that was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_merge_through: Option<u64>,
    /// The number of the record of the last publish, rollback, stage, end of a stage, or deletion.
    /// Later ones changed only other fields. Equal to `sequence` if absent.
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
    /// Whether the audience may be served.
    #[serde(default, skip_serializing_if = "State::is_live")]
    pub state: State,
    /// End of validity, in seconds since 1970 UTC; not served from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_seconds: Option<u64>,
}

/// A generation, named by its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationEntry {
    /// Its number; at least 1.
    pub generation: u64,
    /// Size of its manifest.
    pub manifest_size_bytes: u64,
    /// Digest of its manifest.
    pub manifest_sha256: Digest,
}

impl GenerationEntry {
    /// The entry of a manifest's bytes.
    pub fn of(generation: u64, manifest: &[u8]) -> Self {
        Self {
            generation,
            manifest_size_bytes: manifest.len() as u64,
            manifest_sha256: Digest::of(manifest),
        }
    }

    fn check(&self, field: &str) -> Result<(), ManifestError> {
        at_most("the manifest", self.manifest_size_bytes, MAX_MANIFEST_BYTES)?;
        match self.generation {
            0 => Err(ManifestError::field(field, 0, "at least 1")),
            _ => Ok(()),
        }
    }
}

/// A generation that a share of the pods serves, before all of them do or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Staged {
    /// The generation; above the live one.
    pub entry: GenerationEntry,
    /// The share of the pods, in millionths: from 1 to 999,999.
    pub pods_per_million: u32,
}

/// Place of a pod in the order in which pods take staged generations: below a million, and another
/// one for each audience. The first four bytes of the SHA-256 of the pod's name, a zero byte and
/// the audience's name, scaled: a pod needs to know no other, keeps its place over restarts, and a
/// wider share has the pods of a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagePlace(u32);

impl StagePlace {
    /// A reader that takes every staged generation.
    pub const FIRST: Self = Self(0);
    /// A reader that takes no staged generation.
    pub const LAST: Self = Self(STAGE_PLACES);

    /// The place of the pod of this name.
    pub fn of(pod: &str, audience: &AudienceName) -> Self {
        let name = [pod.as_bytes(), b"\0", audience.as_str().as_bytes()].concat();
        let [a, b, c, d, ..] = *Digest::of(&name).as_bytes();
        let fraction = u64::from(u32::from_be_bytes([a, b, c, d]));
        // Below 2³² × 10⁶ / 2³².
        Self(((fraction * u64::from(STAGE_PLACES)) >> 32) as u32)
    }
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
    /// Unavailable, and its files are deleted. Only its records stay, for running pods.
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
    /// A record that names a manifest by its bytes.
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
            writer: 0,
            generation,
            manifest_size_bytes: manifest.len() as u64,
            manifest_sha256: Digest::of(manifest),
            kept: Vec::new(),
            staged: None,
            rolled_back_from,
            no_merge_through: None,
            published_sequence: None,
            deltas: Vec::new(),
            tombstones: None,
            appended_unix_seconds: None,
            state: State::Live,
            expires_unix_seconds: None,
        }
    }

    /// Parses a record.
    ///
    /// # Errors
    ///
    /// [`ManifestError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        at_most("the record", bytes.len() as u64, MAX_RECORD_BYTES)?;
        check_envelope(bytes, FORMAT)?;
        let current: Self = from_json(bytes)?;
        if current.sequence == 0 {
            return Err(ManifestError::field("sequence", 0, "at least 1"));
        }
        current.check_generations()?;
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

    fn check_generations(&self) -> Result<(), ManifestError> {
        self.live_entry().check("generation")?;
        if self.kept.len() > MAX_KEPT_GENERATIONS {
            return Err(ManifestError::field(
                "kept",
                self.kept.len(),
                format!("at most {MAX_KEPT_GENERATIONS}"),
            ));
        }

        let mut before = 0;
        for (index, entry) in self.kept.iter().enumerate() {
            let field = format!("kept[{index}].generation");
            entry.check(&field)?;
            if entry.generation <= before || entry.generation == self.generation {
                let expected = format!("more than {before}, not the live {}", self.generation);
                return Err(ManifestError::field(field, entry.generation, expected));
            }
            before = entry.generation;
        }

        match &self.staged {
            Some(staged) => self.check_staged(staged),
            None => Ok(()),
        }
    }

    fn check_staged(&self, staged: &Staged) -> Result<(), ManifestError> {
        let field = "staged.entry.generation";
        staged.entry.check(field)?;
        let found = staged.entry.generation;
        let is_kept = self.kept.iter().any(|entry| entry.generation == found);
        if found <= self.generation || is_kept {
            let expected = format!("more than the live {}, and not kept", self.generation);
            return Err(ManifestError::field(field, found, expected));
        }

        let share = staged.pods_per_million;
        if share == 0 || share >= STAGE_PLACES {
            let expected = format!("1 to {}", STAGE_PLACES - 1);
            return Err(ManifestError::field(
                "staged.pods_per_million",
                share,
                expected,
            ));
        }

        Ok(())
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

    /// The number of the record of the last publish, rollback, stage, end of a stage, or deletion.
    /// Later ones with the same value differ in other fields: deltas, tombstones, state, expiry,
    /// and the generations that a gc no longer keeps.
    pub fn published_sequence(&self) -> u64 {
        self.published_sequence.unwrap_or(self.sequence)
    }

    /// The live generation.
    pub const fn live_entry(&self) -> GenerationEntry {
        GenerationEntry {
            generation: self.generation,
            manifest_size_bytes: self.manifest_size_bytes,
            manifest_sha256: self.manifest_sha256,
        }
    }

    /// A generation that the record names; `None` if it does not.
    pub fn entry(&self, generation: u64) -> Option<GenerationEntry> {
        self.generations()
            .into_iter()
            .find(|entry| entry.generation == generation)
    }

    /// All generations that the record names, in the order of their numbers; none of a deleted
    /// audience.
    pub fn generations(&self) -> Vec<GenerationEntry> {
        if self.state == State::Deleted {
            return Vec::new();
        }
        let mut all = self.kept.clone();
        all.push(self.live_entry());
        all.extend(self.staged.map(|staged| staged.entry));
        all.sort_unstable_by_key(|entry| entry.generation);
        all
    }

    /// The state as the pod at this place serves it: with the staged generation in place of the
    /// live one, if it is among those that take it. The others may have served it, under a larger
    /// share, and go back: they get `rolled_back_from`, so that the record has one position for all
    /// pods.
    #[must_use]
    pub fn seen_from(self, place: StagePlace) -> Self {
        match self.staged {
            None => self,
            Some(staged) if place.0 < staged.pods_per_million => Self {
                generation: staged.entry.generation,
                manifest_size_bytes: staged.entry.manifest_size_bytes,
                manifest_sha256: staged.entry.manifest_sha256,
                ..self
            },
            Some(_) => Self {
                rolled_back_from: Some(self.highest_generation()),
                ..self
            },
        }
    }

    /// Whether the generation is the staged one: see [`Current::seen_from`].
    pub fn is_staged(&self) -> bool {
        self.staged
            .is_some_and(|staged| staged.entry.generation == self.generation)
    }

    /// The next number of a generation: above all that any reader may have.
    pub fn next_generation(&self) -> u64 {
        let kept = self.kept.iter().map(|entry| entry.generation);
        kept.chain([self.highest_generation(), self.generation])
            .max()
            .unwrap_or(0)
            .saturating_add(1)
    }

    /// The next record with the same content.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            sequence: self.sequence.saturating_add(1),
            published_sequence: Some(self.published_sequence()),
            ..self.clone()
        }
    }

    /// The next record, with another staged generation. Counts as a publish, so that a build begun
    /// before cannot publish after it.
    #[must_use]
    pub fn staging(&self, entry: GenerationEntry, pods_per_million: u32) -> Self {
        Self {
            staged: Some(Staged {
                entry,
                pods_per_million,
            }),
            published_sequence: None,
            ..self.next()
        }
    }

    /// The next record, without the staged generation. Pods that serve it go back to the live one.
    #[must_use]
    pub fn unstaged(&self) -> Self {
        Self {
            staged: None,
            rolled_back_from: Some(self.highest_generation())
                .filter(|highest| *highest > self.generation),
            published_sequence: None,
            ..self.next()
        }
    }

    /// The next record of the audience, deleted and without deltas. Tombstones stay: a later
    /// build from an export must omit erased devices. Counts as a publish, so that a build begun
    /// before the deletion cannot publish after it.
    #[must_use]
    pub fn deleted(&self) -> Self {
        Self {
            sequence: self.sequence.saturating_add(1),
            kept: Vec::new(),
            staged: None,
            rolled_back_from: Some(self.highest_generation())
                .filter(|highest| *highest > self.generation),
            published_sequence: None,
            no_merge_through: None,
            deltas: Vec::new(),
            appended_unix_seconds: None,
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

    /// The highest generation that a reader of this or an earlier record may have.
    pub fn highest_generation(&self) -> u64 {
        let staged = self.staged.map_or(0, |staged| staged.entry.generation);
        let live = self.rolled_back_from.unwrap_or(self.generation);
        live.max(staged)
    }

    /// The place in the order of records. A publish has a higher generation than all before, also
    /// in a store whose numbers begin anew; other changes have a higher number.
    pub fn position(&self) -> (u64, u64) {
        (self.highest_generation(), self.sequence)
    }

    /// The content as one line of JSON, without its end.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields")
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
