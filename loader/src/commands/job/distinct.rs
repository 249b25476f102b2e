//! `distinct` command: deduplicates the keys of a range of buckets and applies the deltas.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_core::device::DeviceKey;

use super::super::carried::CarriedReport;
use super::super::context::Output;
use super::super::value_parsers::parse_output_file;
use super::lines::{self, DistinctLine, ReportLine};
use crate::frames::{self, BUCKETS, FrameContent};

/// Deduplicate the keys of frames: a step of a distributed build.
///
/// Reads frames in any order from stdin: those of `rtad-loader keys --frames` and of `rtad-loader
/// begin --changes`. Writes sorted frames of distinct keys, with the keys that deltas added and
/// without those that deltas and tombstones removed. The sum of `keys` over all parts is the value
/// of `rtad-loader chunk --keys`. All frames of a bucket must go to one run.
///
/// The part and the number of keys go to stderr as one line of JSON, or to --report. Takes 16 bytes
/// of memory per key read, duplicates included, and up to twice that while the buffer grows.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct DistinctArgs {
    /// Process only the buckets of part J (from 0) of N, such as 3/16; N is a power of two up to
    /// 4096
    #[arg(long, value_name = "J/N", default_value = "0/1")]
    part: Part,
    /// Write the keys without frame headers
    #[arg(long)]
    bare: bool,
    /// Write the report to FILE instead of stderr
    #[arg(long, value_name = "FILE", value_parser = parse_output_file)]
    report: Option<PathBuf>,
}

/// A range of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    first: u32,
    buckets: u32,
}

impl FromStr for Part {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parsed: Option<(u32, u32)> = text
            .split_once('/')
            .and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
        match parsed {
            Some((part, parts)) if parts.is_power_of_two() && parts <= BUCKETS && part < parts => {
                let buckets = BUCKETS / parts;
                Ok(Self {
                    first: part * buckets,
                    buckets,
                })
            }
            _ => Err("accepted: J/N with N a power of two up to 4096, and J from 0 to N - 1"),
        }
    }
}

pub fn run(args: &DistinctArgs, output: &Output) -> Result<(), CommandError> {
    let (mut keys, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut carried_added, mut carried_removed) = (Vec::new(), Vec::new());
    let progress = output.progress();
    progress.phase("reading keys");
    let stdin = io::stdin().lock();
    frames::read("stdin", stdin, |bucket, content, found| {
        if bucket.wrapping_sub(args.part.first) >= args.part.buckets {
            return;
        }
        progress.add(found.len() as u64);
        match content {
            FrameContent::Ids => keys.extend_from_slice(found),
            FrameContent::Added => added.extend_from_slice(found),
            FrameContent::Removed => removed.extend_from_slice(found),
            FrameContent::CarriedAdded => carried_added.extend_from_slice(found),
            FrameContent::CarriedRemoved => carried_removed.extend_from_slice(found),
        }
    })?;
    progress.phase("sorting keys");
    sort_distinct(&mut added);
    sort_distinct(&mut removed);
    sort_distinct(&mut carried_added);
    sort_distinct(&mut carried_removed);
    let mut line = DistinctLine {
        first_bucket: args.part.first,
        buckets: args.part.buckets,
        added: added.len() as u64,
        removed: removed.len() as u64,
        ..DistinctLine::default()
    };
    keys.append(&mut added);
    sort_distinct(&mut keys);
    line.found = keys.len() as u64;
    if !removed.is_empty() {
        keys.retain(|key| removed.binary_search(key).is_err());
    }
    line.keys = keys.len() as u64;
    let members = |carried: &[DeviceKey]| {
        carried
            .iter()
            .filter(|key| keys.binary_search(key).is_ok())
            .count() as u64
    };
    line.carried = CarriedReport {
        added: carried_added.len() as u64,
        removed: carried_removed.len() as u64,
        dropped: carried_added.len() as u64 - members(&carried_added),
        returned: members(&carried_removed),
        kept: false,
    };
    progress.phase("writing keys");
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let written = match args.bare {
        true => keys
            .iter()
            .try_for_each(|key| out.write_all(key.as_bytes())),
        false => frames::write(&mut out, FrameContent::Ids, &keys),
    };
    written
        .and_then(|()| out.flush())
        .map_err(CommandError::data_output)?;
    drop(progress);
    lines::report(&ReportLine::Distinct(line), args.report.as_deref())
}

/// Sorts keys and removes duplicates.
pub fn sort_distinct(keys: &mut Vec<DeviceKey>) {
    // Comparing keys as integers is faster and keeps the byte order.
    keys.sort_unstable_by_key(|key| u128::from_be_bytes(*key.as_bytes()));
    keys.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_a_range_of_buckets() {
        assert_eq!(
            "0/1".parse(),
            Ok(Part {
                first: 0,
                buckets: 4096
            })
        );
        assert_eq!(
            "15/16".parse(),
            Ok(Part {
                first: 3840,
                buckets: 256
            })
        );
        assert_eq!(
            "4095/4096".parse(),
            Ok(Part {
                first: 4095,
                buckets: 1
            })
        );
        for refused in ["", "1", "1/1", "0/0", "0/3", "0/8192", "-1/4", "a/4"] {
            assert!(refused.parse::<Part>().is_err(), "{refused}");
        }
    }
}
