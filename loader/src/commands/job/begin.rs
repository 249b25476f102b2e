//! `begin` command: records the live generation and reads the deltas for a distributed build.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_core::filter::{FilterKind, FilterSpec};

use super::super::carried::Carried;
use super::super::context::{Output, Target, runtime};
use super::super::error::CommonError;
use super::super::value_parsers::parse_output_file;
use super::error::JobError;
use super::spec::{CarriedJob, ChangedKeys, Job};
use rtad_store::Store;
use rtad_store::write::{Base, StoreWriter};

use crate::frames::{self, FrameContent};
use crate::input::open_private;
use crate::merged_deltas::{CarriedChanges, MergedDeltas};

/// Begin a distributed build: write the job for its other steps, as JSON on stdout.
///
/// The job records the live generation. Devices appended or removed before stay appended or
/// removed: their keys go to --changes, as frames for `rtad-loader distinct` beside those of the
/// input. About changes from before the previous build the input decides: their keys go there too,
/// to be counted. Later appends apply to the new generation. `rtad-loader publish` exits with code
/// 6 if another process published in between.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct BeginArgs {
    #[command(flatten)]
    target: Target,
    /// Target false-positive rate of the filters, a fraction
    #[arg(long, value_name = "P", default_value_t = 0.0001)]
    fpr: f64,
    /// Kind of filter: block512, ribbon
    #[arg(long, value_name = "KIND", default_value = "block512")]
    filter: FilterKind,
    /// File for the keys that deltas and tombstones changed; readable by its owner only
    #[arg(long, value_name = "FILE", value_parser = parse_output_file)]
    changes: PathBuf,
    /// Carry on the devices that were appended or removed before the previous build, whatever the
    /// input contains
    #[arg(long)]
    keep_carried: bool,
    /// Begin nothing unless the audience has a live generation, against a mistyped --store or
    /// --audience
    #[arg(long)]
    require_live: bool,
}

pub fn run(args: &BeginArgs, output: &Output) -> Result<(), CommandError> {
    let filter = FilterSpec::for_fpr(args.filter, args.fpr).map_err(CommonError::Fpr)?;
    let writer = StoreWriter::new(args.target.open()?)?;
    let (base, merged, carried) = runtime()?.block_on(async {
        let base = writer.base(&args.target.audience).await?;
        if args.require_live && base.with_generation().is_none() {
            return Err(CommonError::not_published(&args.target.audience));
        }
        check_public_keys(writer.store(), &base).await?;
        // Read now, as in `build`: a merge and a gc may remove these files while the job runs.
        let mut merged = MergedDeltas::read(writer.store(), &base).await?;
        let flags = (args.keep_carried, false);
        let carried = Carried::read(flags, &mut merged, writer.store(), &base).await?;
        Ok::<_, CommandError>((base, merged, carried))
    })?;
    write_changes(args, &merged, carried.as_ref().map(Carried::changes))
        .map_err(|source| CommonError::write_file("--changes", &args.changes, source))?;
    let removed = merged.removed().map_or(0, |removed| removed.len() as u64);
    let changes = ChangedKeys {
        added: merged.added().len() as u64,
        removed,
    };
    let folded = merged.folded.map_or_else(Vec::new, |folded| folded.deltas);
    let carried = CarriedJob {
        report: carried.map(|carried| carried.unchecked()),
        folded,
    };
    let job = Job::new(&base, &filter, args.fpr, (changes, carried));
    output.step_data(&job)
}

/// Refuses a signed generation without public keys: `publish --sign-key` would sign the changes of
/// deltas whose signatures no step has verified.
async fn check_public_keys(store: &Store, base: &Base) -> Result<(), CommandError> {
    let Some(current) = base
        .with_generation()
        .filter(|_| !store.trust().is_required())
    else {
        return Ok(());
    };
    let (audience, generation) = (base.audience(), current.generation);
    match store.has_signature(audience, generation).await? {
        true => Err(JobError::NoPublicKey {
            audience: audience.clone(),
            generation,
        }
        .into()),
        false => Ok(()),
    }
}

fn write_changes(
    args: &BeginArgs,
    merged: &MergedDeltas,
    carried: Option<&CarriedChanges>,
) -> io::Result<()> {
    let mut out = BufWriter::new(open_private(&args.changes)?);
    frames::write(&mut out, FrameContent::Added, merged.added())?;
    frames::write(
        &mut out,
        FrameContent::Removed,
        merged.removed().map_or(&[], |removed| removed),
    )?;
    if let Some(CarriedChanges { added, removed, .. }) = carried {
        frames::write(&mut out, FrameContent::CarriedAdded, added)?;
        frames::write(&mut out, FrameContent::CarriedRemoved, removed)?;
    }
    out.flush()
}
