//! Values per device in ribbon rows beside `VFunc` of the crate sux: bits per key and time of a
//! lookup, and whether both give each key the value that it was built with.
//!
//!     cargo run --release --manifest-path benches/values/Cargo.toml -- 100000000
//!
//! A `VFunc` maps keys to values and does not know its keys: it is the size that values alone
//! would take in a second structure, and costs reads of its own. The ribbon filter answers
//! membership too, from the lines that hold the value.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dsi_progress_logger::no_logging;
use rtad_core::device::{DeviceKey, SHARDS};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    BuildReport, Chunk, ChunkBuilder, ChunkDecoder, ChunkReader, ManifestBuilder, Snapshot,
};
use sux::bits::BitFieldVec;
use sux::func::VFunc;
use sux::utils::FromCloneableIntoIterator;

const SHARDS_PER_CHUNK: usize = 1024;
const PROBES: u64 = 20_000_000;

type Values = VFunc<u128, BitFieldVec<Box<[u8]>>>;

/// SplitMix64's finalizer: a bijection with random-looking output.
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key at an index; distinct for all indexes.
fn key(index: u64) -> DeviceKey {
    let halves = [mix(index ^ 0x5851_f42d_4c95_7f2d), mix(mix(index))];
    DeviceKey::from_bytes(u128::to_le_bytes(u128::from(halves[0]) | u128::from(halves[1]) << 64))
}

fn number(key: DeviceKey) -> u128 {
    u128::from_le_bytes(*key.as_bytes())
}

/// The value of the key at an index.
const fn value(index: u64) -> u8 {
    (mix(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 60) as u8
}

/// A snapshot with ribbon filters, with or without values.
fn snapshot(keys: u64, has_values: bool) -> Snapshot {
    let spec = FilterSpec::new(FilterKind::Ribbon, 2, 13_000).expect("a valid spec");
    let spec = match has_values {
        true => spec.with_value_bits(FilterSpec::VALUE_BITS).expect("a ribbon filter"),
        false => spec,
    };
    let mut members: Vec<_> = (0..keys).map(|index| (key(index), value(index))).collect();
    members.sort_unstable();
    let mut manifest = ManifestBuilder::new(spec, 1e-4);
    let mut chunks: Vec<Arc<Chunk>> = Vec::new();
    let mut rest = &members[..];
    for first in (0..SHARDS).step_by(SHARDS_PER_CHUNK) {
        let shards: Vec<_> = (first..first + SHARDS_PER_CHUNK)
            .map(|shard| {
                let end = rest.partition_point(|(key, _)| usize::from(key.shard()) <= shard);
                let (own, others) = rest.split_at(end);
                rest = others;
                own
            })
            .collect();
        let bytes = shards.iter().map(|shard| spec.filter_bytes(shard.len() as u32)).sum();
        let mut builder = ChunkBuilder::new(&spec, bytes);
        for (offset, shard) in shards.into_iter().enumerate() {
            let number = (first + offset) as u16;
            match has_values {
                true => builder.add_shard_with_values(number, shard.iter().copied()),
                false => builder.add_shard(number, shard.iter().map(|(key, _)| *key)),
            }
        }
        let Some(built) = builder.finish() else { continue };
        manifest.add(&built);
        let mut decoder = ChunkDecoder::new(&spec, &built.entry);
        decoder.feed(&built.bytes).expect("a sound chunk");
        chunks.push(Arc::new(decoder.finish().expect("a sound chunk")));
    }
    let audience = "values".parse().expect("a name");
    Snapshot::assemble(manifest.finish(audience, 1, 0, BuildReport::default()), chunks)
}

/// Nanoseconds of a lookup. The next key depends on the answer, so that lookups do not overlap.
fn time(keys: u64, lookup: impl Fn(DeviceKey) -> u64) -> f64 {
    let (begun, mut state) = (Instant::now(), 0);
    for probe in 0..PROBES {
        state = mix(probe ^ state) % keys;
        state ^= black_box(lookup(key(state))) & 1;
    }
    black_box(state);
    begun.elapsed().as_nanos() as f64 / PROBES as f64
}

fn main() {
    let keys = std::env::args().nth(1).map_or(10_000_000, |keys| keys.parse().expect("a number"));
    let (plain, valued) = (snapshot(keys, false), snapshot(keys, true));
    let function = Values::try_new(
        FromCloneableIntoIterator::new((0..keys).map(|index| number(key(index)))),
        FromCloneableIntoIterator::new((0..keys).map(value)),
        no_logging![],
    )
    .expect("distinct keys");
    let wrong = (0..keys).filter(|index| {
        let (key, value) = (key(*index), Some(value(*index)));
        valued.value(&[key]) != value || Some(function.get(number(key))) != value
    });
    let wrong = wrong.count();

    let bits = |bytes: u64| bytes as f64 * 8.0 / keys as f64;
    let (plain_bits, valued_bits) = (bits(plain.filter_bytes()), bits(valued.filter_bytes()));
    let function_bits = bits(function_bytes(&function));
    println!("| {keys} keys | bits per key | ns per lookup |\n|---|---|---|");
    let row = |name: &str, bits: f64, ns: f64| println!("| {name} | {bits:.3} | {ns:.0} |");
    let member = |snapshot: &Snapshot| time(keys, |key| u64::from(snapshot.contains(&key)));
    row("ribbon: member?", plain_bits, member(&plain));
    row("ribbon with values: member?", valued_bits, member(&valued));
    let both = time(keys, |key| {
        u64::from(valued.contains(&key)) ^ valued.value(&[key]).map_or(0, u64::from)
    });
    row("ribbon with values: member? and its value", valued_bits, both);
    let alone = time(keys, |key| u64::from(function.get(number(key))));
    row("VFunc: the value of a member", function_bits, alone);
    println!("\nvalues: {:.3} bits of the ribbon filter; {wrong} wrong", valued_bits - plain_bits);
    assert_eq!(wrong, 0, "both give each key its value");
}

/// Size of the function's values.
fn function_bytes(function: &Values) -> u64 {
    use mem_dbg::{MemSize as _, SizeFlags};
    function.mem_size(SizeFlags::default()) as u64
}
