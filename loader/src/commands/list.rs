//! `list` command: generations of the audiences in a store.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, HumanCount, HumanDuration};
use serde::Serialize;

use rtad_cli::TrustArgs;
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::{AudienceName, DeltaReport, GenerationReport, Lineage, Manifest};
use rtad_store::{Store, StoreError};

use super::audience_report::delta_text;
use super::context::{Output, runtime};
use super::error::CommonError;
use super::lineage_args::{labels_text, rfc3339};
use super::stage_args::PodShare;

/// List the generations of audiences: the live one, age, keys, size, false-positive rate, and the
/// share of the devices before that it kept.
///
/// Lists the generations that the newest record of an audience keeps.
///
/// Ends with 4 if the signature of a newest record is refused, and with 5 if such a record is
/// damaged, or the manifest of a live generation is missing or damaged, after the list; with
/// --json, the error stands in place of the list.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ListArgs {
    /// Store of the snapshots: a directory, file:///directory, s3://bucket/prefix,
    /// gs://bucket/prefix, az://container/prefix, oss://bucket/prefix, cos://bucket/prefix; with
    /// --audience also https://host/path or http://host/path
    #[arg(long, value_name = "URL")]
    store: String,
    /// List only this audience
    #[arg(long, value_name = "NAME")]
    audience: Option<AudienceName>,
    #[command(flatten)]
    trust: TrustArgs,
}

#[derive(Debug, Serialize)]
struct ListReport {
    audiences: Vec<Audience>,
}

#[derive(Debug, Serialize)]
struct Audience {
    audience: AudienceName,
    live_generation: Option<u64>,
    staged_generation: Option<u64>,
    /// The share of the pods that serve it.
    stage: Option<PodShare>,
    rolled_back_from: Option<u64>,
    /// Deltas over the live generation.
    over: Option<DeltaReport>,
    generations: Vec<Generation>,
    /// Error cause, if the newest record is unreadable.
    #[serde(skip)]
    record_fault: Option<&'static str>,
    /// The error of the newest record, or of the live manifest.
    #[serde(skip)]
    refused: Option<ListError>,
}

/// A live generation that no pod would load.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(transparent)]
    Store(StoreError),
    #[error(
        "audience {audience}: the manifest of live generation {generation} is missing or damaged, \
         so that no pod can load it; restore the file from a backup, or build again, with \
         --max-change any"
    )]
    Manifest {
        audience: AudienceName,
        generation: u64,
        #[source]
        source: StoreError,
    },
}

impl CommandFailure for ListError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Store(error) | Self::Manifest { source: error, .. } => error.exit(),
        }
    }
}

impl ListError {
    fn of_manifest(audience: &AudienceName, generation: u64, source: StoreError) -> Self {
        match source {
            StoreError::NotFound { .. } | StoreError::Manifest { .. } => Self::Manifest {
                audience: audience.clone(),
                generation,
                source,
            },
            source => Self::Store(source),
        }
    }
}

#[derive(Debug, Serialize)]
struct Generation {
    generation: u64,
    live: bool,
    /// Error cause, if the manifest is unreadable.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'static str>,
    #[serde(flatten)]
    facts: Option<Facts>,
}

#[derive(Debug, Serialize)]
struct Facts {
    #[serde(flatten)]
    generation: GenerationReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_unix_seconds: Option<u64>,
    expired: bool,
    chunks: usize,
    /// The share of the devices of the generation before that stayed members, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<f64>,
    /// Time of the build as in RFC 3339.
    created: String,
    #[serde(flatten)]
    lineage: Lineage,
}

impl Facts {
    fn of(manifest: &Manifest) -> Self {
        Self {
            generation: GenerationReport::of(manifest),
            expires_unix_seconds: manifest.expires_unix_seconds(),
            expired: manifest.is_expired(now_unix_seconds()),
            chunks: manifest.chunks().len(),
            overlap: manifest.build().overlap,
            created: rfc3339(manifest.created_unix_seconds()),
            lineage: manifest.lineage().cloned().unwrap_or_default(),
        }
    }

    fn kept(&self) -> String {
        match self.overlap {
            None => String::new(),
            Some(overlap) => format!(", kept {overlap:.4}"),
        }
    }

    fn labels(&self) -> String {
        match &*labels_text(&self.lineage) {
            "" => String::new(),
            labels => format!(", {labels}"),
        }
    }

    fn expiry(&self) -> String {
        match self.expires_unix_seconds {
            None => String::new(),
            Some(_) if self.expired => ", expired".to_owned(),
            Some(expires) => {
                let left = expires.saturating_sub(now_unix_seconds());
                format!(", expires in {}", HumanDuration(Duration::from_secs(left)))
            }
        }
    }
}

