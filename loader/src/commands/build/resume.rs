//! Checkpoints in a spill directory, from which an interrupted build resumes.
//!
//! ```text
//! rtad-00.keys …     keys read so far
//! rtad-state.json    completed inputs, valid length of each key file, identity of the build
//! rtad-chunks.jsonl  chunks in the store
//! ```
//!
//! Keys are a set: a partly read input is read again, and its repeated keys are removed with the
//! other duplicates. Counts are kept for completed inputs only, so they come out the same as
//! without an interruption. Key files are truncated to the length in the last state, because a
//! crash of the machine may have left garbage beyond it.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use rtad_cli::command_error::CommandError;
use rtad_cli::exit;
use rtad_core::device::DeviceKey;
use rtad_store::StoreError;
use rtad_store::write::Base;

use super::Facts;
use super::error::BuildError;
use crate::input::{Counts, InputCounts, KeySink, Source};
use crate::keys::{Filler, Keys, SpillDir, SpillError};

/// Shortest accepted interval.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
pub const STATE: &str = "rtad-state.json";
pub const CHUNKS: &str = "rtad-chunks.jsonl";
const VERSION: u32 = 1;
/// In place of the size and time of an input that cannot be read again.
const STREAM: &str = "a stream";
/// In place of the version of an input whose server names none.
const UNVERSIONED: &str = "neither ETag nor Last-Modified";

/// Identity of a build. Only the same build may resume.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Fingerprint {
    pub(super) flags: Facts,
    /// Names of the inputs, and their sizes and times.
    pub(super) inputs: Facts,
}

/// `rtad-state.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct ResumeState {
    version: u32,
    fingerprint: Fingerprint,
    base: BuildBase,
    /// Whether all inputs were read completely.
    pub(super) is_read: bool,
    /// Completed inputs, by index.
    sources: BTreeMap<usize, Counts>,
    /// Valid bytes of each partition's file.
    pub(super) lengths: Vec<u64>,
}

/// The generation that was live when the build began, and the sequence of its publish; appends do
/// not change them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct BuildBase {
    generation: u64,
    published_sequence: u64,
}

impl BuildBase {
    fn of(base: &Base) -> Self {
        base.current().map_or_else(Self::default, |current| Self {
            generation: current.generation,
            published_sequence: current.published_sequence(),
        })
    }
}

/// The inputs' part of the fingerprint.
pub fn describe(sources: &[Source]) -> Result<Facts, CommandError> {
    let describe = |source: &Source| {
        let unknown = if matches!(source, Source::Remote(_)) {
            UNVERSIONED
        } else {
            STREAM
        };
        let identity = source.identity()?.unwrap_or_else(|| unknown.to_owned());
        Ok((format!("input {}", source.name()), identity))
    };
    sources.iter().map(describe).collect()
}

impl ResumeState {
    /// Reads the state of an interrupted build, if any. With other inputs than that build, as the
    /// export of the next night, a build starts over: a job must not fail for ever after one
    /// interruption. It costs time only, as all inputs of both can be read again. Other flags may
    /// be those of another job in the same directory.
    pub fn read(
        dir: &SpillDir,
        fingerprint: &Fingerprint,
        base: &Base,
        may_resume: bool,
    ) -> Result<Option<Self>, CommandError> {
        let Some(bytes) = dir.read_note(STATE)? else {
            // Left by a build that was killed before its first checkpoint.
            dir.clear_files();
            return Ok(None);
        };
        if !may_resume {
            return Err(BuildError::Interrupted { dir: dir.shown() }.into());
        }
        let state = serde_json::from_slice(&bytes).ok();
        let Some(state) = state.filter(|state: &Self| state.version == VERSION) else {
            start_over(dir, "rtad-state.json has another version or is damaged");
            return Ok(None);
        };
        let differs = |what: String| BuildError::OtherBuild {
            dir: dir.shown(),
            what,
        };
        if let Some(what) = difference(&state.fingerprint.flags, &fingerprint.flags) {
            return Err(differs(what).into());
        }
        let inputs = &fingerprint.inputs;
        if let Some(what) = difference(&state.fingerprint.inputs, inputs).or_else(|| doubt(inputs))
        {
            let mut both = state.fingerprint.inputs.iter().chain(inputs);
            if both.any(|(_, identity)| identity == STREAM) {
                return Err(differs(what).into());
            }
            start_over(
                dir,
                &format!("holds an interrupted build of other inputs: {what}"),
            );
            return Ok(None);
        }
        let live = BuildBase::of(base);
        if state.base != live {
            // No build can resume from it.
            dir.keep(false);
            let (then, now) = (state.base.generation, live.generation);
            let reason = format!(
                "generation {now} was published since this build began at generation {then}"
            );
            return Err(StoreError::Conflict {
                audience: base.audience().clone(),
                reason,
                is_transient: false,
            }
            .into());
        }
        dir.keep(false);
        if !state.is_read && dir.is_named() {
            // Chunks are valid only for the complete set of keys.
            dir.remove_note(CHUNKS)?;
        }
        Ok(Some(state))
    }
}

