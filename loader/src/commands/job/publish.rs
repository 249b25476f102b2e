//! `publish` command: commits the chunks of a job as a generation, after checking all reports.

use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;

use rtad_cli::command_error::CommandError;
use rtad_core::device::KeyDigest;
use rtad_core::snapshot::{BuildReport, ChunkRecord, Digest};
use rtad_core::snapshot::{FilterCheck, Manifest, ManifestBuilder, shards_per_chunk};
use rtad_sign::{SignArgs, TrustArgs};
use rtad_store::write::{Base, Publication};
use rtad_store::{Store, StoreError};

use super::super::carried::{CarriedLimitArgs, CarriedReport};
use super::super::context::{Output, runtime};
use super::super::error::CommonError;
use super::super::expiry_args::ExpiryArgs;
use super::super::gate::{Gate, GateArgs};
use super::super::lineage_args::LineageArgs;
use super::super::new_manifest::{NO_GENERATION, new_manifest};
use super::super::overlap::{Overlap, sampled};
use super::super::reject_args::RejectLimit;
use super::super::skew::Skew;
use super::error::JobError;
use super::lines::{self, ChunkLine, DistinctLine, KeysLine, ReportLine};
use super::publish_report::PublishReport;
use super::spec::{ChangedKeys, Job};
use crate::frames::BUCKETS;
use crate::input::InputError;

/// Publish the chunks of a distributed build: the last step, run once.
///
/// Takes the report lines of `rtad-loader keys`, `distinct` and `chunk`, in any order. Publishes
/// only if every part was deduplicated with the keys of --changes, and the chunks belong to this
/// job, share one layout, do not overlap, hold all keys and exist in the store. Lines of a chunk
/// may repeat; each line of `keys` and `distinct` must occur once. The lines of `keys` name the
/// hash of the ids, so there may be no more keys than they report.
///
/// Exit codes and limits are the same as for `rtad-loader build`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PublishArgs {
    /// Store of the snapshots, as in `rtad-loader build`
    #[arg(long, value_name = "URL")]
    store: String,
    /// Output of `rtad-loader begin`: the JSON itself, or a file with it
    #[arg(long, value_name = "JOB|FILE", value_parser = Job::parse)]
    job: Job,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
    #[command(flatten)]
    reject_limit: RejectLimit,
    /// Publish even without any chunk; over a generation with keys this also needs --max-shrink 1
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    carried: CarriedLimitArgs,
    #[command(flatten)]
    expiry: ExpiryArgs,
    #[command(flatten)]
    lineage: LineageArgs,
    /// Run all checks, but write nothing to the store
    #[arg(long)]
    dry_run: bool,
    /// Files of report lines, or `-` for stdin
    #[arg(required = true, value_name = "LINES")]
    lines: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct StepReports {
    read: KeysLine,
    /// A part whose values are all unusable.
    unusable: Option<KeysLine>,
    distinct: DistinctParts,
    chunks: BTreeMap<u32, ChunkLine>,
}

#[derive(Debug, Default)]
struct DistinctParts {
    parts: BTreeMap<u32, u32>,
    keys: u64,
    /// Distinct keys before removals.
    found: u64,
    /// Keys read from `--changes`.
    changes: ChangedKeys,
    carried: CarriedReport,
}

pub fn run(args: &PublishArgs, output: &Output) -> Result<(), CommandError> {
    let job = &args.job;
    let store = args.trust.applied_to(Store::open(&args.store)?)?;
    let (store, signer) = args.sign.signer(store, &args.trust)?;
    let is_signed = signer.is_some();
    // A dry run also works on a read-only store.
    let writer = match args.dry_run {
        true => None,
        false => Some(args.sign.writer_by(store.clone(), signer)?),
    };
    let reported = StepReports::read(args)?;
    reported.check(args)?;
    let digest = reported.read.digest()?;
    let carried = reported.carried(job);
    let (base, filter) = (job.base(), job.filter());
    let summary = runtime()?.block_on(async {
        // First, because the gate compares with the live generation.
        let publication = match &writer {
            Some(writer) => {
                writer.check_unsigned_write(base.audience()).await?;
                Some(writer.publish(base.clone()).await?)
            }
            None => {
                base.check_is_live(store.live(base.audience()).await?.as_ref())?;
                None
            }
        };
        let fpr = job.target_fpr;
        let gate = Gate::open(&args.gate, (&filter, fpr), digest, &store, &base).await?;
        let generation = publication
            .as_ref()
            .map_or(NO_GENERATION, Publication::generation);
        let (manifest, check) = reported.manifest(args, generation, digest);
        // Parse the manifest as readers do: the reports may be invalid.
        Manifest::parse(&manifest.to_bytes(), &job.audience, generation)
            .map_err(JobError::InvalidManifest)?;
        gate.check(&manifest, &check)?;
        let overlap = reported.overlap(&store, &base).await?;
        if overlap.is_none() && gate.needs_overlap() {
            return Err(JobError::OverlapUnknown.into());
        }
        gate.check_overlap(overlap)?;
        let missing = store
            .missing_chunks(base.audience(), manifest.chunks())
            .await?;
        if let Some(entry) = missing.first() {
            let (missing, chunks, first) = (missing.len(), manifest.chunks().len(), entry.digest);
            return Err(JobError::MissingChunks {
                missing,
                chunks,
                first,
            }
            .into());
        }
        if let Some(publication) = publication {
            publication.commit(&manifest).await?;
        }
        Skew::of(&manifest).warn(job.audience.as_str());
        Ok::<_, CommandError>(reported.report(
            &manifest,
            gate,
            (carried, overlap),
            (args.dry_run, is_signed),
        ))
    })?;
    if let Some(carried) = carried {
        carried.warn(job.audience.as_str());
    }
    output.report(&summary, PublishReport::write_text)
}

