//! Filter benchmark: all kinds beside each other in one run, through the snapshot that a pod holds.
//!
//! Keys are generated from a counter, sorted per shard and built into chunks of every kind. Then
//! every member is looked up, the false-positive rate is measured with non-members, and lookups are
//! timed in rounds that alternate between the kinds. Prints Markdown tables for
//! `docs/explanation/performance.md`.
//!
//! ```text
//! cargo bench --bench filter                                # 1.5 billion keys: 15 GB, 15 minutes
//! cargo bench --bench filter -- --keys 100000000            # a smaller set
//! cargo bench --bench filter -- --filters ribbon:12000,ribbon:14000 --rounds 0
//! ```
//!
//! `--filters` lists names of kinds, for a rate of 1e-4, or `ribbon:` with thousandths of a
//! fingerprint bit. `ribbon+values:` has a value per key. `--probes` is the number of non-members,
//! `--rounds` that of timed rounds. The first filter is the base of the ratios.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtad_core::device::{DeviceKey, SHARDS};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::memory::{Pages, Region};
use rtad_core::snapshot::{
    ChunkBuilder, ChunkDecoder, ChunkReader as _, GenerationFacts, ManifestBuilder, Snapshot,
};
use testkit::random::{key, mix};

/// Lookups of a timed measurement.
const LOOKUPS: u64 = 2_000_000;
const BATCH: usize = 64;
const SHARDS_PER_CHUNK: usize = 256;

fn main() {
    let keys: u64 = number("--keys").unwrap_or(1_500_000_000);
    let probes = number("--probes").unwrap_or(100_000_000);
    let rounds = number("--rounds").unwrap_or(5) as usize;
    let names = argument("--filters").unwrap_or_else(|| "block512,ribbon:13000".to_owned());
    let names: Vec<&str> = names.split(',').collect();
    println!("{keys} keys in {SHARDS} shards, one core, {probes} non-members, {rounds} rounds\n");
    let counts = shard_sizes(keys);
    let filters = build(&names, &counts);
    println!(
        "| filter | bits/key | GB | keys | missing or wrong | fpr | expected | of expected | \
         build, M keys/s | load, ns/key |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for filter in &filters {
        let missing =
            missing_members(&filter.snapshot, &counts) + wrong_values(&filter.snapshot, &counts);
        let positives = positives(&filter.snapshot, &counts, probes);
        let (manifest, measured) = (filter.snapshot.manifest(), positives as f64 / probes as f64);
        let (keys, bytes) = (
            manifest.keys() as f64,
            filter.snapshot.filter_bytes() as f64,
        );
        println!(
            "| {} | {:.3} | {:.3} | {keys} | {missing} | {measured:.4e} | {:.4e} | {:.3} | \
             {:.1} | {:.1} |",
            filter.name,
            bytes * 8.0 / keys,
            bytes / 1e9,
            manifest.expected_fpr(),
            measured / manifest.expected_fpr(),
            keys / filter.building.as_secs_f64() / 1e6,
            filter.loading.as_nanos() as f64 / keys,
        );
        assert_eq!(missing, 0, "members are missing");
    }
    if rounds > 0 {
        time(&filters, &counts, rounds);
        let bytes = filters[0].snapshot.filter_bytes();
        drop(filters);
        println!("\n| one random read in | pages | independent | dependent |\n|---|---|---|---|");
        for pages in [Pages::Large, Pages::Small] {
            measure_memory(bytes, pages);
        }
    }
}

fn argument(name: &str) -> Option<String> {
    std::env::args()
        .skip_while(|argument| argument != name)
        .nth(1)
}

fn number(name: &str) -> Option<u64> {
    argument(name).map(|value| value.parse().expect("a number"))
}

/// The value of a key.
fn value(key: &DeviceKey) -> u8 {
    (mix(u64::from_le_bytes(
        key.as_bytes()[4..12].try_into().expect("8 bytes"),
    )) >> 60) as u8
}

/// Shard sizes vary as with md5s: their standard deviation is the square root of their mean.
fn shard_sizes(keys: u64) -> Vec<u64> {
    let mean = keys as f64 / SHARDS as f64;
    let uniform = |n: u64| (mix(n + 1) >> 11) as f64 / (1_u64 << 53) as f64;
    let size = |shard: u64| {
        let normal = (0..12).map(|i| uniform(shard * 12 + i)).sum::<f64>() - 6.0;
        (mean + normal * mean.sqrt()).max(1.0) as u64
    };
    (0..SHARDS as u64).map(size).collect()
}

/// A member (`hit`) or a non-member, from a random number.
fn probe(counts: &[u64], random: u64, hit: bool) -> DeviceKey {
    let shard = (random >> 48) as usize;
    let index = ((random & 0xffff_ffff) * counts[shard]) >> 32;
    key(
        shard,
        if hit {
            index
        } else {
            random & 0xffff_ffff | 1 << 39
        },
    )
}

struct Filter {
    name: String,
    snapshot: Snapshot,
    /// Construction from sorted keys, with the check of the result.
    building: Duration,
    /// Reading chunk files into memory: digest and copy.
    loading: Duration,
}

