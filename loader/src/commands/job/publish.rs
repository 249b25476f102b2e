//! `publish` command: begins a build on Spark, and commits its chunks after checking all reports.

use std::collections::BTreeMap;

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_cli::{SignArgs, TrustArgs};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{BuildReport, GenerationFacts, Manifest, ManifestBuilder};
use rtad_store::write::{Base, StoreWriter};
use rtad_store::{Store, StoreError};

use super::super::carried::{Carried, CarriedArgs, CarriedReport};
use super::super::context::{self, Output, TOOL, Target, runtime};
use super::super::error::CommonError;
use super::super::expiry_args::ExpiryArgs;
use super::super::gate::{Gate, GateArgs};
use super::super::lineage_args::LineageArgs;
use super::super::overlap::{Overlap, sampled};
use super::super::reject_args::RejectLimit;
use super::super::skew::Skew;
use super::super::stage_args::StageArgs;
use super::super::value_parsers::parse_ratio;
use super::error::JobError;
use super::lines::{self, KeysLine, PartLine, ReportLine};
use super::publish_report::PublishReport;
use super::spec::Job;
use crate::input::Reason;
use crate::interrupts;
use crate::merged_deltas::MergedDeltas;

/// Publish the chunks of a build on Spark: run by the driver for the duration of the job.
///
/// Checks the flags and the live generation, then writes one line of JSON, the job, for every
/// `rtad-loader chunk`. Reads the report lines of all tasks from stdin until it ends. Publishes
/// only if every part is reported once, the chunks have all keys that were made of the input and
/// exist in the store, and nobody else has published. Writes the report after that.
///
/// Exit codes and limits are the same as for `rtad-loader build`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PublishArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
    /// Target false-positive rate of the filters, a fraction
    #[arg(long, value_name = "P", default_value_t = 0.0001)]
    fpr: f64,
    /// Kind of filter: block512, ribbon
    #[arg(long, value_name = "KIND", default_value = "block512")]
    filter: FilterKind,
    /// Publish nothing if more than this fraction of the values is malformed, of all inputs, of one
    /// file or of a column, or if a file has malformed values but no usable id. Otherwise as in
    /// `rtad-loader build`
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, value_parser = parse_ratio)]
    max_reject_ratio: f64,
    /// Publish even without any usable id; over a generation with keys this also needs
    /// --max-change any
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    carried: CarriedArgs,
    #[command(flatten)]
    expiry: ExpiryArgs,
    #[command(flatten)]
    stage: StageArgs,
    #[command(flatten)]
    lineage: LineageArgs,
    /// Begin nothing unless the audience has a live generation, against a mistyped --store or
    /// --audience
    #[arg(long)]
    require_live: bool,
}

pub fn run(args: &PublishArgs, output: &Output) -> Result<(), CommandError> {
    let filter = FilterSpec::for_fpr(args.filter, args.fpr).map_err(CommonError::Fpr)?;
    let store = args.trust.applied_to(args.target.open()?)?;
    let mut writer = args.sign.writer(store, &args.trust)?;
    if !args.require_live {
        writer = writer.creating_store();
    }
    let runtime = runtime()?;
    let begun = runtime.block_on(Begun::read(args, &filter, &writer))?;
    output.step_data(&Job::new(&begun.base, &filter, args.carried.keep_carried))?;

    let reports = Reports::of(lines::read_stdin()?);
    reports.check(args, &begun)?;

    let published = Publish {
        args,
        filter,
        writer: &writer,
        begun: &begun,
        reports: &reports,
    };
    let report = runtime.block_on(published.commit())?;

    let audience = args.target.audience.as_str();
    if let Some(carried) = report.carried {
        carried.warn(audience);
    }
    let headline = context::published(audience, Some(report.generation), report.stage);
    output.report(&headline, &report)
}

/// The live generation when the build began.
struct Begun {
    base: Base,
    gate: Gate,
    merged: MergedDeltas,
    /// `None` if they are unreadable.
    carried: Option<Carried>,
}

impl Begun {
    async fn read(
        args: &PublishArgs,
        filter: &FilterSpec,
        writer: &StoreWriter,
    ) -> Result<Self, CommandError> {
        let base = args.gate.base(writer, &args.target.audience).await?;
        if args.require_live && base.with_generation().is_none() {
            return Err(CommonError::not_published(&args.target.audience));
        }

        let store = writer.store();
        if let Some(current) = base.with_generation() {
            CommonError::refuse_followed(store, base.audience(), current).await?;
        }
        let gate = Gate::open(&args.gate, filter, args.fpr, store, &base).await?;
        let mut merged = MergedDeltas::read(store, &base).await?;
        let carried = Carried::read(args.carried.keep_carried, &mut merged, store, &base).await?;
        Ok(Self {
            base,
            gate,
            merged,
            carried,
        })
    }

