//! `query` command: membership of given devices, read from the store.
//!
//! Reads the deltas, and the chunks of the ids that no delta decides. Answers are numbered and do
//! not repeat the ids, because the output may end up in a log.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::device::{DeviceKey, IdKind, KeyMaker, Unusable};
use rtad_core::snapshot::{Chunk, ChunkEntry, Manifest};

use super::context::{Output, Target, default_threads, runtime};

/// Check whether devices are members. One line per id: its position on the command line, and the
/// answer.
#[derive(Debug, Args)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    target: Target,
    /// Kind of the ids: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid
    #[arg(long, value_name = "KIND", default_value = "md5")]
    id_kind: IdKind,
    /// Query this generation, without deltas, instead of the live one
    #[arg(long, value_name = "G")]
    generation: Option<u64>,
    /// Ids, numbered from 1 in the answers
    #[arg(required = true, value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
}

#[derive(Debug, Serialize)]
struct QueryReport {
    audience: String,
    generation: u64,
    answers: Vec<&'static str>,
}

pub(super) fn run(args: QueryArgs, output: &Output) -> Result<(), CommandError> {
    let key_maker = KeyMaker::default();
    let keys: Vec<_> =
        args.ids.iter().map(|id| key_maker.key(args.id_kind, id.as_bytes())).collect();
    let store = args.target.open()?;
    let report = runtime()?.block_on(async {
        let (manifest, overlay) = args.target.manifest_and_overlay(&store, args.generation).await?;
        // Deltas take precedence over filters.
        let overridden: Vec<_> =
            keys.iter().map(|key| overlay.membership(key.as_ref().ok()?)).collect();
        let open = keys.iter().zip(&overridden).filter(|(_, overridden)| overridden.is_none());
        let usable: Vec<_> = open.filter_map(|(key, _)| key.ok()).collect();
        let holds = |entry: &&ChunkEntry| {
            let shards = entry.first_shard..entry.first_shard + entry.shard_count;
            usable.iter().any(|key| shards.contains(&key.shard().into()))
        };
        let needed: Vec<_> = manifest.chunks().iter().filter(holds).cloned().collect();
        let mut members = vec![false; keys.len()];
        let arrived = |_: &ChunkEntry, chunk: Chunk| {
            for (member, key) in members.iter_mut().zip(&keys) {
                *member |= key.is_ok_and(|key| contains(&manifest, &chunk, &key));
            }
        };
        store.chunks(&args.target.audience, &manifest, &needed, default_threads(), arrived).await?;
        for (member, overridden) in members.iter_mut().zip(overridden) {
            *member = overridden.unwrap_or(*member);
        }
        let answer = |(key, member): (&Result<DeviceKey, Unusable>, bool)| match key {
            Ok(_) if member => "member",
            Ok(_) => "not_member",
            Err(unusable) => unusable.as_str(),
        };
        Ok::<_, CommandError>(QueryReport {
            audience: manifest.audience().as_str().to_owned(),
            generation: manifest.generation(),
            answers: keys.iter().zip(members).map(answer).collect(),
        })
    })?;
    output.data(&report, QueryReport::write_text)
}

fn contains(manifest: &Manifest, chunk: &Chunk, key: &DeviceKey) -> bool {
    chunk.shards().any(|shard| shard == key.shard())
        && manifest.filter().contains(chunk.filter(key.shard()), key)
}

impl QueryReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for (index, answer) in self.answers.iter().enumerate() {
            writeln!(out, "{}\t{answer}", index + 1)?;
        }
        Ok(())
    }
}
