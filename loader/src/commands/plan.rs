//! `plan` command: memory, disk and pods of an audience, computed before a build.
//!
//! The size of a Bloom filter is a step function of a shard's key count, and key counts are Poisson
//! distributed. Sizes are means over that distribution, so they also hold for small audiences,
//! whose shards are mostly rounding. The size of a ribbon filter depends on its keys: a sample of
//! shards is built from random keys.

use std::io::{self, Write};

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::device::{DeviceKey, SHARDS};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{ChunkBuilder, shards_per_chunk};
use rtad_core::synth::random_key;

use super::context::Output;
use super::error::CommonError;
use super::value_parsers::parse_size;

/// Memory of a pod beside one snapshot with `swap = "rolling"`, and beside two with `"whole"`:
/// `docs/guides/size-a-fleet.md`.
const BESIDE_ROLLING: u64 = 700_000_000;
const BESIDE_WHOLE: u64 = 650_000_000;
/// Decisions per second and core that the service is designed for.
const DECISIONS_PER_CORE: u64 = 100_000;
const PEAK_QPS: u64 = 300_000;

/// Compute the cost of an audience: memory, disk, pods. Reads and writes nothing.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Distinct keys
    #[arg(long, value_name = "N", value_parser = parse_keys)]
    keys: u64,
    /// False-positive rate, a fraction
    #[arg(long, value_name = "P", default_value_t = 0.0001)]
    fpr: f64,
    /// Only this kind of filter: block512, ribbon [default: all that have this rate]
    #[arg(long, value_name = "KIND")]
    filter: Option<FilterKind>,
    /// Memory limit of a pod: shows which kinds fit, and with which `store.swap`
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
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
    /// The value of `store.swap` for a pod of the given memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    swap: Option<&'static str>,
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
    let plan = |kind| FilterPlan::new(kind, keys, args.fpr, args.memory);
    let filters = match args.filter {
        Some(kind) => vec![plan(kind)?],
        None => {
            let mut filters = vec![plan(FilterKind::Block512)?];
            // It does not have the lowest rates.
            filters.extend(plan(FilterKind::Ribbon));
            filters
        }
    };
    let report = PlanReport {
        keys,
        target_fpr: args.fpr,
        filters,
        build_key_bytes: keys * 16,
        qps: PEAK_QPS,
        decisions_per_core_per_second: DECISIONS_PER_CORE,
        one_core_pods: PEAK_QPS.div_ceil(DECISIONS_PER_CORE),
        note: "computed, ribbon from a built sample; a whole swap has both snapshots in memory",
    };
    output.data(&report, PlanReport::write_text)
}

impl FilterPlan {
    fn new(
        kind: FilterKind,
        keys: u64,
        fpr: f64,
        pod_bytes: Option<u64>,
    ) -> Result<Self, CommonError> {
        let spec = FilterSpec::for_fpr(kind, fpr).map_err(CommonError::Fpr)?;
        let memory = match kind {
            FilterKind::Ribbon => sampled_filter_bytes(&spec, keys),
            _ => mean_filter_bytes(&spec, keys as f64 / SHARDS as f64) * SHARDS as f64,
        };
        let per_chunk = u64::from(shards_per_chunk(&spec, keys));
        // A few keys leave some chunks empty.
        let chunks = (SHARDS as u64 / per_chunk).min(keys);
        let arrays = if kind == FilterKind::Ribbon { 3 } else { 1 };
        let headers = chunks * (64 + 4 * arrays * per_chunk);
        Ok(Self {
            filter: kind,
            hashes: spec.hashes(),
            bits_per_key: memory * 8.0 / keys as f64,
            memory_bytes: memory as u64,
            swap_memory_bytes: 2 * memory as u64,
            chunks,
            disk_bytes: memory as u64 + headers,
            swap: pod_bytes.map(|pod| swap_mode(memory as u64, pod)),
        })
    }
}

/// The value of `store.swap` with which a pod of this memory can replace a snapshot.
const fn swap_mode(snapshot_bytes: u64, pod_bytes: u64) -> &'static str {
    if pod_bytes >= 2 * snapshot_bytes + BESIDE_WHOLE {
        "whole"
    } else if pod_bytes >= snapshot_bytes + BESIDE_ROLLING {
        "rolling"
    } else {
        "too large"
    }
}

