//! `append` and `remove` commands: exact changes to the live generation, without a build.
//!
//! A change is visible within seconds. Concurrent appends and builds are never overwritten: after
//! a conflict the writer reads the newest record and retries.

mod members;
mod writer;

use std::ffi::OsString;

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit;
use rtad_cli::{SignArgs, TrustArgs};
use rtad_core::device::DeviceKey;
use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;
use rtad_store::write::{Appended, MAX_TOMBSTONES};

use super::context::{Output, Target, default_threads, published, runtime};
use super::error::CommonError;
use super::input_args::InputArgs;
use super::input_report::InputReport;
use super::reject_args::RejectArgs;
use super::value_parsers::parse_column;
use crate::input::{self, Batches, KeySink, PrivateFile, Reason};
use crate::interrupts;
use members::{MemberCheck, MembershipCounts};
use writer::{AppendWriter, Operation};

/// Add devices to the live generation, as a delta.
///
/// Pods apply the delta at their next poll of the store and fetch little more than 16 bytes per
/// device. Deltas are exact: they add no false positives. The next build merges them. Devices with
/// a tombstone stay out.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct AppendArgs {
    #[command(flatten)]
    common: ChangeArgs,
    /// csv, ndjson, parquet: the column with the devices' value, a whole number from 0 to 15, over
    /// a generation that was built with --value. Rows without one are rejected as `value`. A
    /// device with several has the largest, and no longer that of the build or an earlier append
    #[arg(long, value_name = "COLUMN", value_parser = parse_column)]
    value: Option<String>,
    /// Also remove the devices' tombstones
    #[arg(long)]
    lift_tombstone: bool,
}

/// Remove devices from the live generation, as a delta.
///
/// The next build also leaves them out, whatever its input contains; the build after it follows its
/// input. With --tombstone they stay out of every append, build and rollback until `append
/// --lift-tombstone`. The store keeps the md5 of such a device.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct RemoveArgs {
    #[command(flatten)]
    common: ChangeArgs,
    /// Keep the devices out of all later builds
    #[arg(long)]
    tombstone: bool,
}

#[derive(Debug, Args)]
struct ChangeArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    rejects: RejectArgs,
    /// Read the input, but write nothing to the store
    #[arg(long)]
    dry_run: bool,
    /// Paths, folders, globs, `-` for stdin, or URLs: an object or a prefix/ in s3://, gs://,
    /// az://, oss:// or cos://, a file at https:// or http://
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,
}

impl AppendArgs {
    pub fn set_batches(&mut self, batches: Batches) {
        self.common.input.set_batches(batches);
    }
}

impl RemoveArgs {
    pub fn set_batches(&mut self, batches: Batches) {
        self.common.input.set_batches(batches);
    }
}

pub fn append(args: AppendArgs, output: &Output) -> Result<(), CommandError> {
    let operation = if args.lift_tombstone {
        Operation::Restore
    } else {
        Operation::Add
    };
    run(&args.common, operation, args.value.as_deref(), output)
}

pub fn remove(args: RemoveArgs, output: &Output) -> Result<(), CommandError> {
    let operation = if args.tombstone {
        Operation::Entomb
    } else {
        Operation::Remove
    };
    run(&args.common, operation, None, output)
}

