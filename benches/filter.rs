//! Filter benchmark: both kinds at full size, and one random memory read for comparison.
//!
//! 1.5 billion keys in 65,536 shards, generated from a counter, so only the filters are in memory.
//! Prints a Markdown table for `docs/explanation/performance.md`. Takes about ten minutes and 6 GB.
//!
//! ```text
//! cargo bench --bench filter                       # 1.5 billion keys
//! cargo bench --bench filter -- --keys 100000000   # a smaller set
//! ```

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use rtad_core::device::{DeviceKey, SHARDS};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::memory::{Pages, Region};

/// Lookups per figure; each figure is the best of three rounds.
const LOOKUPS: u64 = 4_000_000;

fn main() {
    let keys = argument("--keys").unwrap_or(1_500_000_000);
    println!(
        "{keys} keys in {SHARDS} shards, one core; ns per lookup, best of three rounds of \
         {LOOKUPS}\n"
    );
    println!(
        "| filter | pages | GB | bits/key | fpr by formula | by fill | measured over all | \
         measured in each of 16 shards | build M keys/s | miss | hit | miss, dependent | \
         hit, dependent | miss, batch | hit, batch |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for fpr in [1e-3, 1e-4] {
        for kind in [FilterKind::Classic, FilterKind::Block512] {
            for pages in [Pages::Large, Pages::Small] {
                measure_filter(keys, kind, fpr, pages);
            }
        }
    }
    println!(
        "\n| keys per shard | classic, measured fpr for 1e-4 | block512, measured fpr for 1e-4 |\n\
         |---|---|---|"
    );
    for per_shard in [5, 15, 76, 305, 1526, 22_888] {
        let [classic, block] =
            [FilterKind::Classic, FilterKind::Block512].map(|kind| fpr_of_shards(kind, per_shard));
        println!("| {per_shard} | {classic:.2e} | {block:.2e} |");
    }
    let making = best_of_three(|salt| {
        let begun = Instant::now();
        for i in 0..LOOKUPS {
            let random = mix(i ^ salt << 40);
            black_box(key((random >> 48) as usize, random & 0xffff));
        }
        begun.elapsed().as_nanos() as f64 / LOOKUPS as f64
    });
    println!("\nMaking a key, which every figure above includes: {making:.0} ns");
    println!("\n| one random read in | pages | independent | dependent |\n|---|---|---|---|");
    for pages in [Pages::Large, Pages::Small] {
        measure_memory(keys * 20 / 8, pages);
    }
}

fn argument(name: &str) -> Option<u64> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).map(|value| value.parse().expect("a number"))
}

/// A bijection on 64 bits with random-looking output (SplitMix64's finalizer).
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Key `index` of a shard, as uniform as an md5.
fn key(shard: usize, index: u64) -> DeviceKey {
    let seed = mix((shard as u64) << 40 | index).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let (low, high) = (mix(seed), mix(seed ^ 0x5851_f42d_4c95_7f2d));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..].copy_from_slice(&high.to_le_bytes());
    bytes[..2].copy_from_slice(&(shard as u16).to_be_bytes());
    DeviceKey::from_bytes(bytes)
}

struct Table {
    spec: FilterSpec,
    memory: Region,
    /// Start and length of each shard's filter, and its key count.
    shards: Vec<(usize, usize, u64)>,
}

impl Table {
    fn filter(&self, shard: usize) -> &[u8] {
        let (start, len, _) = self.shards[shard];
        &self.memory[start..start + len]
    }

    fn contains(&self, key: &DeviceKey) -> bool {
        self.spec.contains(self.filter(usize::from(key.shard())), key)
    }

    /// A member (`hit`) or a non-member, from a random number.
    fn probe(&self, random: u64, hit: bool) -> DeviceKey {
        let shard = (random >> 48) as usize;
        let (_, _, keys) = self.shards[shard];
        let index = (random & 0xffff_ffff) % keys;
        key(shard, if hit { index } else { index | 1 << 39 })
    }
}