fn spec(name: &str) -> FilterSpec {
    let spec = match name.split_once(':') {
        Some((name, millibits)) => {
            let kind = name.trim_end_matches("+values").parse().expect("a kind");
            let spec = FilterSpec::new(kind, 2, millibits.parse().expect("a number"));
            match name.ends_with("+values") {
                true => spec.and_then(|spec| spec.with_value_bits(FilterSpec::VALUE_BITS)),
                false => spec,
            }
        }
        None => FilterSpec::for_fpr(name.parse::<FilterKind>().expect("a kind"), 1e-4),
    };
    spec.expect("a valid spec")
}

fn build(names: &[&str], counts: &[u64]) -> Vec<Filter> {
    let specs: Vec<FilterSpec> = names.iter().map(|name| spec(name)).collect();
    let mut manifests: Vec<_> = specs
        .iter()
        .map(|spec| ManifestBuilder::new(*spec, 1e-4))
        .collect();
    let mut times = vec![(Duration::ZERO, Duration::ZERO); specs.len()];
    let mut chunks: Vec<Vec<Arc<_>>> = vec![Vec::new(); specs.len()];
    let mut keys: Vec<DeviceKey> = Vec::new();
    for first in (0..SHARDS).step_by(SHARDS_PER_CHUNK) {
        let shards = first..first + SHARDS_PER_CHUNK;
        let bytes = |spec: &FilterSpec| -> u64 {
            counts[shards.clone()]
                .iter()
                .map(|count| spec.filter_bytes(*count as u32))
                .sum()
        };
        let mut builders: Vec<_> = specs
            .iter()
            .map(|spec| ChunkBuilder::new(spec, bytes(spec)))
            .collect();
        for shard in shards {
            keys.clear();
            keys.extend((0..counts[shard]).map(|index| key(shard, index)));
            keys.sort_unstable();
            for (builder, (building, _)) in builders.iter_mut().zip(&mut times) {
                let begun = Instant::now();
                match builder.spec().value_bits() {
                    0 => builder.add_shard(shard as u16, keys.iter().copied()),
                    _ => {
                        let members = keys.iter().map(|key| (*key, value(key)));
                        builder.add_shard_with_values(shard as u16, members);
                    }
                }
                *building += begun.elapsed();
            }
        }
        for (i, builder) in builders.into_iter().enumerate() {
            let chunk = builder.finish().expect("keys");
            manifests[i].add(&chunk);
            let begun = Instant::now();
            let mut decoder = ChunkDecoder::new(&specs[i], &chunk.entry);
            decoder.feed(&chunk.bytes).expect("a sound chunk");
            chunks[i].push(Arc::new(decoder.finish().expect("a sound chunk")));
            times[i].1 += begun.elapsed();
        }
    }
    let filters = names.iter().zip(manifests).zip(chunks).zip(times);
    filters
        .map(|(((name, manifest), chunks), (building, loading))| {
            let audience = "bench".parse().expect("a name");
            let manifest = manifest.finish(audience, GenerationFacts::default());
            let snapshot = Snapshot::assemble(manifest.expect("valid chunks"), chunks);
            Filter {
                name: (*name).to_owned(),
                snapshot,
                building,
                loading,
            }
        })
        .collect()
}

fn missing_members(snapshot: &Snapshot, counts: &[u64]) -> u64 {
    let mut members = vec![false; 4096];
    let mut missing = 0;
    for (shard, count) in counts.iter().enumerate() {
        for first in (0..*count).step_by(4096) {
            let keys: Vec<_> = (first..*count)
                .take(4096)
                .map(|index| key(shard, index))
                .collect();
            snapshot.contains_many(&keys, &mut members);
            missing += members[..keys.len()]
                .iter()
                .filter(|member| !**member)
                .count() as u64;
        }
    }
    missing
}

/// Members with another value than their own; 0 for a filter without values.
fn wrong_values(snapshot: &Snapshot, counts: &[u64]) -> u64 {
    if snapshot.manifest().filter().value_bits() == 0 {
        return 0;
    }
    let keys = (0..SHARDS).flat_map(|shard| (0..counts[shard]).map(move |i| key(shard, i)));
    keys.filter(|key| snapshot.value(&[*key]) != Some(value(key)))
        .count() as u64
}

fn positives(snapshot: &Snapshot, counts: &[u64], probes: u64) -> u64 {
    let mut members = vec![false; 4096];
    let mut positives = 0;
    for first in (0..probes).step_by(4096) {
        let keys: Vec<_> = (first..probes)
            .take(4096)
            .map(|i| probe(counts, mix(i ^ 1 << 50), false))
            .collect();
        snapshot.contains_many(&keys, &mut members);
        positives += members[..keys.len()]
            .iter()
            .filter(|member| **member)
            .count() as u64;
    }
    positives
}

type Mode = fn(&Snapshot, &[u64], bool, u64) -> f64;
const MODES: [(&str, Mode); 4] = [
    ("latency", latency),
    ("batch", batch),
    ("single", single),
    ("value", single_value),
];

