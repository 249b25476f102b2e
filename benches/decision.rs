//! Decision benchmark: one decision in process with a full-size audience, and one random memory
//! read for comparison.
//!
//! Builds chunk files, verifies them and serves the snapshot by a catalog. Measures a request from
//! its body to its answer's body. Takes about three minutes and 9 GB at 1.5 billion keys.
//!
//! ```text
//! cargo bench --bench decision                       # 1.5 billion keys
//! cargo bench --bench decision -- --keys 100000000   # fewer
//! cargo bench --bench decision -- --delta 10000000   # keys in deltas; one million by default
//! cargo bench --bench decision -- --cap 10000000     # devices of the cap; one million by default
//! ```

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rtad::cap::Cap;
use rtad::catalog::{Audience, Catalog, CatalogParts, RequestKeys, Serving};
use rtad::config::CapConfig;
use rtad::platform::{IdReader, Keys, api};
use rtad::strategy::{Strategy, Units};
use rtad::telemetry::{Telemetry, count_as_worker};
use rtad_core::cap::CapTable;
use rtad_core::device::{DeviceKey, IdKind, KeyMaker, SHARDS};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::memory::{Pages, Region};
use rtad_core::period::PeriodUnit;
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, BuiltDelta, Chunk, ChunkDecoder, ChunkReader, Current, Delta,
    GenerationFacts, ManifestBuilder, Overlay, Snapshot, shards_per_chunk,
};
use testkit::random::{key, mix};
use tokio::time::Instant;

/// Decisions per figure; each figure is the best of three rounds.
const DECISIONS: u64 = 2_000_000;
/// Rounds of each comparison with and without a cap.
const ROUNDS: u64 = 9;

