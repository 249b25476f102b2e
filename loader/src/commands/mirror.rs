//! `mirror` command: the state of audiences in another store.

use clap::Args;
use serde::Serialize;

use rtad_cli::TrustArgs;
use rtad_cli::command_error::CommandError;
use rtad_core::snapshot::AudienceName;
use rtad_store::Store;
use rtad_store::write::{Mirrored, StoreWriter};

use super::context::{Output, runtime};

/// Copy audiences to another store, which serves as their mirror: for a second region, a standby or
/// an archive.
///
/// Copies what the newest record names and the mirror lacks, then the records, under the same
/// numbers. A mirror that was stopped goes on where it was. Run it again after each publish, or
/// every minute; nothing else may write to the mirror but a gc.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct MirrorArgs {
    /// Store to read: a directory, s3://, gs://, az://, oss://, cos:// or https:// URL
    #[arg(long, value_name = "URL")]
    from: String,
    /// Store to write: a directory, s3://, gs://, az://, oss:// or cos:// URL
    #[arg(long, value_name = "URL")]
    to: String,
    /// Copy only this audience; needed if the store to read cannot be listed
    #[arg(long, value_name = "NAME")]
    audience: Option<AudienceName>,
    #[command(flatten)]
    trust: TrustArgs,
}

#[derive(Debug, Serialize)]
struct MirrorReport {
    audiences: Vec<AudienceReport>,
}

#[derive(Debug, Serialize)]
struct AudienceReport {
    audience: AudienceName,
    #[serde(flatten)]
    mirrored: Mirrored,
}

pub fn run(args: MirrorArgs, output: &Output) -> Result<(), CommandError> {
    let source = args.trust.applied_to(Store::open(&args.from)?)?;
    let target = args.trust.applied_to(Store::open(&args.to)?)?;
    let mirror = StoreWriter::new(target)?.creating_store();
    let report = runtime()?.block_on(async {
        let is_named = args.audience.is_some();
        let names = match args.audience {
            Some(audience) => vec![audience],
            None => source.audiences().await?,
        };
        let mut audiences = Vec::new();
        for audience in names {
            // The folder of a first build, before its record.
            if !is_named && source.live(&audience).await?.is_none() {
                continue;
            }
            let mirrored = mirror.mirror_from(&source, &audience).await?;
            audiences.push(AudienceReport { audience, mirrored });
        }
        Ok::<_, CommandError>(MirrorReport { audiences })
    })?;

    let records: u64 = report
        .audiences
        .iter()
        .map(|one| one.mirrored.records)
        .sum();
    let headline = format!(
        "{} audiences mirrored: {records} records",
        report.audiences.len()
    );
    output.report(&headline, &report)
}