/// The size of the filters of `keys` keys, from those of a sample of shards: all shards of an
/// audience of up to two million keys, at least 16 of a larger one. Takes under a second.
fn sampled_filter_bytes(spec: &FilterSpec, keys: u64) -> f64 {
    const SAMPLE_KEYS: u64 = 2_000_000;
    let mut shards = SHARDS as u64;
    while shards > 16 && keys * shards / SHARDS as u64 > SAMPLE_KEYS {
        shards /= 2;
    }
    let mut sample: Vec<DeviceKey> = (0..keys * shards / SHARDS as u64)
        .map(|index| {
            let mut bytes = *random_key(index).as_bytes();
            let shard = u64::from(u16::from_be_bytes([bytes[0], bytes[1]])) % shards;
            bytes[..2].copy_from_slice(&(shard as u16).to_be_bytes());
            DeviceKey::from_bytes(bytes)
        })
        .collect();
    sample.sort_unstable();
    let mut chunk = ChunkBuilder::new(spec, 0);
    for keys in sample.chunk_by(|a, b| a.shard() == b.shard()) {
        chunk.add_shard(keys[0].shard(), keys.iter().copied());
    }
    chunk.body_bytes() as f64 * SHARDS as f64 / shards as f64
}

/// The mean size of a shard's filter when the shards have `mean` keys on average.
fn mean_filter_bytes(spec: &FilterSpec, mean: f64) -> f64 {
    // Ten standard deviations either way leave out less than 1e-20.
    let reach = 10.0 * mean.sqrt() + 20.0;
    let (first, last) = ((mean - reach).max(0.0) as u32, (mean + reach) as u32);
    // Relative to the first term, in logarithms: e^-mean itself is zero for large means.
    let peak = poisson_ln(mean, mean.floor());
    let (mut sum, mut weights) = (0.0, 0.0);
    for keys in first..=last {
        let weight = (poisson_ln(mean, f64::from(keys)) - peak).exp();
        sum += weight * spec.filter_bytes(keys) as f64;
        weights += weight;
    }
    sum / weights
}

/// ln of `mean^k / k!`. The factorial uses Stirling's series, accurate to 1e-9 from k = 10, and
/// exact sums below.
fn poisson_ln(mean: f64, k: f64) -> f64 {
    let ln_factorial = if k < 10.0 {
        (1..=k as u32).map(|i| f64::from(i).ln()).sum()
    } else {
        k * k.ln() - k + 0.5 * (std::f64::consts::TAU * k).ln() + 1.0 / (12.0 * k)
            - 1.0 / (360.0 * k.powi(3))
    };
    k * mean.ln() - ln_factorial
}

impl PlanReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (keys, fpr) = (HumanCount(self.keys), self.target_fpr);
        writeln!(out, "{keys} keys at a false-positive rate of {fpr}")?;
        writeln!(out)?;
        writeln!(
            out,
            "{:<10} {:>6} {:>9} {:>12} {:>12} {:>7} {:>12}{}",
            "filter",
            "hashes",
            "bits/key",
            "memory",
            "in a swap",
            "chunks",
            "disk",
            if self.filters.iter().any(|plan| plan.swap.is_some()) {
                "  store.swap"
            } else {
                ""
            }
        )?;
        for plan in &self.filters {
            writeln!(
                out,
                "{:<10} {:>6} {:>9.3} {:>12} {:>12} {:>7} {:>12}{}",
                plan.filter.as_str(),
                plan.hashes,
                plan.bits_per_key,
                HumanBytes(plan.memory_bytes).to_string(),
                HumanBytes(plan.swap_memory_bytes).to_string(),
                plan.chunks,
                HumanBytes(plan.disk_bytes).to_string(),
                plan.swap
                    .map_or_else(String::new, |swap| format!("  {swap}"))
            )?;
        }
        writeln!(out)?;
        let keys = HumanBytes(self.build_key_bytes);
        writeln!(
            out,
            "a build holds about {keys} of keys, on disk if they exceed --memory"
        )?;
        writeln!(
            out,
            "pods: {} with one core each for {} requests/s at {} decisions/s per core, plus spares",
            self.one_core_pods,
            HumanCount(self.qps),
            HumanCount(self.decisions_per_core_per_second)
        )?;
        writeln!(out, "{}", self.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_has_the_size_of_the_audience() {
        let spec = FilterSpec::for_fpr(FilterKind::Ribbon, 0.0001).unwrap();
        // A shard below 32 keys is a list of 4 bytes each. The other figures were measured with
        // large shards.
        assert_eq!(sampled_filter_bytes(&spec, 100_000), 400_000.0);
        let bits = sampled_filter_bytes(&spec, 1_500_000_000) * 8.0 / 1.5e9;
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
