//! `verify` command: checks the files of a generation in the store.
//!
//! Three checks: every file is intact (digests, fields, totals, fill); every expected id is a
//! member; the measured false-positive rate does not exceed the expected one.

pub mod error;
mod fill;
mod probe;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use rtad_cli::TrustArgs;
use rtad_cli::command_error::CommandError;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{Manifest, Snapshot};
use rtad_store::{Store, StoreError};

use super::context::{Output, Target, TargetError, default_threads, runtime};
use super::error::CommonError;
use super::input_args::InputArgs;
use super::input_report::InputReport;
use super::reject_args::RejectLimit;
use super::value_parsers::parse_output_file;
use crate::input::{self, Input, KeySink, PrivateFile};
use crate::keys::hex;
use crate::progress::Progress;
use error::VerifyError;
pub use fill::FilterSurvey;
use probe::MeasuredFpr;
pub use probe::wilson;

/// Verification fails if the whole interval of the measured rate exceeds the expected rate by this
/// factor.
pub const MAX_EXCESS: f64 = 1.1;
/// Fewer false positives prove nothing: in a small audience a single one may be chance.
pub const MIN_POSITIVES: u64 = 100;
/// Relative tolerance for floating-point sums in another order.
const TOLERANCE: f64 = 1e-6;

/// Verify a generation: every digest and field of its files, false negatives, and the measured
/// false-positive rate.
///
/// Holds the generation in memory, as a pod does (see `rtad-loader plan`: 4.2 GB for 1.5 billion
/// keys), and a few MB per thread. Inputs are streamed.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    /// Verify this generation, without deltas, instead of the live one
    #[arg(long, value_name = "G")]
    generation: Option<u64>,
    /// Inputs whose usable ids must all be members: paths, globs, `-` for stdin, or URLs
    #[arg(long, value_name = "INPUT", num_args = 1..)]
    against: Vec<OsString>,
    /// Write the md5s of ids that are not members to FILE, one per line, as `append --id-kind md5`
    /// reads them; readable by its owner only
    #[arg(long, value_name = "FILE", requires = "against", value_parser = parse_output_file)]
    missing: Option<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    limit: RejectLimit,
    /// Number of random keys for measuring the false-positive rate
    /// [default: enough for 10,000 false positives, at most 200 million]
    #[arg(long, value_name = "N")]
    probes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct VerifyReport {
    audience: String,
    generation: u64,
    keys: u64,
    size_bytes: u64,
    chunks: usize,
    /// Bits of a value; absent in a generation without values.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bits: Option<u32>,
    against: Option<Against>,
    #[serde(flatten)]
    measured: MeasuredFpr,
    expected_fpr: f64,
    target_fpr: f64,
}

#[derive(Debug, Serialize)]
struct Against {
    rows: u64,
    checked: u64,
    blank_or_malformed: u64,
    /// Non-members by a delta or a tombstone.
    removed: u64,
    false_negatives: u64,
    /// Members without a value; absent in a generation without values.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_value: Option<u64>,
    #[serde(flatten)]
    inputs: InputReport,
}

pub fn run(args: VerifyArgs, output: &Output) -> Result<(), CommandError> {
    let mut expected_members = None;
    if !args.against.is_empty() {
        expected_members = Some(args.input.resolve(&args.against)?);
    }
    let store = args.trust.applied_to(args.target.open()?)?;
    let threads = default_threads();
    let progress = output.progress();

    progress.phase("reading chunks");
    let snapshot = runtime()?.block_on(load(&args, &store, threads, &progress))?;
    let manifest = snapshot.manifest();

    let mut against = None;
    if let Some(input) = expected_members {
        progress.phase("looking up rows");
        against = Some(look_up(&args, &input, &snapshot, &progress)?);
    }

    progress.phase("probing random keys");
    let expected = manifest.expected_fpr();
    let probes = args
        .probes
        .unwrap_or_else(|| probe::default_probes(expected));
    progress.expect(probes);
    let measured = probe::measure(&snapshot, probes, threads, &progress);
    if measured.false_positives >= MIN_POSITIVES && measured.low > expected * MAX_EXCESS {
        return Err(VerifyError::Fpr { measured, expected }.into());
    }
    drop(progress);

    let report = VerifyReport::new(manifest, against, measured);
    let headline = format!(
        "{} generation {} is intact",
        report.audience, report.generation
    );
    output.facts(&headline, &report)
}

/// Checks that every usable id of the input is a member, or was removed.
fn look_up(
    args: &VerifyArgs,
    input: &Input,
    snapshot: &Snapshot,
    progress: &Progress,
) -> Result<Against, CommandError> {
    let mut file = None;
    if let Some(path) = &args.missing {
        file = Some(PrivateFile::create(path, &input.sources)?);
    }
    let mut lookups: Vec<_> = (0..default_threads())
        .map(|_| Lookup::new(snapshot, file.as_ref()))
        .collect();
    let counts = input::read(input, &mut lookups, None, progress)?;

    args.limit.check(input, &counts, false)?;
    let inputs = InputReport::of(input, &counts);
    let counts = counts.total();
    if counts.keys == 0 {
        return Err(CommonError::Empty { rows: counts.rows }.into());
    }

    let missing = lookups.iter().map(|lookup| lookup.missing).sum();
    let removed = lookups.iter().map(|lookup| lookup.removed).sum();
    let without_value = lookups.iter().map(|lookup| lookup.without_value).sum();
    drop(lookups);
    file.map_or(Ok(()), PrivateFile::finish)?;
    if missing > 0 {
        return Err(VerifyError::FalseNegatives {
            missing,
            checked: counts.keys,
        }
        .into());
    }

    let has_values = snapshot.manifest().filter().value_bits() > 0;
    Ok(Against {
        rows: counts.rows,
        checked: counts.keys,
        blank_or_malformed: counts.rejected.iter().sum(),
        removed,
        false_negatives: missing,
        without_value: has_values.then_some(without_value),
        inputs,
    })
}

