//! `inspect` command: manifest of a generation and fill of its filters.

use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::{BuildReport, ChunkEntry, Folded, Lineage, Manifest, shards_of};
use rtad_store::StoreError;

use super::audience_report::FilterReport;
use super::context::{Output, Target, default_threads, runtime};
use super::lineage_args::rfc3339;
use super::verify::FilterSurvey;

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
        let mut files = stream::iter(manifest.chunks())
            .map(|entry| {
                let file = store.chunk_file(&manifest, entry);
                async move { Ok::<_, StoreError>((entry, file.await?)) }
            })
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
    let report = InspectReport::new(&manifest, survey);
    let headline = format!("{} generation {}", report.audience, report.generation);
    output.facts(&headline, &report)
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
}