fn run(
    args: &ChangeArgs,
    operation: Operation,
    value: Option<&str>,
    output: &Output,
) -> Result<(), CommandError> {
    let input = args.input.resolve_with_value(&args.inputs, value)?;
    let read_store = args.trust.applied_to(args.target.open()?)?;
    let store = args.sign.writer(read_store, &args.trust)?;
    let runtime = runtime()?;
    let audience = &args.target.audience;
    let mut writer = runtime.block_on(AppendWriter::open(&store, audience, operation))?;
    if matches!(operation, Operation::Add | Operation::Remove) {
        let refused = CommonError::refuse_followed(store.store(), audience, writer.current());
        runtime.block_on(refused)?;
    }
    if matches!(operation, Operation::Add | Operation::Restore) {
        runtime.block_on(writer.check_values(store.store(), audience, value.is_some()))?;
    }
    let rejects = args.rejects.create(&input)?;

    let progress = output.progress();
    progress.phase("reading rows");
    let mut parsers: Vec<_> = (0..default_threads())
        .map(|_| CollectedKeys::default())
        .collect();
    let counts = input::read(&input, &mut parsers, rejects.as_ref(), &progress)?;
    rejects.map_or(Ok(()), PrivateFile::finish)?;
    args.rejects.check(&input, &counts, false)?;
    let read = InputReport::of(&input, &counts);

    progress.phase("publishing");
    let CollectedKeys { keys, values } = CollectedKeys::joined(parsers);
    // Reading may have taken long.
    runtime.block_on(writer.refresh())?;
    let read_members = MemberCheck::read(store.store(), audience, writer.current(), &keys);
    let check = runtime.block_on(read_members);
    let mut appended = None;
    if !args.dry_run {
        interrupts::begin_publish();
        appended = Some(runtime.block_on(writer.publish(&keys, &values))?);
    }

    let after = appended.map(|_| writer.current());
    // The change itself needs no filters, so an unreadable one does not stop an erasure.
    let members = check
        .and_then(|check| runtime.block_on(check.members(store.store(), audience, after)))
        .map_err(|error| warn_uncounted(audience, &error))
        .ok();
    drop(progress);

    if operation == Operation::Entomb
        && let Some(appended) = &appended
    {
        warn_near_limit(audience, appended.tombstones);
    }
    let headline = match &appended {
        None => published(audience.as_str(), None, None),
        Some(appended) => format!("published {audience} sequence {}", appended.sequence),
    };
    let counts = counts.total();
    let report = Report {
        audience,
        dry_run: args.dry_run,
        rows: counts.rows,
        usable: counts.keys,
        blank: counts.of(Reason::Blank),
        malformed: counts.malformed(),
        inputs: read,
        appended,
        members,
    };
    output.report(&headline, &report)
}

fn warn_uncounted(audience: &AudienceName, error: &StoreError) {
    exit::write_warning(&format!(
        "{audience}: the members among the devices are not counted: {}",
        error_chain(error)
    ));
}

/// Warns from 80 percent of the tombstones on: no build lowers their number.
fn warn_near_limit(audience: &AudienceName, tombstones: u64) {
    if tombstones >= MAX_TOMBSTONES / 10 * 8 {
        exit::write_warning(&format!(
            "{audience}: {tombstones} of at most {MAX_TOMBSTONES} tombstones; no build lowers \
             their number; lift those of devices that no export contains any more"
        ));
    }
}

/// Keys, and the value of each or none.
#[derive(Debug, Default)]
struct CollectedKeys {
    keys: Vec<DeviceKey>,
    values: Vec<u8>,
}

impl KeySink for CollectedKeys {
    fn take(&mut self, keys: &[DeviceKey], values: &[u8]) {
        self.keys.extend_from_slice(keys);
        self.values.extend_from_slice(values);
    }
}

impl CollectedKeys {
    /// The keys of all parsers, with their values in ascending order, so that the largest one of a
    /// key is the last.
    fn joined(parsers: Vec<Self>) -> Self {
        let mut all = Self::default();
        for parser in parsers {
            all.keys.extend(parser.keys);
            all.values.extend(parser.values);
        }
        if all.values.is_empty() {
            return all;
        }

        let mut members: Vec<_> = all.keys.into_iter().zip(all.values).collect();
        members.sort_unstable_by_key(|(_, value)| *value);
        let (keys, values) = members.into_iter().unzip();
        Self { keys, values }
    }
}

/// The JSON object of `append --json` and `remove --json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    audience: &'a AudienceName,
    dry_run: bool,
    rows: u64,
    usable: u64,
    blank: u64,
    malformed: u64,
    #[serde(flatten)]
    inputs: InputReport,
    #[serde(flatten)]
    appended: Option<Appended>,
    /// `None` if the live generation could not be read.
    members: Option<MembershipCounts>,
}