/// Reads all files of the generation. A damaged file is a failed verification; a store error is
/// not.
async fn load(
    args: &VerifyArgs,
    store: &Store,
    threads: usize,
    progress: &Progress,
) -> Result<Snapshot, CommandError> {
    let read = args
        .target
        .manifest_and_overlay(store, args.generation)
        .await;
    let (manifest, overlay) = read.map_err(|error| match error {
        TargetError::Store(error) => fault(error),
        error => error.into(),
    })?;
    progress.expect(manifest.chunks().len() as u64);

    let mut survey = FilterSurvey::default();
    let mut chunks = HashMap::new();
    store
        .chunks(&manifest, manifest.chunks(), threads, |entry, chunk| {
            survey.add(&chunk);
            chunks.insert(entry.first_shard, Arc::new(chunk));
            progress.add(1);
        })
        .await
        .map_err(fault)?;
    check_statistics(&manifest, &survey)?;

    let mut in_order = Vec::with_capacity(chunks.len());
    for entry in manifest.chunks() {
        let chunk = chunks.remove(&entry.first_shard);
        in_order.push(chunk.expect("every chunk arrived"));
    }
    Ok(Snapshot::assemble(manifest, in_order).with_overlay(overlay))
}

/// A failed verification, of an error about the content of a file.
fn fault(error: StoreError) -> CommandError {
    match error {
        StoreError::Manifest { .. }
        | StoreError::Signature { .. }
        | StoreError::Chunk { .. }
        | StoreError::Delta { .. }
        | StoreError::NotFound { .. } => VerifyError::File(error).into(),
        error => error.into(),
    }
}

fn check_statistics(manifest: &Manifest, survey: &FilterSurvey) -> Result<(), VerifyError> {
    let mut figures = vec![(
        "filter.expected_fpr",
        survey.overall_fpr(),
        manifest.expected_fpr(),
    )];
    if let Some(stated) = manifest.fill_ratio() {
        let found = survey.fill.unwrap_or_default();
        figures.extend([
            ("filter.fill_ratio.min", found.min, stated.min),
            ("filter.fill_ratio.mean", found.mean, stated.mean),
            ("filter.fill_ratio.max", found.max, stated.max),
        ]);
    }
    if let Some((diverted, listed)) = manifest.diverted_and_listed_keys() {
        figures.extend([
            (
                "filter.diverted_keys",
                survey.diverted_keys as f64,
                diverted as f64,
            ),
            (
                "filter.listed_keys",
                survey.listed_keys as f64,
                listed as f64,
            ),
        ]);
    }

    for (field, found, stated) in figures {
        if (found - stated).abs() > TOLERANCE * found.max(stated) {
            return Err(VerifyError::Statistics {
                field,
                found,
                stated,
            });
        }
    }
    Ok(())
}

/// Counter of keys that are not members.
struct Lookup<'a> {
    snapshot: &'a Snapshot,
    members: Vec<bool>,
    missing: u64,
    removed: u64,
    /// Members without a value, if the generation has values.
    without_value: u64,
    /// The file of `--missing`.
    file: Option<&'a PrivateFile>,
    rows: Vec<u8>,
}

impl<'a> Lookup<'a> {
    const fn new(snapshot: &'a Snapshot, file: Option<&'a PrivateFile>) -> Self {
        Self {
            snapshot,
            members: Vec::new(),
            missing: 0,
            removed: 0,
            without_value: 0,
            file,
            rows: Vec::new(),
        }
    }
}

impl KeySink for Lookup<'_> {
    fn take(&mut self, keys: &[DeviceKey], _values: &[u8]) {
        self.members.resize(keys.len(), false);
        self.snapshot.contains_many(keys, &mut self.members);
        let has_values = self.snapshot.manifest().filter().value_bits() > 0;

        for (key, is_member) in keys.iter().zip(&self.members) {
            if *is_member {
                if has_values && self.snapshot.value(&[*key]).is_none() {
                    self.without_value += 1;
                }
            } else if self.snapshot.overlay().membership(key) == Some(false) {
                self.removed += 1;
            } else {
                self.missing += 1;
                if self.file.is_some() {
                    self.rows.extend_from_slice(&hex(key));
                    self.rows.push(b'\n');
                }
            }
        }

        if let Some(file) = self.file {
            file.write(&mut self.rows);
        }
    }
}

impl VerifyReport {
    fn new(manifest: &Manifest, against: Option<Against>, measured: MeasuredFpr) -> Self {
        Self {
            audience: manifest.audience().as_str().to_owned(),
            generation: manifest.generation(),
            keys: manifest.keys(),
            size_bytes: manifest.size_bytes(),
            chunks: manifest.chunks().len(),
            value_bits: Some(manifest.filter().value_bits()).filter(|bits| *bits > 0),
            against,
            measured,
            expected_fpr: manifest.expected_fpr(),
            target_fpr: manifest.target_fpr(),
        }
    }
}