fn main() {
    let keys = argument("--keys").unwrap_or(1_500_000_000);
    let per_shard = keys / SHARDS as u64;
    let begun = Instant::now();
    let snapshot = Arc::new(build(keys, per_shard));
    let manifest = snapshot.manifest();
    println!(
        "{} keys, {:.2} GB of filters, expected fpr {:.2e}; built and verified in {:.0} s on two \
         threads\n",
        manifest.keys(),
        snapshot.filter_bytes() as f64 / 1e9,
        manifest.expected_fpr(),
        begun.elapsed().as_secs_f64()
    );
    let telemetry = Telemetry::default();
    // Set up like a worker.
    count_as_worker(0);
    let ids = IdReader::new(KeyMaker::default(), &telemetry);
    let audience = Audience {
        snapshot: Some(Arc::clone(&snapshot)),
        ..Audience::unloaded("old_users".parse().expect("a valid name"), true, None)
    };
    let strategy = Strategy {
        name: "new-users".to_owned(),
        exclude: vec![0],
        ..Strategy::default()
    };
    let capped = Strategy {
        name: "capped".to_owned(),
        cap: Some(0),
        ..strategy.clone()
    };
    let cap = Cap::new(&cap_config(), SystemTime::now(), Instant::now());
    cap.raise_limit(cap_config().limit);
    let parts = CatalogParts {
        audiences: vec![audience],
        strategies: vec![strategy, capped],
        caps: vec![Arc::new(cap)],
        ..CatalogParts::default()
    };
    let serving = Serving::from_pointee(Catalog::new(parts, &telemetry));
    let probe = Probe { per_shard };

    let (independent_read, dependent_read) = memory_floor(snapshot.filter_bytes());
    println!(
        "| one core, ns each, best of three rounds of {DECISIONS} | hit | miss |\n|---|---|---|"
    );
    let row = |name: &str, run: &dyn Fn(bool, u64) -> f64| {
        let [hit, miss] = [true, false].map(|hit| best_of_three(|salt| run(hit, salt)));
        println!("| {name} | {hit:.0} | {miss:.0} |");
    };
    println!("| floor: one random read, independent | {independent_read:.0} | |");
    println!(
        "| floor: one random read, each address taken from the one before | {dependent_read:.0} | |"
    );
    row("lookup, independent", &|hit, salt| {
        loop_over(salt, |i| u64::from(snapshot.contains(&probe.key(i, hit))))
    });
    row("lookup, each key given by the last answer", &|hit, salt| {
        chain(salt, |i| u64::from(snapshot.contains(&probe.key(i, hit))))
    });
    row("lookup in batches of 10,000, per key", &|hit, salt| {
        batched(&snapshot, &probe, hit, salt)
    });
    row(
        "decision on 1 md5: hex → key → strategy → counters, dependent",
        &|hit, salt| {
            chain(salt, |i| {
                decide(&serving, &ids, &[probe.hex(i, hit)], begun)
            })
        },
    );
    row(
        "decision on 3 md5s, the last one known or none, dependent",
        &|hit, salt| {
            chain(salt, |i| {
                decide(
                    &serving,
                    &ids,
                    &[
                        probe.hex(i, false),
                        probe.hex(i ^ 0x55, false),
                        probe.hex(i ^ 0xaa, hit),
                    ],
                    begun,
                )
            })
        },
    );
    row(
        "body of /v1/decide with 3 md5s to its answer's bytes, dependent",
        &|hit, salt| {
            chain(salt, |i| {
                let [a, b, c] = [
                    probe.hex(i, false),
                    probe.hex(i ^ 0x55, false),
                    probe.hex(i ^ 0xaa, hit),
                ];
                let text = |hex: &[u8; 32]| String::from_utf8_lossy(hex).into_owned();
                let body = format!(
                    concat!(
                        r#"{{"request_id":"r1","strategies":["new-users"],"#,
                        r#""device":{{"imei_md5":"{}","oaid_md5":"{}","idfa_md5":"{}"}}}}"#
                    ),
                    text(&a),
                    text(&b),
                    text(&c)
                );
                api_round_trip(&serving, &ids, body.as_bytes(), begun)
            })
        },
    );
    caps(&serving, &ids, &probe);
    let making = best_of_three(|salt| loop_over(salt, |i| u64::from(probe.hex(i, true)[0])));
    println!();
    deltas(&snapshot, &probe, argument("--delta").unwrap_or(1_000_000));
    println!(
        "\nMaking an md5's hex digits, which every decision above includes once per id: \
         {making:.0} ns"
    );
}

fn cap_config() -> CapConfig {
    CapConfig {
        name: "capped".to_owned(),
        limit: argument("--cap").unwrap_or(1_000_000),
        period: PeriodUnit::Day,
        time_zone: Some("UTC".to_owned()),
    }
}

/// Time per operation in a round with this salt.
type Round = fn(u64, &dyn Fn(u64) -> u64) -> f64;

/// CPU time per operation of a round: other programs on the machine count less than by the clock.
fn cpu(run: Round, salt: u64, work: &dyn Fn(u64) -> u64) -> f64 {
    let used = || -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok()
    };
    let before = used();
    let elapsed = run(salt, work);
    match (before, used()) {
        (Some(before), Some(after)) => (after - before) as f64 / DECISIONS as f64,
        _ => elapsed,
    }
}