/// Removes the files of an interrupted build, for the reason `why`.
fn start_over(dir: &SpillDir, why: &str) {
    exit::write_warning(&format!(
        "spill directory {}: {why}; the build starts over",
        dir.shown()
    ));
    dir.clear_files();
    dir.keep(false);
}

/// The first input whose content may have changed without a trace.
fn doubt(inputs: &Facts) -> Option<String> {
    let (name, _) = inputs
        .iter()
        .find(|(_, identity)| identity == UNVERSIONED)?;
    Some(format!(
        "{name} may have changed: its server sends {UNVERSIONED}"
    ))
}

/// The first difference between two parts of fingerprints.
fn difference(then: &Facts, now: &Facts) -> Option<String> {
    let (old, new) = then
        .iter()
        .zip(now)
        .find(|(then, now)| then != now)
        .map_or_else(
            || (then.get(now.len()), now.get(then.len())),
            |(then, now)| (Some(then), Some(now)),
        );
    match (old, new) {
        (None, None) => None,
        (Some((name, _)), None) => Some(format!("{name} is missing now")),
        (None, Some((name, _))) => Some(format!("{name} is new")),
        (Some((then, old)), Some((now, new))) if then == now => {
            Some(format!("{now}: expected {old}, found {new}"))
        }
        (Some((then, _)), Some((now, _))) => Some(format!("expected {then}, found {now}")),
    }
}

#[derive(Debug, Default)]
struct ReadProgress {
    open: HashMap<usize, OpenInput>,
    ended: BTreeMap<usize, Counts>,
}

/// An input in progress.
#[derive(Debug, Default)]
struct OpenInput {
    parsed_blocks: u64,
    /// Counts of the parsed blocks.
    counts: Counts,
    /// Its blocks, once their number is known.
    all_blocks: Option<u64>,
}

impl ReadProgress {
    fn update(&mut self, source: usize, update: impl FnOnce(&mut OpenInput)) {
        let open = self.open.entry(source).or_default();
        update(open);
        if open.all_blocks == Some(open.parsed_blocks) {
            let counts = std::mem::take(&mut open.counts);
            self.open.remove(&source);
            self.ended.insert(source, counts);
        }
    }
}