impl StepReports {
    fn read(args: &PublishArgs) -> Result<Self, JobError> {
        let (mut reported, job) = (Self::default(), args.job.id());
        let (mut keys, mut wrong) = (None, None);
        lines::read(&args.lines, |line| match line {
            ReportLine::Keys(line) => {
                reported.read.add(&line);
                if line.is_unusable() {
                    reported.unusable = Some(line);
                }
            }
            ReportLine::Distinct(line) => {
                if let Err(error) = reported.distinct.take(&line) {
                    wrong.get_or_insert(error);
                }
            }
            ReportLine::Chunk(line) => {
                let expected = *keys.get_or_insert(line.keys);
                if let Err(error) = reported.take(args, line, job, expected) {
                    wrong.get_or_insert(error);
                }
            }
        })?;
        wrong.map_or(Ok(reported), Err)
    }

    fn take(
        &mut self,
        args: &PublishArgs,
        line: ChunkLine,
        job: Digest,
        expected: u64,
    ) -> Result<(), JobError> {
        let shards_per_chunk = shards_per_chunk(&args.job.filter(), line.keys);
        let first = line.entry.first_shard;
        let last = first.saturating_add(line.entry.shard_count.saturating_sub(1));
        let chunk = first / shards_per_chunk;
        if line.job != job {
            return Err(JobError::OtherJob { chunk });
        }
        if line.keys != expected {
            return Err(JobError::KeysDiffer {
                chunk,
                found: line.keys,
                expected,
            });
        }
        if last / shards_per_chunk != chunk
            || last > u32::from(u16::MAX)
            || line.entry.shard_count == 0
        {
            return Err(JobError::Misaligned {
                first,
                last,
                shards_per_chunk,
            });
        }
        match self.chunks.get_mut(&chunk) {
            Some(held) if held.entry != line.entry || held.stats != line.stats => {
                Err(JobError::ChunkDiffers { chunk })
            }
            Some(held) => {
                held.written |= line.written;
                Ok(())
            }
            None => {
                self.chunks.insert(chunk, line);
                Ok(())
            }
        }
    }

    /// Rejects incomplete or unusable reports.
    fn check(&self, args: &PublishArgs) -> Result<(), CommandError> {
        if let Some(part) = &self.unusable {
            args.reject_limit
                .check_one("of one `keys` step", &part.counts(), args.allow_empty)?;
        }
        let sum = self.read.counts();
        args.reject_limit.check_one(
            "of all `keys` steps",
            &sum,
            args.allow_empty || sum.keys == 0,
        )?;
        args.reject_limit.warn_of_columns(&self.read.columns);
        if let Some(column) = self.read.absent.first().filter(|_| sum.rows > 0) {
            return Err(InputError::NoMember {
                column: column.clone(),
                rows: sum.rows,
            }
            .into());
        }
        self.distinct.check(&args.job)?;
        let (found, reported) = (
            self.distinct.found,
            self.read.keys + self.distinct.changes.added,
        );
        if found > reported {
            return Err(JobError::KeysUnreported { found, reported }.into());
        }
        if args.carried.is_given() && args.job.carried.report.is_none() {
            return Err(JobError::CarriedUnread.into());
        }
        args.carried.check(self.distinct.carried)?;
        let found = self.chunks.values().map(|line| line.entry.keys).sum();
        let cut_for = self.chunks.values().next().map_or(0, |line| line.keys);
        for expected in [self.distinct.keys, cut_for] {
            if found != expected {
                return Err(JobError::KeyCountMismatch { found, expected }.into());
            }
        }
        if found == 0 && !args.allow_empty {
            return Err(CommonError::Empty {
                rows: self.read.rows,
            }
            .into());
        }
        Ok(())
    }

    /// The carried changes; `None` if `begin` could not read them.
    fn carried(&self, job: &Job) -> Option<CarriedReport> {
        let report = job.carried.report?;
        Some(if report.kept {
            report
        } else {
            self.distinct.carried
        })
    }