fn build(keys: u64, spec: FilterSpec, pages: Pages) -> (Table, f64) {
    // Shard sizes vary as with md5s: their standard deviation is the square root of their mean.
    let mean = keys as f64 / SHARDS as f64;
    let counts: Vec<u64> = (0..SHARDS as u64)
        .map(|shard| {
            let uniform: f64 = (0..12)
                .map(|i| (mix(shard * 12 + i + 1) >> 11) as f64 / (1_u64 << 53) as f64)
                .sum();
            (mean + (uniform - 6.0) * mean.sqrt()).max(1.0) as u64
        })
        .collect();
    let mut shards = Vec::with_capacity(SHARDS);
    let mut start = 0;
    for count in counts {
        let len =
            spec.filter_bytes(u32::try_from(count).expect("a shard's keys fit 32 bits")) as usize;
        shards.push((start, len, count));
        start += len;
    }
    let mut memory = Region::zeroed(start, pages).expect("memory for the filters");
    let begun = Instant::now();
    for (shard, (start, len, count)) in shards.iter().enumerate() {
        let filter = &mut memory[*start..start + len];
        for index in 0..*count {
            spec.insert(filter, &key(shard, index));
        }
    }
    let built = shards.iter().map(|(_, _, count)| count).sum::<u64>();
    let rate = built as f64 / begun.elapsed().as_secs_f64() / 1e6;
    (Table { spec, memory, shards }, rate)
}

fn measure_filter(keys: u64, kind: FilterKind, fpr: f64, pages: Pages) {
    let spec = FilterSpec::for_fpr(kind, fpr).expect("a sensible rate");
    let (table, build_rate) = build(keys, spec, pages);
    for shard in (0..SHARDS).step_by(257) {
        let all_found = (0..table.shards[shard].2).all(|index| table.contains(&key(shard, index)));
        assert!(all_found, "a false negative in shard {shard}");
    }
    let (measured, least, most) = false_positives(&table);
    let formula =
        |shard: &(usize, usize, u64)| spec.theoretical_fpr(shard.2 as u32, shard.1 as u64);
    let formula = table.shards.iter().map(formula).sum::<f64>() / SHARDS as f64;
    let fill = (0..SHARDS).map(|shard| spec.expected_fpr(table.filter(shard))).sum::<f64>()
        / SHARDS as f64;
    let built: u64 = table.shards.iter().map(|(_, _, count)| count).sum();
    let bytes = table.memory.len() as f64;
    let [miss, hit] = [false, true].map(|hit| best_of_three(|salt| independent(&table, hit, salt)));
    let [miss_chain, hit_chain] =
        [false, true].map(|hit| best_of_three(|salt| dependent(&table, hit, salt)));
    let [miss_batch, hit_batch] =
        [false, true].map(|hit| best_of_three(|salt| batched(&table, hit, salt)));
    println!(
        "| {} k = {} | {} | {:.2} | {:.2} | {formula:.2e} | {fill:.2e} | {measured:.2e} | \
         {least:.2e} to {most:.2e} | {build_rate:.0} | {miss:.0} | {hit:.0} | {miss_chain:.0} | \
         {hit_chain:.0} | {miss_batch:.0} | {hit_batch:.0} |",
        kind.as_str(),
        spec.hashes(),
        name(pages),
        bytes / 1e9,
        bytes * 8.0 / built as f64,
    );
}

fn name(pages: Pages) -> &'static str {
    match pages {
        Pages::Large => "2 MiB",
        Pages::Small => "4 KiB",
    }
}

/// False-positive rates: over all shards with 2,000 non-members each, and the lowest and highest of
/// 16 shards with 4 million each.
fn false_positives(table: &Table) -> (f64, f64, f64) {
    let rate = |shard: usize, count: u64| {
        (0..count).filter(|index| table.contains(&key(shard, index | 1 << 38))).count() as f64
            / count as f64
    };
    let overall = (0..SHARDS).map(|shard| rate(shard, 2000)).sum::<f64>() / SHARDS as f64;
    let shards: Vec<f64> = (0..16).map(|i| rate(i * 4096 + 7, 4_000_000)).collect();
    let least = shards.iter().copied().fold(f64::INFINITY, f64::min);
    (overall, least, shards.into_iter().fold(0.0, f64::max))
}