pub struct Checkpoints<'a> {
    dir: &'a SpillDir,
    fingerprint: Fingerprint,
    base: BuildBase,
    every: Duration,
    begun: Instant,
    ledger: Mutex<ReadProgress>,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl<'a> Checkpoints<'a> {
    pub fn new(
        dir: &'a SpillDir,
        fingerprint: Fingerprint,
        base: &Base,
        every: Duration,
        resumed: Option<&ResumeState>,
    ) -> Self {
        let ended = resumed
            .map(|state| state.sources.clone())
            .unwrap_or_default();
        Self {
            dir,
            fingerprint,
            base: BuildBase::of(base),
            every: every.max(MIN_INTERVAL),
            begun: Instant::now(),
            ledger: Mutex::new(ReadProgress {
                ended,
                ..ReadProgress::default()
            }),
            is_over: Mutex::new(false),
            over: Condvar::new(),
        }
    }

    /// Counts of completed inputs, by index.
    pub fn ended(&self) -> BTreeMap<usize, Counts> {
        self.ledger.lock().ended.clone()
    }

    /// Counts of all completed inputs.
    pub fn counts(&self, sources: usize) -> InputCounts {
        let mut sum = InputCounts::new(sources);
        self.ledger
            .lock()
            .ended
            .iter()
            .for_each(|(source, counts)| sum.add_to(*source, counts));
        sum
    }

    /// Runs `read` and saves checkpoints meanwhile, if the directory has a name.
    pub fn during<T>(
        &self,
        keys: &Keys<'_, '_>,
        fillers: &[Filler<'_, '_>],
        read: impl FnOnce() -> T,
    ) -> T {
        if !self.dir.is_named() {
            return read();
        }
        let saved = self.ended().len();
        std::thread::scope(|scope| {
            scope.spawn(|| self.save_at_intervals(saved, keys, fillers));
            // Stops the thread even if reading panics.
            let _over = StopOnDrop(self);
            read()
        })
    }

    fn save_at_intervals(&self, mut saved: usize, keys: &Keys<'_, '_>, fillers: &[Filler<'_, '_>]) {
        loop {
            let mut is_over = self.is_over.lock();
            self.over
                .wait_while_for(&mut is_over, |is_over| !*is_over, self.every);
            if *is_over {
                return;
            }
            drop(is_over);
            let ended = self.ended().len();
            if ended > saved && self.save(keys, fillers, false).is_ok() {
                saved = ended;
            }
        }
    }

    /// Saves the final checkpoint, unless reading took no longer than one interval.
    pub fn end(&self, keys: &Keys<'_, '_>, fillers: &[Filler<'_, '_>]) -> Result<(), SpillError> {
        let is_worth_it = self.begun.elapsed() >= self.every || keys.are_spilled();
        if self.dir.is_named() && is_worth_it {
            self.save(keys, fillers, true)
        } else {
            Ok(())
        }
    }

    fn save(
        &self,
        keys: &Keys<'_, '_>,
        fillers: &[Filler<'_, '_>],
        is_read: bool,
    ) -> Result<(), SpillError> {
        // Copied before the keys: the keys of these inputs are in the fillers by now.
        let sources = self.ended();
        fillers.iter().for_each(Filler::flush);
        let lengths = keys.sync()?;
        let (fingerprint, base) = (self.fingerprint.clone(), self.base);
        let state = ResumeState {
            version: VERSION,
            fingerprint,
            base,
            is_read,
            sources,
            lengths,
        };
        let bytes = serde_json::to_vec(&state).expect("a state is plain data");
        self.dir.write_note(STATE, &bytes)
    }
}

struct StopOnDrop<'c, 'a>(&'c Checkpoints<'a>);

impl Drop for StopOnDrop<'_, '_> {
    fn drop(&mut self) {
        *self.0.is_over.lock() = true;
        self.0.over.notify_all();
    }
}

pub struct CheckpointSink<'a, 'k, 'm> {
    pub(super) filler: &'a Filler<'k, 'm>,
    pub(super) checkpoints: &'a Checkpoints<'a>,
}

impl KeySink for CheckpointSink<'_, '_, '_> {
    fn take(&mut self, keys: &[DeviceKey], values: &[u8]) {
        self.filler.take(keys, values);
    }

    fn is_closed(&self) -> bool {
        self.filler.is_closed()
    }

    fn parsed(&mut self, source: usize, counts: &Counts) {
        self.checkpoints.ledger.lock().update(source, |open| {
            open.parsed_blocks += 1;
            open.counts.add(counts);
        });
    }

    fn ended(&mut self, source: usize, blocks: u64) {
        self.checkpoints
            .ledger
            .lock()
            .update(source, |open| open.all_blocks = Some(blocks));
    }
}
