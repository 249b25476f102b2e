//! `plan --table`: false-positive rate of a Bloom filter, computed and optionally measured.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::synth::random_key;

use super::super::context::{Output, default_threads};
use super::super::verify::wilson;
use crate::progress::Progress;
use crate::seen::{BloomSpec, fpr, summed_fpr};

const KEYS: [u32; 2] = [1_000_000_000, 7_000_000];
const BITS_PER_KEY: [u32; 2] = [30, 50];
const HASHES: [u32; 2] = [8, 16];
/// Size of the measured filters: seconds on any machine.
const MEASURED_KEYS: u32 = 7_000_000;
/// Lookups of non-members: 2,000 false positives at 1e-5, and none at 1e-9.
const PROBES: u64 = 200_000_000;
const BATCH: u64 = 1 << 20;
/// Index of the first member; non-members start at 0.
const FIRST_MEMBER: u64 = 1 << 60;

/// JSON object of `plan --table`.
#[derive(Debug, Serialize)]
struct PlanTable {
    rows: Vec<Row>,
    note: &'static str,
}

#[derive(Debug, Serialize)]
struct Row {
    keys: u32,
    bits_per_key: u32,
    hashes: u32,
    memory_bytes: u64,
    /// Rate of a filter with all keys: (1 − e^(−kn/m))^k.
    fpr: f64,
    /// Expected false positives while all keys are added one by one, as in `dedup`.
    false_positives: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
}

#[derive(Debug, Serialize)]
struct Measured {
    probes: u64,
    false_positives: u64,
    fpr: f64,
    /// 95 % interval (Wilson 1927).
    low: f64,
    high: f64,
}

pub fn run(measure: bool, output: &Output) -> Result<(), CommandError> {
    let progress = output.progress();
    progress.phase("probing non-members");
    let mut rows = Vec::new();
    for keys in KEYS {
        for bits_per_key in BITS_PER_KEY {
            for hashes in HASHES {
                rows.push(Row::new(keys, bits_per_key, hashes, measure, &progress));
            }
        }
    }
    drop(progress);
    let note = "one Bloom filter, by formula; measured where given";
    output.data(&PlanTable { rows, note }, PlanTable::write_text)
}

impl Row {
    fn new(keys: u32, bits_per_key: u32, hashes: u32, measure: bool, progress: &Progress) -> Self {
        let spec = BloomSpec {
            hashes,
            millibits_per_key: bits_per_key * 1000,
        };
        let memory_bytes = spec.size_bytes(keys);
        let bits = memory_bytes as f64 * 8.0;
        Self {
            keys,
            bits_per_key,
            hashes,
            memory_bytes,
            fpr: fpr(hashes, bits, keys.into()),
            false_positives: summed_fpr(hashes, bits, keys.into()),
            measured: (measure && keys == MEASURED_KEYS)
                .then(|| Measured::of(spec, keys, progress)),
        }
    }
}

impl Measured {
    /// Fills a filter and looks up non-members on all cores.
    fn of(spec: BloomSpec, keys: u32, progress: &Progress) -> Self {
        let mut filter = vec![0; spec.size_bytes(keys) as usize];
        for index in 0..u64::from(keys) {
            spec.insert(&mut filter, &random_key(FIRST_MEMBER + index));
        }
        let (next, found) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..default_threads() {
                scope.spawn(|| {
                    loop {
                        let first = next.fetch_add(BATCH, Ordering::Relaxed);
                        if first >= PROBES {
                            return;
                        }
                        let keys = (first..PROBES.min(first + BATCH)).map(random_key);
                        let positives = keys.filter(|key| spec.contains(&filter[..], key)).count();
                        found.fetch_add(positives as u64, Ordering::Relaxed);
                        progress.add(BATCH);
                    }
                });
            }
        });
        let false_positives = found.into_inner();
        let (low, high) = wilson(false_positives, PROBES);
        Self {
            probes: PROBES,
            false_positives,
            fpr: false_positives as f64 / PROBES as f64,
            low,
            high,
        }
    }
}

impl PlanTable {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{:>13} {:>5} {:>3} {:>11} {:>11} {:>22}  measured",
            "keys n", "m/n", "k", "memory", "fpr", "false in adding all n"
        )?;
        for row in &self.rows {
            let measured = match &row.measured {
                None => String::new(),
                Some(Measured {
                    probes,
                    false_positives,
                    fpr,
                    low,
                    high,
                }) => {
                    let probes = HumanCount(*probes);
                    format!("{fpr:.3e} ({low:.2e} to {high:.2e}), {false_positives} of {probes}")
                }
            };
            let line = format!(
                "{:>13} {:>5} {:>3} {:>11} {:>11.3e} {:>22.3}  {measured}",
                HumanCount(row.keys.into()).to_string(),
                row.bits_per_key,
                row.hashes,
                HumanBytes(row.memory_bytes).to_string(),
                row.fpr,
                row.false_positives
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out, "{}", self.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate for k = 8 and m/n = 30 is (1 − e^(−8/30))^8.
    #[test]
    fn rows_match_the_formula() {
        let row = Row::new(7_000_000, 30, 8, false, &Progress::new(false));
        assert!((row.fpr / 9.0e-6 - 1.0).abs() < 0.01, "{}", row.fpr);
        // Only the last key meets the full rate, so the sum is far below n times the rate.
        assert!(row.false_positives < 7e6 * row.fpr / 5.0 && row.false_positives > 1.0);
        assert_eq!(row.memory_bytes, 26_250_000);
    }
}
