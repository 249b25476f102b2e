//! `plan` command: memory, disk and pods of an audience, computed before a build.
//!
//! Sizes are those of shards with the mean number of keys: within a few percent of a build's. Only
//! an audience of less than a million keys, which leaves shards empty, takes much less.

use clap::Args;
use indicatif::HumanCount;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::device::SHARDS;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::shards_per_chunk;

use super::context::Output;
use super::error::CommonError;

/// Memory of a pod beside one snapshot with `swap = "rolling"`, and beside two with `"whole"`:
/// `docs/guides/size-a-fleet.md`.
const BESIDE_ROLLING: u64 = 700_000_000;
const BESIDE_WHOLE: u64 = 650_000_000;
/// Decisions per second and core that the service is designed for.
const DECISIONS_PER_CORE: u64 = 100_000;
const PEAK_QPS: u64 = 300_000;
/// Size of ribbon filters to that of their fingerprints, measured from 10^9 to 10^10 keys.
const RIBBON_OVERHEAD: f64 = 1.03;
/// Ribbon shards with fewer keys are lists, of four bytes a key.
const LEAST_RIBBON_KEYS: u64 = 32;

/// Compute the cost of an audience: memory, disk, pods. Reads and writes nothing.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Distinct keys
    #[arg(long, value_name = "N", value_parser = parse_keys)]
    keys: u64,
    /// False-positive rate, a fraction
    #[arg(long, value_name = "P", default_value_t = 0.0001)]
    fpr: f64,
}

#[derive(Debug, Serialize)]
struct PlanReport {
    keys: u64,
    target_fpr: f64,
    filters: Vec<FilterPlan>,
    build_key_bytes: u64,
    qps: u64,
    decisions_per_core_per_second: u64,
    one_core_pods: u64,
    note: &'static str,
}

#[derive(Debug, Serialize)]
struct FilterPlan {
    filter: FilterKind,
    hashes: u32,
    bits_per_key: f64,
    memory_bytes: u64,
    swap_memory_bytes: u64,
    chunks: u64,
    disk_bytes: u64,
    /// Memory limits of a pod, by `store.swap`.
    whole_pod_bytes: u64,
    rolling_pod_bytes: u64,
}

/// A number of keys, also in exponent notation: 1.5e9.
fn parse_keys(text: &str) -> Result<u64, &'static str> {
    let number = match text.parse::<u64>() {
        Ok(number) => Some(number),
        Err(_) => text
            .parse()
            .ok()
            .filter(|number: &f64| number.fract() == 0.0)
            .map(|n| n as u64),
    };
    number
        .filter(|keys| (1..=10_000_000_000).contains(keys))
        .ok_or("accepted: a whole number from 1 to 10000000000, also as 1.5e9")
}

pub fn run(args: &PlanArgs, output: &Output) -> Result<(), CommandError> {
    let keys = args.keys;
    let mut filters = vec![FilterPlan::new(FilterKind::Block512, keys, args.fpr)?];
    // It does not have the lowest rates.
    filters.extend(FilterPlan::new(FilterKind::Ribbon, keys, args.fpr));
    let report = PlanReport {
        keys,
        target_fpr: args.fpr,
        filters,
        build_key_bytes: keys * 16,
        qps: PEAK_QPS,
        decisions_per_core_per_second: DECISIONS_PER_CORE,
        one_core_pods: PEAK_QPS.div_ceil(DECISIONS_PER_CORE),
        note: "computed, some percent off for a small audience; a whole swap has both snapshots in \
               memory",
    };
    let keys = HumanCount(keys);
    let headline = format!("{keys} keys at a false-positive rate of {}", args.fpr);
    output.facts(&headline, &report)
}

impl FilterPlan {
    fn new(kind: FilterKind, keys: u64, fpr: f64) -> Result<Self, CommonError> {
        let spec = FilterSpec::for_fpr(kind, fpr).map_err(CommonError::Fpr)?;
        let memory = filter_bytes(&spec, keys);
        let per_chunk = u64::from(shards_per_chunk(&spec, keys));
        // A few keys leave some chunks empty.
        let chunks = (SHARDS as u64 / per_chunk).min(keys);
        let arrays = if kind == FilterKind::Ribbon { 3 } else { 1 };
        let headers = chunks * (64 + 4 * arrays * per_chunk);
        Ok(Self {
            filter: kind,
            hashes: spec.hashes(),
            bits_per_key: memory as f64 * 8.0 / keys as f64,
            memory_bytes: memory,
            swap_memory_bytes: 2 * memory,
            chunks,
            disk_bytes: memory + headers,
            whole_pod_bytes: 2 * memory + BESIDE_WHOLE,
            rolling_pod_bytes: memory + BESIDE_ROLLING,
        })
    }
}

/// The size of the filters of `keys` keys.
fn filter_bytes(spec: &FilterSpec, keys: u64) -> u64 {
    let shards = keys.min(SHARDS as u64);
    let mean_keys = keys.div_ceil(shards);
    if spec.kind() != FilterKind::Ribbon {
        return spec.filter_bytes(mean_keys as u32) * shards;
    }

    if mean_keys < LEAST_RIBBON_KEYS {
        return keys * 4;
    }
    // The exact size depends on the keys: a constant instead of a built sample.
    let fingerprint_bits = keys as f64 * f64::from(spec.millibits_per_key()) / 1000.0;
    (fingerprint_bits * RIBBON_OVERHEAD / 8.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_ribbon_filter_has_its_measured_size() {
        let spec = FilterSpec::for_fpr(FilterKind::Ribbon, 0.0001).unwrap();
        assert_eq!(filter_bytes(&spec, 100_000), 400_000);
        let bits = filter_bytes(&spec, 1_500_000_000) as f64 * 8.0 / 1.5e9;
        assert!((13.6..13.9).contains(&bits), "{bits}");
    }

    #[test]
    fn keys_may_have_an_exponent() {
        for (text, keys) in [("7", 7), ("1.5e9", 1_500_000_000), ("1E10", 10_000_000_000)] {
            assert_eq!(parse_keys(text), Ok(keys), "{text}");
        }
        for refused in ["", "0", "1.5", "-1", "1e11", "NaN", "inf", "10000000001"] {
            assert!(parse_keys(refused).is_err(), "{refused}");
        }
    }
}