    /// The overlap with the live generation; `None` without one, or if a step could not read it.
    async fn overlap(&self, store: &Store, base: &Base) -> Result<Option<Overlap>, StoreError> {
        let found: Option<Vec<u64>> = self.chunks.values().map(|line| line.in_live).collect();
        let (Some(current), Some(found)) = (base.current(), found) else {
            return Ok(None);
        };
        let live = store.manifest(base.audience(), current).await?;
        let checked = sampled(&live).iter().map(|entry| entry.keys).sum();
        Ok((checked > 0).then(|| Overlap::of(checked, found.iter().sum())))
    }

    fn manifest(
        &self,
        args: &PublishArgs,
        generation: u64,
        digest: KeyDigest,
    ) -> (Manifest, FilterCheck) {
        let job = &args.job;
        let mut manifest = ManifestBuilder::new(job.filter(), job.target_fpr);
        for line in self.chunks.values() {
            manifest.add_record(ChunkRecord {
                entry: line.entry.clone(),
                stats: line.stats,
            });
        }
        let build = BuildReport {
            rows: self.read.rows,
            duplicates: self.duplicates(),
            rejected: self.read.rejected.values().sum(),
            ..BuildReport::default()
        };
        let (folded, check) = (job.folded(), manifest.check());
        let audience = &job.audience;
        let manifest = new_manifest(manifest, audience, generation, build, folded, args.expiry)
            .with_lineage(args.lineage.labels())
            .with_key_digest(digest);
        (manifest, check)
    }

    fn report(
        &self,
        manifest: &Manifest,
        gate: Gate,
        (carried, overlap): (Option<CarriedReport>, Option<Overlap>),
        (dry_run, signed): (bool, bool),
    ) -> PublishReport {
        let Self {
            read,
            distinct,
            chunks,
            ..
        } = self;
        PublishReport {
            audience: manifest.audience().as_str().to_owned(),
            generation: (!dry_run).then_some(manifest.generation()),
            dry_run,
            signed: signed && !dry_run,
            keys: manifest.keys(),
            rows: read.rows,
            values: read.values,
            duplicates: self.duplicates(),
            rejected: read.rejected.clone(),
            columns: read.columns.clone(),
            added: distinct.changes.added,
            removed: distinct.found.saturating_sub(distinct.keys),
            expected_fpr: manifest.expected_fpr(),
            size_bytes: manifest.size_bytes(),
            chunks: chunks.len(),
            chunks_written: chunks.values().filter(|line| line.written).count(),
            expires_unix_seconds: manifest.expires_unix_seconds(),
            carried,
            overlap,
            skew: Skew::of(manifest),
            lineage: manifest.lineage().cloned().unwrap_or_default(),
            gate,
        }
    }

    fn duplicates(&self) -> u64 {
        (self.read.keys + self.distinct.changes.added).saturating_sub(self.distinct.found)
    }
}

impl DistinctParts {
    fn take(&mut self, line: &DistinctLine) -> Result<(), JobError> {
        let (first, buckets) = (line.first_bucket, line.buckets);
        if buckets == 0 || first >= BUCKETS || buckets > BUCKETS - first {
            return Err(JobError::InvalidPart { first, buckets });
        }
        if self.parts.insert(first, buckets).is_some() {
            return Err(JobError::PartTwice { bucket: first });
        }
        self.keys += line.keys;
        self.found += line.found;
        self.changes.added += line.added;
        self.changes.removed += line.removed;
        self.carried.added += line.carried.added;
        self.carried.removed += line.carried.removed;
        self.carried.dropped += line.carried.dropped;
        self.carried.returned += line.carried.returned;
        Ok(())
    }

    /// Checks that every bucket is in one part, and that the parts read all of `--changes`.
    fn check(&self, job: &Job) -> Result<(), JobError> {
        let carried = job
            .carried
            .report
            .filter(|report| !report.kept)
            .unwrap_or_default();
        let mut next = 0;
        for (first, buckets) in self
            .parts
            .iter()
            .map(|(first, buckets)| (*first, *buckets))
            .chain([(BUCKETS, 0)])
        {
            if first > next {
                return Err(JobError::PartMissing {
                    first: next,
                    last: first - 1,
                });
            }
            if first < next {
                return Err(JobError::PartTwice { bucket: first });
            }
            next = first + buckets;
        }
        for (what, found, expected) in [
            ("deltas added", self.changes.added, job.changes.added),
            ("deltas removed", self.changes.removed, job.changes.removed),
            ("earlier deltas added", self.carried.added, carried.added),
            (
                "earlier deltas removed",
                self.carried.removed,
                carried.removed,
            ),
        ] {
            if found != expected {
                return Err(JobError::ChangesNotRead {
                    what,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }
}
