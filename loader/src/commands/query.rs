//! `query` command: membership and values of given devices, read from the store.
//!
//! Reads the deltas, and the chunks of the ids that no delta decides. Answers are numbered and do
//! not repeat the ids, because the output may end up in a log.

use std::io::{self, Write};
use std::sync::Arc;

use clap::Args;
use indicatif::HumanCount;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit;
use rtad_core::device::{DeviceKey, KeyMaker, Unusable};

use super::context::{Output, Target, default_threads, runtime};
use crate::input::{Counts, Kinds, Source, each_line};
use crate::live_filters::{LiveFilters, chunks_of};

/// Check whether devices are members. One line per id: its position on the command line or in the
/// list, the answer, and the value of a member that has one.
#[derive(Debug, Args)]
pub struct QueryArgs {
    #[command(flatten)]
    target: Target,
    /// Kind of the ids: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid; several as in
    /// `rtad-loader build`
    #[arg(long, value_name = "KIND[,KIND]", default_value = "md5")]
    id_kind: Kinds,
    /// Ids, numbered from 1 in the answers; `-` reads a list from stdin, one id per line, and with
    /// --json writes one object per line
    #[arg(required = true, value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
}

#[derive(Debug, Serialize)]
struct QueryReport {
    audience: String,
    generation: u64,
    answers: Vec<&'static str>,
    /// One per id, if the generation has values.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Option<u8>>>,
}

/// The answer to a line of a list, as JSON.
#[derive(Debug, Serialize)]
struct LineAnswer {
    line: usize,
    answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u8>,
}

pub fn run(args: QueryArgs, output: &Output) -> Result<(), CommandError> {
    let key_maker = KeyMaker::default();
    let mut counts = Counts::default();
    let mut key = |id: &[u8]| {
        let kind = args.id_kind.of(id);
        let key = key_maker.key(kind, id);
        if key.is_ok() {
            counts.accept(kind, None, id);
        }
        key
    };
    let is_list = args.ids == ["-"];
    let mut keys: Vec<_> = Vec::new();
    match is_list {
        true => each_line(&Source::Stdin, &Arc::default(), |line| {
            keys.push(key(line));
            true
        })?,
        false => keys.extend(args.ids.iter().map(|id| key(id.as_bytes()))),
    }
    warn_of_lookalikes(&counts);
    let store = args.target.open()?;
    let report = runtime()?.block_on(async {
        let (manifest, overlay) = args.target.manifest_and_overlay(&store, None).await?;
        let is_open = |key: &DeviceKey| overlay.membership(key).is_none();
        let open: Vec<_> = keys
            .iter()
            .filter_map(|key| key.ok())
            .filter(is_open)
            .collect();
        let needed = chunks_of(&manifest, &open, u64::MAX);
        let filters = LiveFilters::read(&store, manifest, &needed, default_threads()).await?;
        // Deltas take precedence over filters.
        let is_member = |key: &DeviceKey| overlay.membership(key).or_else(|| filters.contains(key));
        let answer = |key: &Result<DeviceKey, Unusable>| match key {
            Ok(key) if is_member(key) == Some(true) => "member",
            Ok(_) => "not_member",
            Err(unusable) => unusable.as_str(),
        };
        let value = |key: &Result<DeviceKey, Unusable>| {
            let key = key.as_ref().ok()?;
            overlay.value(key).unwrap_or_else(|| filters.value(key))
        };
        let has_values = filters.manifest().filter().value_bits() > 0;
        Ok::<_, CommandError>(QueryReport {
            audience: args.target.audience.as_str().to_owned(),
            generation: filters.manifest().generation(),
            answers: keys.iter().map(answer).collect(),
            values: has_values.then(|| keys.iter().map(value).collect()),
        })
    })?;
    if is_list && output.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let line = |(line, answer, value)| LineAnswer {
            line,
            answer,
            value,
        };
        let written = report.lines().map(line);
        let written = written.into_iter().try_for_each(|line| {
            serde_json::to_writer(&mut out, &line)?;
            out.write_all(b"\n")
        });
        return written
            .and_then(|()| out.flush())
            .map_err(CommandError::output);
    }
    output.data(&report, QueryReport::write_text)
}

/// Warns of ids that most likely are of another kind: each would be `not_member`.
fn warn_of_lookalikes(counts: &Counts) {
    for ((kind, other), count) in counts.lookalikes() {
        let usable = counts.usable[kind as usize];
        if count * 2 > usable {
            exit::write_warning(&format!(
                "{} of {} ids of kind {kind} look like ids of kind {other}; if they are, their \
                 answers are wrong: use --id-kind {other}",
                HumanCount(count),
                HumanCount(usable)
            ));
        }
    }
}

impl QueryReport {
    /// Number, answer and value of each id.
    fn lines(&self) -> impl Iterator<Item = (usize, &'static str, Option<u8>)> {
        let value = |index| self.values.as_ref().and_then(|values| values[index]);
        let answers = self.answers.iter().enumerate();
        answers.map(move |(index, answer)| (index + 1, *answer, value(index)))
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for (line, answer, value) in self.lines() {
            match value {
                Some(value) => writeln!(out, "{line}\t{answer}\t{value}")?,
                None => writeln!(out, "{line}\t{answer}")?,
            }
        }
        Ok(())
    }
}
