//! `query` command: membership and values of given devices, read from the store.
//!
//! Reads the deltas, and the chunks of the ids that no delta decides. Answers are numbered and do
//! not repeat the ids, because the output may end up in a log.

use std::io::{self, Write};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit;
use rtad_core::device::{DeviceKey, KeyMaker, Reading, Unusable};
use rtad_core::snapshot::Overlay;

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
    let is_list = args.ids == ["-"];
    let mut asked = AskedIds::new(&args.id_kind);
    if is_list {
        each_line(&Source::Stdin, &Arc::default(), |line| {
            asked.add(line);
            true
        })?;
    } else {
        for id in &args.ids {
            asked.add(id.as_bytes());
        }
    }
    let keys = asked.keys;

    let store = args.target.open()?;
    let report = runtime()?.block_on(async {
        let (manifest, overlay) = args.target.manifest_and_overlay(&store, None).await?;
        let mut open = Vec::new();
        for key in keys.iter().flatten().flatten() {
            if overlay.membership(key).is_none() {
                open.push(*key);
            }
        }
        let needed = chunks_of(&manifest, &open, u64::MAX);
        let filters = LiveFilters::read(&store, manifest, &needed, default_threads()).await?;

        let mut answers = Vec::with_capacity(keys.len());
        let mut values = Vec::with_capacity(keys.len());
        for asked in &keys {
            let mut value = None;
            answers.push(match asked {
                Ok(keys) => {
                    value = value_of(&overlay, &filters, keys);
                    if is_member(&overlay, &filters, keys) {
                        "member"
                    } else {
                        "not_member"
                    }
                }
                Err(unusable) => unusable.as_str(),
            });
            values.push(value);
        }

        let has_values = filters.manifest().filter().value_bits() > 0;
        Ok::<_, CommandError>(QueryReport {
            audience: args.target.audience.as_str().to_owned(),
            generation: filters.manifest().generation(),
            answers,
            values: if has_values { Some(values) } else { None },
        })
    })?;

    for doubt in asked.counts.doubts(&args.id_kind) {
        exit::write_warning(&doubt);
    }

    if is_list && output.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        return report.write_lines(&mut out).map_err(CommandError::output);
    }
    output.data(&report, QueryReport::write_text)
}

/// Whether one of a device's keys is a member. Deltas take precedence over filters.
fn is_member(overlay: &Overlay, filters: &LiveFilters, keys: &[DeviceKey]) -> bool {
    keys.iter().any(|key| match overlay.membership(key) {
        Some(is_member) => is_member,
        None => filters.contains(key) == Some(true),
    })
}

/// The value of the first key that has one.
fn value_of(overlay: &Overlay, filters: &LiveFilters, keys: &[DeviceKey]) -> Option<u8> {
    let mut keys = keys.iter();
    keys.find_map(|key| overlay.value(key).unwrap_or_else(|| filters.value(key)))
}

/// The keys of an id: two of a UUID that may be of two kinds.
type AskedKeys = Result<Vec<DeviceKey>, Unusable>;

/// The ids of a query.
struct AskedIds<'a> {
    kinds: &'a Kinds,
    maker: KeyMaker,
    keys: Vec<AskedKeys>,
    counts: Counts,
}

impl<'a> AskedIds<'a> {
    fn new(kinds: &'a Kinds) -> Self {
        Self {
            kinds,
            maker: KeyMaker::default(),
            keys: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn add(&mut self, id: &[u8]) {
        let Reading { kind, case } = self.kinds.reading(id);
        let mut keys = Vec::new();
        let made = self.maker.keys(kind, case, id, &mut keys);
        match made {
            Ok(()) => self.counts.accept(kind, None, id),
            Err(unusable) => self.counts.reject(unusable.into(), None, id),
        }
        self.keys.push(made.map(|()| keys));
    }
}

impl QueryReport {
    fn lines(&self) -> Vec<LineAnswer> {
        let mut lines = Vec::with_capacity(self.answers.len());
        for (index, answer) in self.answers.iter().enumerate() {
            let mut value = None;
            if let Some(values) = &self.values {
                value = values[index];
            }
            lines.push(LineAnswer {
                line: index + 1,
                answer,
                value,
            });
        }
        lines
    }

    /// Writes a JSON object per id.
    fn write_lines(&self, out: &mut impl Write) -> io::Result<()> {
        for line in self.lines() {
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for LineAnswer {
            line,
            answer,
            value,
        } in self.lines()
        {
            match value {
                Some(value) => writeln!(out, "{line}\t{answer}\t{value}")?,
                None => writeln!(out, "{line}\t{answer}")?,
            }
        }
        Ok(())
    }
}