/// Prints the median over the rounds of each figure, and of its ratio to the first filter's in the
/// same round.
fn time(filters: &[Filter], counts: &[u64], rounds: usize) {
    let figures = MODES.len() * 2;
    let mut found = vec![vec![Vec::new(); figures]; filters.len()];
    for round in 0..rounds {
        for (mode, (_, measure)) in MODES.iter().enumerate() {
            for hit in [false, true] {
                for turn in 0..filters.len() {
                    // Another order in each round.
                    let i = (turn + round) % filters.len();
                    let salt = (round * figures + mode) as u64;
                    let nanos = measure(&filters[i].snapshot, counts, hit, salt);
                    found[i][mode * 2 + usize::from(hit)].push(nanos);
                }
            }
        }
    }
    println!(
        "\nns per lookup, [ratio to {}], medians. Latency: the next key depends on the bytes read. \
         Batch: {BATCH} keys. Single: independent lookups one by one. Value: the same, of \
         the value if the filter has values.\n",
        filters[0].name
    );
    let head = MODES
        .map(|(name, _)| format!(" {name}, miss | {name}, hit |"))
        .concat();
    println!("| filter |{head}\n|{}", "---|".repeat(figures + 1));
    for (filter, own) in filters.iter().zip(&found) {
        let cells: String = own
            .iter()
            .zip(&found[0])
            .map(|(own, base)| {
                let ratios = own.iter().zip(base).map(|(own, base)| own / base);
                format!(
                    " {:.0} [{:.2}] |",
                    median(own.clone()),
                    median(ratios.collect())
                )
            })
            .collect();
        println!("| {} |{cells}", filter.name);
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn nanos_each(begun: Instant, lookups: u64) -> f64 {
    begun.elapsed().as_nanos() as f64 / lookups as f64
}

fn latency(snapshot: &Snapshot, counts: &[u64], hit: bool, salt: u64) -> f64 {
    let lookups = LOOKUPS / 2;
    let begun = Instant::now();
    let (mut state, mut found) = (salt << 40, 0);
    for _ in 0..lookups {
        let key = probe(counts, mix(state), hit);
        found += u64::from(snapshot.contains(&key));
        // Always 0, which the processor cannot know before it has the byte.
        let read = u64::from(snapshot.touch(&key)) << 40 & black_box(0);
        state = state.wrapping_add(1 + read);
    }
    black_box(found);
    nanos_each(begun, lookups)
}

fn batch(snapshot: &Snapshot, counts: &[u64], hit: bool, salt: u64) -> f64 {
    let mut members = [false; BATCH];
    let mut found = 0;
    let begun = Instant::now();
    for batch in 0..LOOKUPS / BATCH as u64 {
        let number = |i: usize| mix((batch * BATCH as u64 + i as u64) ^ salt << 40);
        let keys: [DeviceKey; BATCH] = std::array::from_fn(|i| probe(counts, number(i), hit));
        snapshot.contains_many(&keys, &mut members);
        found += members.iter().filter(|member| **member).count();
    }
    black_box(found);
    nanos_each(begun, LOOKUPS)
}

fn single(snapshot: &Snapshot, counts: &[u64], hit: bool, salt: u64) -> f64 {
    let begun = Instant::now();
    let mut found = 0;
    for i in 0..LOOKUPS {
        found += u64::from(snapshot.contains(&probe(counts, mix(i ^ salt << 40), hit)));
    }
    black_box(found);
    nanos_each(begun, LOOKUPS)
}

fn single_value(snapshot: &Snapshot, counts: &[u64], hit: bool, salt: u64) -> f64 {
    if snapshot.manifest().filter().value_bits() == 0 {
        return single(snapshot, counts, hit, salt);
    }
    let begun = Instant::now();
    let mut sum = 0;
    for i in 0..LOOKUPS {
        let value = snapshot.value(&[probe(counts, mix(i ^ salt << 40), hit)]);
        sum += value.map_or(0, |value| u64::from(value) + 1);
    }
    black_box(sum);
    nanos_each(begun, LOOKUPS)
}

/// Time to read one byte at a random address of as much memory.
fn measure_memory(bytes: u64, pages: Pages) {
    let mut memory = Region::zeroed(bytes as usize, pages).expect("memory for the floor");
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let read = |random: u64| memory[((u128::from(random) * u128::from(bytes)) >> 64) as usize];
    let begun = Instant::now();
    black_box((0..LOOKUPS).fold(0, |sum, i| sum + u64::from(read(mix(i)))));
    let independent = nanos_each(begun, LOOKUPS);
    let begun = Instant::now();
    let last = (0..LOOKUPS).fold(0_u64, |state, _| {
        state.wrapping_add(1 + u64::from(read(mix(state))))
    });
    black_box(last);
    println!(
        "| {:.1} GB | {} | {independent:.0} | {:.0} |",
        bytes as f64 / 1e9,
        if pages == Pages::Large {
            "2 MiB"
        } else {
            "4 KiB"
        },
        nanos_each(begun, LOOKUPS),
    );
}