/// Decisions of a strategy without and with a cap, alternating. All devices are non-members, so the
/// cap is asked every time.
fn caps(serving: &Serving, ids: &IdReader, probe: &Probe) {
    let limit = cap_config().limit;
    // Devices from 0 are counted before, those from `BEYOND` are not.
    const BEYOND: u64 = 1 << 36;
    let decide = |strategy, n, at| {
        let keys: Keys = ids
            .key(IdKind::Md5.into(), &probe.hex(n, false))
            .into_iter()
            .collect();
        decide_keys(&serving.load(), strategy, keys, at)
    };
    let begun = Instant::now();
    for n in 0..limit {
        black_box(decide(1, n, begun));
    }
    let counting = begun.elapsed().as_nanos() as f64 / limit as f64;
    // Some devices are drawn twice.
    let cap = |catalog: &Catalog| {
        let cap = catalog
            .caps()
            .named("capped")
            .expect("a strategy with a cap");
        (cap.usage().devices, cap.usage().limit)
    };
    let drawn_until = (limit..).find(|n| {
        decide(1, *n, begun);
        let (devices, limit) = cap(&serving.load());
        devices == limit
    });
    println!(
        "\nA cap of {limit} devices, {:.1} MB. Counting a new device, independent, with its \
         decision: {counting:.0} ns\n\n| decision on 1 md5, a non-member, ns of CPU, medians of \
         {ROUNDS} alternating rounds | without | with cap | difference |\n|---|---|---|---|",
        CapTable::bytes_for(limit) as f64 / 1e6
    );
    let drawn = drawn_until.unwrap_or(limit);
    for (name, first) in [("counted before", 0), ("beyond the cap", BEYOND)] {
        let device = |i: u64| first + mix(i) % drawn;
        // A request reads the clock when it arrives, which waits for all before it. Without that,
        // the processor speculates into the next decision while one waits for memory.
        for (way, is_request) in [("one by one", true), ("speculated", false)] {
            let mut rounds: Vec<[f64; 3]> = (0..ROUNDS)
                .map(|round| {
                    let begun = Instant::now();
                    let [without, with] = [0, 1].map(|strategy| {
                        let decide = |i| {
                            let at = if is_request { Instant::now() } else { begun };
                            decide(strategy, device(i), at)
                        };
                        cpu(|salt, work| loop_over(salt, work), round, &decide)
                    });
                    [without, with, with - without]
                })
                .collect();
            let medians = [0, 1, 2].map(|column| {
                rounds.sort_by(|a, b| a[column].total_cmp(&b[column]));
                rounds[rounds.len() / 2][column]
            });
            let [without, with, difference] = medians;
            println!("| {name}, {way} | {without:.0} | {with:.0} | {difference:.1} |");
        }
    }
}

/// The same lookups with deltas, and the time to read a delta.
fn deltas(snapshot: &Snapshot, probe: &Probe, keys: u64) {
    // Devices in no filter, uniformly distributed.
    let of = |range: std::ops::Range<u64>| -> Vec<DeviceKey> {
        range
            .map(|n| key((mix(n) >> 48) as usize, n | 1 << 38))
            .collect()
    };
    let begun = Instant::now();
    let built = BuiltDelta::new(1, 1, of(0..keys), Vec::new()).expect("it has keys");
    let building = begun.elapsed();
    let begun = Instant::now();
    let delta = Delta::parse(&built.bytes, built.delta.entry()).expect("a good delta");
    let reading = begun.elapsed();
    println!(
        "A delta of {keys} keys: {:.1} MB in its file, {:.1} MB in memory; built in {:.0} ms, read \
         and verified in {:.0} ms\n",
        built.bytes.len() as f64 / 1e6,
        delta.memory_bytes() as f64 / 1e6,
        building.as_secs_f64() * 1e3,
        reading.as_secs_f64() * 1e3,
    );
    let overlay = |deltas: Vec<Arc<Delta>>| {
        let mut current = Current::new(deltas.len() as u64, 1, b"", None);
        current.deltas = deltas.iter().map(|delta| delta.entry().clone()).collect();
        Overlay::new(&current, deltas)
    };
    // Sizes as after merging: each a fourth of the one before.
    let mut starts = vec![0];
    let mut rest = keys;
    while rest > keys / 256 {
        rest /= 4;
        starts.push(keys - rest);
    }
    starts.push(keys);
    let parts = (1..).zip(starts.windows(2)).filter_map(|(sequence, ends)| {
        let built = BuiltDelta::new(sequence, sequence, of(ends[0]..ends[1]), Vec::new())?;
        Some(Arc::new(built.delta))
    });
    let parts: Vec<_> = parts.collect();
    let many = parts.len();
    println!(
        "| lookup, one core, ns each, best of three rounds of {DECISIONS} | hit | miss |\n\
         |---|---|---|"
    );
    for (name, overlay) in [
        ("without deltas".to_owned(), Overlay::default()),
        ("one delta".to_owned(), overlay(vec![Arc::new(delta)])),
        (format!("the same keys in {many} deltas"), overlay(parts)),
    ] {
        let snapshot = snapshot.with_overlay(overlay);
        let ask = |hit, run: fn(u64, &dyn Fn(u64) -> u64) -> f64| {
            best_of_three(|salt| run(salt, &|i| u64::from(snapshot.contains(&probe.key(i, hit)))))
        };
        let [hit, miss] = [true, false].map(|hit| ask(hit, |salt, work| loop_over(salt, work)));
        println!("| {name}, independent | {hit:.0} | {miss:.0} |");
        let [hit, miss] = [true, false].map(|hit| ask(hit, |salt, work| chain(salt, work)));
        println!("| {name}, each key given by the last answer | {hit:.0} | {miss:.0} |");
        let [hit, miss] =
            [true, false].map(|hit| best_of_three(|salt| batched(&snapshot, probe, hit, salt)));
        println!("| {name}, in batches of 10,000 | {hit:.0} | {miss:.0} |");
    }
}