    fn removed_keys(&self) -> u64 {
        self.merged
            .removed()
            .map_or(0, |removed| removed.len() as u64)
    }
}

/// The reports of all tasks.
#[derive(Debug, Default)]
struct Reports {
    /// Sums over all inputs.
    made: KeysLine,
    /// Sums of each input, by its name.
    inputs: BTreeMap<String, KeysLine>,
    parts: Vec<PartLine>,
}

impl Reports {
    fn of(lines: Vec<ReportLine>) -> Self {
        let mut reports = Self::default();
        for line in lines {
            match line {
                ReportLine::Keys(line) => {
                    reports.made.add(&line);
                    let input = reports.inputs.entry(line.input.clone()).or_default();
                    input.add(&line);
                }
                ReportLine::Chunks(line) => reports.parts.push(line),
            }
        }
        reports.parts.sort_unstable_by_key(|line| line.part);
        reports
    }

    fn sum(&self, of_part: impl Fn(&PartLine) -> u64) -> u64 {
        self.parts.iter().map(of_part).sum()
    }

    /// Rejects incomplete or unusable reports.
    fn check(&self, args: &PublishArgs, begun: &Begun) -> Result<(), CommandError> {
        self.check_input(args)?;
        self.check_parts()?;
        self.check_keys(begun)?;

        // Of the input: deltas must not make up for a list that is missing.
        if self.made.counts().keys == 0 && !args.allow_empty {
            let rows = self.made.rows;
            return Err(CommonError::Empty { rows }.into());
        }
        Ok(())
    }

    fn check_input(&self, args: &PublishArgs) -> Result<(), CommandError> {
        // Spark writes one table as many files: some may have blank values only.
        const MAY_BE_BLANK: bool = true;

        let limit = RejectLimit::of_ratio(args.max_reject_ratio);
        let is_whole = self.inputs.len() == 1;
        for (name, input) in &self.inputs {
            limit.check_input(
                name,
                is_whole,
                &input.counts(),
                &input.columns,
                MAY_BE_BLANK,
            )?;
        }
        if !is_whole {
            limit.check_all(&self.made.counts(), &self.made.columns, MAY_BE_BLANK)?;
        }
        Ok(())
    }

    /// Checks that every part is reported once.
    fn check_parts(&self) -> Result<(), JobError> {
        let parts = self.parts.first().map_or(1, |line| line.parts);
        let mut next = 0;
        for line in &self.parts {
            if line.parts != parts {
                return Err(JobError::OtherParts {
                    part: line.part,
                    parts: line.parts,
                    expected: parts,
                });
            }
            if line.part < next {
                let part = line.part;
                return Err(JobError::PartTwice { part, parts });
            }
            if line.part > next {
                break;
            }
            next += 1;
        }

        if next < parts {
            return Err(JobError::PartMissing { part: next, parts });
        }
        Ok(())
    }

    /// Checks that no keys were lost, or read from other deltas.
    fn check_keys(&self, begun: &Begun) -> Result<(), JobError> {
        let read = self.sum(|part| part.read);
        let made = self.made.counts().keys;
        if read != made {
            return Err(JobError::KeysDiffer { read, made });
        }

        let added = begun.merged.added().len() as u64;
        for (what, found, expected) in [
            ("deltas added", self.sum(|part| part.added), added),
            (
                "deltas removed",
                self.sum(|part| part.removed),
                begun.removed_keys(),
            ),
        ] {
            if found != expected {
                return Err(JobError::ChangesDiffer {
                    what,
                    found,
                    expected,
                });
            }
        }

        let expected = self.sum(|part| part.keys);
        let found = self.sum(|part| {
            part.chunks
                .iter()
                .map(|chunk| chunk.record.entry.keys)
                .sum()
        });
        if found != expected {
            return Err(JobError::KeyCountMismatch { found, expected });
        }
        Ok(())
    }

    /// The carried changes; `None` if the driver or a task could not read them.
    fn carried(&self, begun: &Begun) -> Option<CarriedReport> {
        let carried = begun.carried.as_ref()?.unchecked();
        if carried.kept {
            return Some(carried);
        }
        let mut sum = CarriedReport::default();
        for part in &self.parts {
            sum.add(part.carried?);
        }
        Some(sum)
    }

    fn duplicates(&self, begun: &Begun) -> u64 {
        let read = self.sum(|part| part.read) + begun.merged.added().len() as u64;
        read.saturating_sub(self.sum(|part| part.found))
    }
}