/// The rate over 4,096 shards of about `mean` keys each, with 20 million non-members.
fn fpr_of_shards(kind: FilterKind, mean: u64) -> f64 {
    let spec = FilterSpec::for_fpr(kind, 1e-4).expect("a sensible rate");
    let (table, _) = build(mean * SHARDS as u64, spec, Pages::Large);
    let positives =
        |shard: usize| (0..5000).filter(|i| table.contains(&key(shard, i | 1 << 38))).count();
    (0..SHARDS).step_by(16).map(positives).sum::<usize>() as f64 / (5000.0 * SHARDS as f64 / 16.0)
}

fn best_of_three(round: impl Fn(u64) -> f64) -> f64 {
    (1..=3).map(round).fold(f64::INFINITY, f64::min)
}

/// Time per lookup of independent lookups.
fn independent(table: &Table, hit: bool, salt: u64) -> f64 {
    let begun = Instant::now();
    let mut found = 0_u64;
    for i in 0..LOOKUPS {
        found += u64::from(table.contains(&table.probe(mix(i ^ salt << 40), hit)));
    }
    black_box(found);
    begun.elapsed().as_nanos() as f64 / LOOKUPS as f64
}

/// Latency of a lookup: each key depends on the answer before, so lookups do not overlap.
fn dependent(table: &Table, hit: bool, salt: u64) -> f64 {
    let lookups = LOOKUPS / 4;
    let begun = Instant::now();
    let mut state = salt;
    for _ in 0..lookups {
        let key = table.probe(mix(state), hit);
        state = state.wrapping_add(1 + u64::from(table.contains(&key)));
    }
    black_box(state);
    begun.elapsed().as_nanos() as f64 / lookups as f64
}

/// Time per lookup in batches of sixteen keys, all touched before any is tested.
fn batched(table: &Table, hit: bool, salt: u64) -> f64 {
    let begun = Instant::now();
    let mut found = 0_u64;
    for batch in 0..LOOKUPS / 16 {
        let keys: [DeviceKey; 16] =
            std::array::from_fn(|i| table.probe(mix((batch * 16 + i as u64) ^ salt << 40), hit));
        let targets = keys
            .each_ref()
            .map(|key| table.spec.probe_target(table.filter(usize::from(key.shard())), key));
        black_box(targets.iter().fold(0, |read, target| read ^ target.touch()));
        found += keys
            .iter()
            .zip(targets)
            .filter(|(key, target)| table.spec.contains_at(*target, key))
            .count() as u64;
    }
    black_box(found);
    begun.elapsed().as_nanos() as f64 / LOOKUPS as f64
}

/// Time to read one byte at a random address of as much memory.
fn measure_memory(bytes: u64, pages: Pages) {
    let mut memory = Region::zeroed(bytes as usize, pages).expect("memory for the floor");
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let address = |random: u64| ((u128::from(random) * u128::from(bytes)) >> 64) as usize;
    let independent = best_of_three(|salt| {
        let begun = Instant::now();
        let sum = (0..LOOKUPS)
            .fold(0_u64, |sum, i| sum + u64::from(memory[address(mix(i ^ salt << 40))]));
        black_box(sum);
        begun.elapsed().as_nanos() as f64 / LOOKUPS as f64
    });
    let dependent = best_of_three(|salt| {
        let begun = Instant::now();
        let mut state = salt;
        for _ in 0..LOOKUPS / 4 {
            state = state.wrapping_add(1 + u64::from(memory[address(mix(state))]));
        }
        black_box(state);
        begun.elapsed().as_nanos() as f64 / (LOOKUPS / 4) as f64
    });
    println!(
        "| {:.1} GB | {} | {independent:.0} | {dependent:.0} |",
        bytes as f64 / 1e9,
        name(pages)
    );
}