fn argument(name: &str) -> Option<u64> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments
        .nth(1)
        .map(|value| value.parse().expect("a number"))
}

/// Members and non-members by a random number.
struct Probe {
    per_shard: u64,
}

impl Probe {
    fn key(&self, random: u64, hit: bool) -> DeviceKey {
        let random = mix(random);
        let index = (random & 0xffff_ffff) % self.per_shard;
        key(
            (random >> 48) as usize,
            if hit { index } else { index | 1 << 39 },
        )
    }

    fn hex(&self, random: u64, hit: bool) -> [u8; 32] {
        let mut hex = [0; 32];
        const_hex::encode_to_slice(self.key(random, hit).as_bytes(), &mut hex).expect("32 digits");
        hex
    }
}

/// Builds each chunk file, reads it like a pod, and assembles the snapshot.
fn build(keys: u64, per_shard: u64) -> Snapshot {
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-4).expect("a sensible rate");
    let run = shards_per_chunk(&spec, keys) as usize;
    let next = AtomicUsize::new(0);
    let built = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(run, Ordering::Relaxed);
                    if first >= SHARDS {
                        return;
                    }
                    let mut keys = Vec::with_capacity(run * per_shard as usize);
                    for shard in first..first + run {
                        let start = keys.len();
                        keys.extend((0..per_shard).map(|index| key(shard, index)));
                        keys[start..].sort_unstable();
                    }
                    let mut chunk = BuiltChunk::build(&spec, &keys);
                    drop(keys);
                    let mut one = ManifestBuilder::new(spec, 1e-4);
                    one.add(&chunk);
                    let manifest = one.finish(name(), GenerationFacts::default());
                    let manifest = manifest.expect("a valid chunk");
                    let mut decoder = ChunkDecoder::new(manifest.filter(), &chunk.entry);
                    decoder.feed(&chunk.bytes).expect("a good chunk");
                    let read = decoder.finish().expect("a good chunk");
                    chunk.bytes = Vec::new();
                    built
                        .lock()
                        .expect("no thread panicked")
                        .push((chunk, Arc::new(read)));
                }
            });
        }
    });
    let mut built = built.into_inner().expect("no thread panicked");
    built.sort_by_key(|(chunk, _)| chunk.entry.first_shard);
    let mut manifest = ManifestBuilder::new(spec, 1e-4);
    let mut chunks: Vec<Arc<Chunk>> = Vec::with_capacity(built.len());
    for (described, chunk) in built {
        manifest.add(&described);
        chunks.push(chunk);
    }
    let manifest = manifest.finish(name(), GenerationFacts::default());
    Snapshot::assemble(manifest.expect("valid chunks"), chunks)
}

