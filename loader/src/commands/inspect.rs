//! `inspect` command: manifest of a generation and fill of its filters.

use std::io::{self, Write};

use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::{
    BuildReport, ChunkEntry, Folded, InputRecord, Lineage, Manifest, shards_of,
};
use rtad_store::StoreError;

use super::audience_report::FilterReport;
use super::context::{Output, Target, default_threads, runtime};
use super::lineage_args::{labels_text, rfc3339};
use super::verify::{FilterSurvey, Spread};

/// Show the manifest of a generation, and the fill of its filters as read from the chunks.
///
/// Takes up to 100 MB of memory per core, at any size of the generation.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct InspectArgs {
    #[command(flatten)]
    target: Target,
    /// Inspect this generation instead of the live one
    #[arg(long, value_name = "G")]
    generation: Option<u64>,
}

#[derive(Debug, Serialize)]
struct InspectReport {
    audience: String,
    generation: u64,
    created_unix_seconds: u64,
    expires_unix_seconds: Option<u64>,
    expired: bool,
    keys: u64,
    size_bytes: u64,
    #[serde(flatten)]
    filter: FilterReport,
    build: BuildReport,
    /// Time of the build as in RFC 3339.
    created: String,
    #[serde(flatten)]
    lineage: Lineage,
    /// Merged deltas.
    #[serde(skip_serializing_if = "Option::is_none")]
    folded: Option<Folded>,
    /// Fill computed from the chunks, over the shards with keys.
    survey: FilterSurvey,
    chunks: Vec<ChunkEntry>,
}

pub fn run(args: InspectArgs, output: &Output) -> Result<(), CommandError> {
    let store = args.target.open()?;
    let progress = output.progress();
    progress.phase("reading chunks");

    let (manifest, survey) = runtime()?.block_on(async {
        let (manifest, _) = args
            .target
            .manifest_and_current(&store, args.generation)
            .await?;
        let spec = manifest.filter();
        progress.expect(manifest.chunks().len() as u64);

        // The order makes floating-point sums reproducible.
        let read = |entry| {
            let file = store.chunk_file(&manifest, entry);
            async move { Ok::<_, StoreError>((entry, file.await?)) }
        };
        let mut files = stream::iter(manifest.chunks())
            .map(read)
            .buffered(default_threads());

        let mut survey = FilterSurvey::default();
        while let Some((entry, file)) = files.try_next().await? {
            for shard in shards_of(spec, entry, &file) {
                survey.add_shard(spec, shard);
            }
            progress.add(1);
        }
        drop(files);
        Ok::<_, CommandError>((manifest, survey))
    })?;

    drop(progress);
    output.data(
        &InspectReport::new(&manifest, survey),
        InspectReport::write_text,
    )
}

impl InspectReport {
    fn new(manifest: &Manifest, survey: FilterSurvey) -> Self {
        Self {
            audience: manifest.audience().as_str().to_owned(),
            generation: manifest.generation(),
            created_unix_seconds: manifest.created_unix_seconds(),
            expires_unix_seconds: manifest.expires_unix_seconds(),
            expired: manifest.is_expired(now_unix_seconds()),
            keys: manifest.keys(),
            size_bytes: manifest.size_bytes(),
            filter: FilterReport::of(manifest),
            build: manifest.build().clone(),
            created: rfc3339(manifest.created_unix_seconds()),
            lineage: manifest.lineage().cloned().unwrap_or_default(),
            folded: manifest.folded().cloned(),
            survey,
            chunks: manifest.chunks().to_vec(),
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let BuildReport {
            tool,
            rows,
            duplicates,
            rejected,
        } = &self.build;
        let bits = f64::from(self.filter.millibits_per_key) / 1000.0;
        let shards = self.survey.shards;
        writeln!(out, "{} generation {}", self.audience, self.generation)?;
        writeln!(out, "  created     {}", self.created)?;
        if let Some(expires) = self.expires_unix_seconds {
            let now = if self.expired { ", expired" } else { "" };
            writeln!(out, "  expires     {}{now}", rfc3339(expires))?;
        }
        if !self.lineage.labels.is_empty() {
            writeln!(out, "  labels      {}", labels_text(&self.lineage))?;
        }
        for InputRecord {
            name,
            size_bytes,
            rows,
            usable,
            ..
        } in &self.lineage.inputs
        {
            let size = size_bytes.map_or(String::new(), |size| format!(" of {}", HumanBytes(size)));
            let (rows, usable) = (HumanCount(*rows), HumanCount(*usable));
            writeln!(
                out,
                "  input       {name}{size}: {rows} rows, {usable} usable"
            )?;
        }
        writeln!(out, "  built by    {tool}")?;
        let [rows, duplicates, rejected] = [rows, duplicates, rejected].map(|n| HumanCount(*n));
        writeln!(
            out,
            "  rows        {rows}, {duplicates} duplicates, {rejected} without a usable id"
        )?;
        writeln!(
            out,
            "  keys        {} in {shards} shards",
            HumanCount(self.keys)
        )?;
        if let Some(Folded { through, .. }) = &self.folded {
            writeln!(out, "  merged      deltas up to sequence {through}")?;
        }
        let FilterReport {
            filter,
            hashes,
            target_fpr,
            expected_fpr,
            ..
        } = self.filter;
        let (size, chunks) = (HumanBytes(self.size_bytes), self.chunks.len());
        writeln!(out, "  size        {size} in {chunks} chunks")?;
        if let (Some(diverted), Some(listed)) = (self.filter.diverted_keys, self.filter.listed_keys)
        {
            let all = self.size_bytes as f64 * 8.0 / self.keys.max(1) as f64;
            writeln!(
                out,
                "  filter      {filter}, {bits} fingerprint bits, {all:.3} bits per key"
            )?;
            let (diverted, listed) = (HumanCount(diverted), HumanCount(listed));
            writeln!(
                out,
                "  tiers       {diverted} keys in second tiers, {listed} in lists"
            )?;
        } else {
            writeln!(
                out,
                "  filter      {filter}, {hashes} hashes, {bits} bits per key"
            )?;
        }
        for (name, spread) in [
            ("fill", self.survey.fill),
            ("diverted", self.survey.diverted),
        ] {
            if let Some(Spread { min, mean, max }) = spread {
                writeln!(
                    out,
                    "  {name:<11} min {min:.4}  mean {mean:.4}  max {max:.4}"
                )?;
            }
        }
        let Spread { min, mean, max } = self.survey.expected_fpr;
        writeln!(
            out,
            "  shards' fpr min {min:.3e}  mean {mean:.3e}  max {max:.3e}"
        )?;
        writeln!(
            out,
            "  fpr         {expected_fpr:.3e} expected, {target_fpr:.3e} requested"
        )
    }
}