pub fn run(args: ListArgs, output: &Output) -> Result<(), CommandError> {
    let store = args.trust.applied_to(Store::open(&args.store)?)?;
    let mut report = runtime()?.block_on(async {
        let names = match &args.audience {
            Some(name) => vec![name.clone()],
            None => store.audiences().await?,
        };
        let mut audiences = Vec::new();
        for name in names {
            let audience = read_audience(&store, name).await?;
            let is_missing = audience.live_generation.is_none() && audience.refused.is_none();
            if is_missing && args.audience.is_some() {
                return Err(CommonError::not_published(&audience.audience));
            }
            audiences.push(audience);
        }
        Ok::<_, CommandError>(ListReport { audiences })
    })?;

    let refused = report
        .audiences
        .iter_mut()
        .find_map(|audience| audience.refused.take());
    let Some(refused) = refused else {
        return output.data(&report, ListReport::write_text);
    };
    // Of a failure, stdout has its own object.
    if !output.json {
        let _ = output.data(&report, ListReport::write_text);
    }
    Err(refused.into())
}

async fn read_audience(store: &Store, audience: AudienceName) -> Result<Audience, StoreError> {
    let mut report = Audience {
        audience: audience.clone(),
        live_generation: None,
        staged_generation: None,
        stage: None,
        rolled_back_from: None,
        over: None,
        generations: Vec::new(),
        record_fault: None,
        refused: None,
    };
    let current = match store.live(&audience).await {
        Ok(Some(live)) => live.current,
        Ok(None) => return Ok(report),
        // It does not hide the other audiences.
        Err(error @ (StoreError::Signature { .. } | StoreError::Manifest { .. })) => {
            report.record_fault = Some(error.cause());
            report.refused = Some(ListError::Store(error));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    report.live_generation = Some(current.generation);
    report.rolled_back_from = current.rolled_back_from;
    if let Some(staged) = current.staged {
        report.staged_generation = Some(staged.entry.generation);
        report.stage = Some(PodShare::of_millionths(staged.pods_per_million));
    }
    report.over = Some(DeltaReport::of(&current));

    for entry in current.generations() {
        let mut generation = Generation {
            generation: entry.generation,
            live: entry.generation == current.generation,
            fault: None,
            facts: None,
        };
        // An unreadable manifest is reported and does not hide the others.
        match store.manifest(&audience, &entry).await {
            Ok(manifest) => generation.facts = Some(Facts::of(&manifest)),
            Err(error) => {
                generation.fault = Some(error.cause());
                if generation.live {
                    let number = entry.generation;
                    report.refused = Some(ListError::of_manifest(&audience, number, error));
                }
            }
        }
        report.generations.push(generation);
    }
    Ok(report)
}

impl ListReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.audiences.is_empty() {
            return writeln!(out, "no audiences");
        }

        for Audience {
            audience,
            staged_generation,
            stage,
            rolled_back_from,
            over,
            generations,
            record_fault,
            ..
        } in &self.audiences
        {
            write!(out, "{audience}")?;
            if let Some(from) = rolled_back_from {
                write!(out, " (rolled back from {from})")?;
            }
            if let (Some(generation), Some(share)) = (staged_generation, stage) {
                write!(
                    out,
                    " (generation {generation} is staged for {share} of the pods)"
                )?;
            }
            writeln!(out)?;
            if let Some(fault) = record_fault {
                writeln!(out, "  newest record unreadable: {fault}")?;
            }

            for Generation {
                generation,
                live,
                fault,
                facts,
            } in generations
            {
                let live = if *live { "live" } else { "" };
                write!(out, "  {generation:>6} {live:<4} ")?;
                match facts {
                    Some(facts) => writeln!(
                        out,
                        "{:>16} keys {:>12} {:>10} fpr {:.3e}  {} ({} old{}{}{})",
                        HumanCount(facts.generation.keys).to_string(),
                        HumanBytes(facts.generation.size_bytes).to_string(),
                        facts.generation.filter,
                        facts.generation.expected_fpr,
                        facts.created,
                        HumanDuration(Duration::from_secs(facts.generation.age_seconds)),
                        facts.expiry(),
                        facts.kept(),
                        facts.labels()
                    )?,
                    None => writeln!(out, "unreadable: {}", fault.unwrap_or("unknown"))?,
                }
            }
            if let Some(over) = over.as_ref().filter(|over| !over.is_empty()) {
                writeln!(out, "       deltas  {}", delta_text(over))?;
            }
        }
        Ok(())
    }
}