fn name() -> AudienceName {
    "old_users".parse().expect("a valid name")
}

fn best_of_three(round: impl Fn(u64) -> f64) -> f64 {
    (1..=3).map(round).fold(f64::INFINITY, f64::min)
}

/// Time per independent operation.
fn loop_over(salt: u64, work: impl Fn(u64) -> u64) -> f64 {
    let begun = Instant::now();
    let sum = (0..DECISIONS).fold(0_u64, |sum, i| sum.wrapping_add(work(i ^ salt << 40)));
    black_box(sum);
    begun.elapsed().as_nanos() as f64 / DECISIONS as f64
}

/// Latency of an operation: each depends on the answer before.
fn chain(salt: u64, work: impl Fn(u64) -> u64) -> f64 {
    let begun = Instant::now();
    let mut state = salt << 40;
    for _ in 0..DECISIONS {
        state = state.wrapping_add(1 + work(state));
    }
    black_box(state);
    begun.elapsed().as_nanos() as f64 / DECISIONS as f64
}

fn batched(snapshot: &Snapshot, probe: &Probe, hit: bool, salt: u64) -> f64 {
    let mut nanoseconds = 0;
    let mut members = vec![false; 10_000];
    for batch in 0..DECISIONS / 10_000 {
        let keys: Vec<DeviceKey> = (0..10_000)
            .map(|i| probe.key((batch * 10_000 + i) ^ salt << 40, hit))
            .collect();
        let begun = Instant::now();
        snapshot.contains_many(&keys, &mut members);
        nanoseconds += begun.elapsed().as_nanos();
        black_box(&members);
    }
    nanoseconds as f64 / DECISIONS as f64
}

fn decide(serving: &Serving, ids: &IdReader, hex: &[[u8; 32]], at: Instant) -> u64 {
    let keys: Keys = hex
        .iter()
        .filter_map(|hex| ids.key(IdKind::Md5.into(), hex).ok())
        .collect();
    let catalog = serving.load();
    decide_keys(&catalog, 0, keys, at)
}

fn decide_keys(catalog: &Catalog, strategy: usize, keys: Keys, at: Instant) -> u64 {
    let keys = RequestKeys::of(keys, Units::default());
    let mut facts = catalog.no_facts(&keys);
    let verdicts = catalog.decide_named(&keys, &[strategy], at, &mut facts);
    verdicts[0].decision.reason as u64
}

fn api_round_trip(serving: &Serving, ids: &IdReader, body: &[u8], at: Instant) -> u64 {
    let request = api::decode(body, ids).expect("a good body");
    let catalog = serving.load();
    let mut asked = Vec::with_capacity(request.strategies.len());
    for name in &request.strategies {
        asked.extend(catalog.strategy_index(name));
    }
    let keys = RequestKeys::of(request.keys, request.units);
    let mut facts = catalog.no_facts(&keys);
    facts.attributes = request.attributes.values();
    let verdicts = catalog.decide_named(&keys, &asked, at, &mut facts);
    let mut decisions = Vec::with_capacity(asked.len());
    for verdict in verdicts {
        let strategy = catalog.strategy(verdict.strategy);
        decisions.push(api::NamedDecision::new(
            strategy,
            verdict.decision,
            std::iter::empty(),
        ));
    }
    api::encode(request.request_id.as_deref(), &decisions).len() as u64
}

/// Times to read one byte at a random address of as much memory: independent and dependent.
fn memory_floor(bytes: u64) -> (f64, f64) {
    let mut memory = Region::zeroed(bytes as usize, Pages::Large).expect("memory for the floor");
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let read = |random: u64| {
        u64::from(memory[((u128::from(mix(random)) * u128::from(bytes)) >> 64) as usize])
    };
    (
        best_of_three(|salt| loop_over(salt, read)),
        best_of_three(|salt| chain(salt, read)),
    )
}