/// A checked build that is to be published.
struct Publish<'a> {
    args: &'a PublishArgs,
    filter: FilterSpec,
    writer: &'a StoreWriter,
    begun: &'a Begun,
    reports: &'a Reports,
}

impl Publish<'_> {
    async fn commit(&self) -> Result<PublishReport, CommandError> {
        let store = self.writer.store();
        let base = &self.begun.base;
        let publication = self.writer.publish(base.clone()).await?;
        let mut reported = self.reports.parts.iter().flat_map(|part| &part.chunks);
        if reported.any(|chunk| chunk.renewed) {
            publication.expect_deletes();
        }
        let chunks = self.chunks();
        let check = chunks.check();
        let overlap = self.overlap(store).await?;
        let manifest = chunks
            .finish(base.audience().clone(), self.facts(overlap))
            .map_err(JobError::InvalidManifest)?;

        let gate = &self.begun.gate;
        gate.check_filters(&manifest, &check)?;
        gate.check_change(manifest.keys(), overlap)?;

        let missing = store
            .missing_chunks(base.audience(), manifest.chunks())
            .await?;
        if let Some(entry) = missing.first() {
            return Err(JobError::MissingChunks {
                missing: missing.len(),
                chunks: manifest.chunks().len(),
                first: entry.digest,
            }
            .into());
        }

        interrupts::begin_publish();
        let published = match self.args.stage.stage {
            Some(share) => {
                let pods_per_million = share.millionths();
                publication
                    .commit_staged(manifest, pods_per_million)
                    .await?
            }
            None => publication.commit(manifest).await?,
        };
        Skew::of(&published.manifest).warn(base.audience().as_str());
        Ok(self.report(&published.manifest, overlap))
    }

    fn chunks(&self) -> ManifestBuilder {
        let mut chunks = ManifestBuilder::new(self.filter, self.args.fpr);
        for part in &self.reports.parts {
            for chunk in &part.chunks {
                chunks.add_record(chunk.record.clone());
            }
        }
        chunks
    }

    fn facts(&self, overlap: Option<Overlap>) -> GenerationFacts {
        let facts = GenerationFacts::built_now_by(TOOL);
        let counts = self.reports.made.counts();
        GenerationFacts {
            expires_unix_seconds: self.args.expiry.end(facts.created_unix_seconds),
            build: BuildReport {
                rows: counts.rows,
                duplicates: self.reports.duplicates(self.begun),
                rejected: counts.rejected.iter().sum(),
                overlap: overlap.map(|overlap| overlap.ratio),
                recent_keys: self.begun.gate.recent_keys(),
                ..facts.build
            },
            lineage: self.args.lineage.labels(),
            folded: self.begun.merged.folded.clone(),
            ..facts
        }
    }

    /// The overlap with the live generation; `None` without one, or if a task could not read it.
    async fn overlap(&self, store: &Store) -> Result<Option<Overlap>, StoreError> {
        let base = &self.begun.base;
        let Some(current) = base.with_generation() else {
            return Ok(None);
        };
        let mut kept = 0;
        for part in &self.reports.parts {
            let Some(in_live) = part.in_live else {
                return Ok(None);
            };
            kept += in_live;
        }
        let live = store
            .manifest(base.audience(), &current.live_entry())
            .await?;
        let checked = sampled(&live).iter().map(|entry| entry.keys).sum();
        Ok(Some(Overlap::of(checked, kept)))
    }

    fn report(&self, manifest: &Manifest, overlap: Option<Overlap>) -> PublishReport {
        let begun = self.begun;
        let reports = self.reports;
        let counts = reports.made.counts();
        let written =
            reports.sum(|part| part.chunks.iter().map(|chunk| chunk.written as u64).sum());

        PublishReport {
            audience: manifest.audience().as_str().to_owned(),
            generation: manifest.generation(),
            stage: self.args.stage.stage,
            signed: self.writer.signs(),
            keys: manifest.keys(),
            rows: counts.rows,
            values: counts.values,
            duplicates: reports.duplicates(begun),
            blank: counts.of(Reason::Blank),
            malformed: counts.malformed(),
            columns: reports.made.columns.clone(),
            added: begun.merged.added().len() as u64,
            removed: reports.sum(|part| part.found - part.keys),
            expected_fpr: manifest.expected_fpr(),
            size_bytes: manifest.size_bytes(),
            chunks: manifest.chunks().len(),
            chunks_written: written as usize,
            expires_unix_seconds: manifest.expires_unix_seconds(),
            carried: reports.carried(begun),
            overlap,
            skew: Skew::of(manifest),
            lineage: manifest.lineage().cloned().unwrap_or_default(),
            gate: begun.gate.clone(),
        }
    }
}
