//! Sync benchmark: time and memory to load a full-size generation from each kind of store, and the
//! latency of requests during swaps.
//!
//! Each load is a separate process with its own peak memory; the best of three counts, because the
//! first to touch memory in a virtual machine is slowed by the host. The page cache is warm: this
//! measures reading, copying and hashing, not a disk. The S3 server runs on the same machine.
//!
//! ```text
//! cargo bench --bench sync                       # 1.3 billion keys; 10 minutes, 12 GB of disk
//! cargo bench --bench sync -- --keys 100000000   # fewer
//! # Also from S3: sets RTAD_TEST_BUCKET to a bucket.
//! PYTHONPATH=tests .venv/bin/python3 -m suites.testkit.s3 cargo bench --bench sync
//! ```

#![allow(clippy::print_stdout)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rtad::serve::Assembly;
use rtad::sync::{Shared, SwapMode, Syncer};
use rtad_core::device::SHARDS;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, GenerationFacts, ManifestBuilder, shards_per_chunk,
};
use rtad_store::Store;
use rtad_store::write::StoreWriter;
use testkit::random::{key, mix};

/// Keys of the audience that is swapped under load: 300 MB.
const SWAPPED_KEYS: u64 = 108_000_000;
/// Duration of the measurement of requests, with and without swaps.
const QUIET: Duration = Duration::from_secs(20);

fn main() {
    let argument = |name: &str| {
        std::env::args()
            .skip_while(|argument| argument != name)
            .nth(1)
    };
    if let Some(url) = argument("--load") {
        return load(&url, argument("--cache").map(PathBuf::from));
    }
    let keys: u64 =
        argument("--keys").map_or(1_300_000_000, |keys| keys.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a directory");
    let directory = folder.path().join("store");
    std::fs::create_dir(&directory).expect("a directory");
    let directory = directory.to_str().expect("UTF-8").to_owned();
    let begun = Instant::now();
    let bytes = block_on(publish(&directory, keys, 1));
    println!(
        "{keys} keys, {:.2} GB in chunks; published in {:.0} s\n",
        bytes as f64 / 1e9,
        begun.elapsed().as_secs_f64()
    );
    println!(
        "| loaded from | seconds | GB/s | CPU seconds | peak memory, snapshots |\n\
         |---|---|---|---|---|"
    );
    let cache = folder.path().join("cache");
    let cache = cache.to_str().expect("UTF-8");
    row("a directory", bytes, &directory, None, false);
    row(
        "a directory, and into the cache",
        bytes,
        &directory,
        Some(cache),
        true,
    );
    row("the cache", bytes, &directory, Some(cache), false);
    if let Ok(url) = std::env::var("RTAD_TEST_BUCKET") {
        block_on(publish(&url, keys, 1));
        row("S3", bytes, &url, None, false);
        row("S3, and into the cache", bytes, &url, Some(cache), true);
    }
    drop(folder);
    println!();
    swaps();
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

fn name() -> AudienceName {
    "old_users".parse().expect("a valid name")
}

/// Publishes `keys` uniform keys; other seeds share no chunk. Returns the size of the chunks.
async fn publish(url: &str, keys: u64, seed: u64) -> u64 {
    let writer = StoreWriter::open(url).expect("a store");
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-4).expect("a sensible rate");
    let publication = writer
        .publish(writer.base(&name()).await.expect("a store"))
        .await
        .expect("nobody else publishes");
    let run = shards_per_chunk(&spec, keys) as usize;
    let per_shard = keys / SHARDS as u64;
    let mut manifest = ManifestBuilder::new(spec, 1e-4);
    let build = |first: usize| {
        tokio::task::spawn_blocking(move || {
            let mut keys = Vec::with_capacity(run * per_shard as usize);
            for shard in first..first + run {
                let start = keys.len();
                keys.extend((0..per_shard).map(|index| key(shard, seed << 36 | index)));
                keys[start..].sort_unstable();
            }
            BuiltChunk::build(&spec, &keys)
        })
    };
    let mut built = stream::iter((0..SHARDS).step_by(run))
        .map(build)
        .buffered(2);
    while let Some(chunk) = built.try_next().await.expect("no panic") {
        manifest.add(&chunk);
        publication.put_chunk(chunk).await.expect("room");
    }
    let facts = GenerationFacts::built_now_by("bench");
    let manifest = manifest.finish(name(), facts).expect("valid chunks");
    let published = publication.commit(manifest).await;
    let published = published.expect("no concurrent publish");
    published.manifest.size_bytes()
}

fn assembly(store: &str, swap: SwapMode) -> Assembly {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nworkers = 1\n[store]\n\
         url = {store:?}\n\
         max_snapshot_size = \"32GiB\"\n[[audience]]\nname = \"old_users\"\n[[strategy]]\n\
         name = \"new-users\"\n\
         exclude = [\"old_users\"]\n"
    );
    let mut assembly =
        Assembly::read(Some(("rtad.toml", &text)), |_| None, &Vec::new()).expect("a good config");
    assembly.config.store.swap = swap;
    assembly.config.store.poll_interval = Duration::from_secs(86_400);
    assembly
}

/// Runs in a child process: loads a generation and prints time and memory.
fn load(url: &str, cache: Option<PathBuf>) {
    let store = Store::open(url).expect("a store");
    let sync = Syncer::new(
        store,
        assembly(url, SwapMode::Whole).plan(),
        Shared::default(),
    )
    .with_cache(cache);
    let begun = Instant::now();
    block_on(sync.poll_all());
    let seconds = begun.elapsed().as_secs_f64();
    assert!(
        sync.serving().load().is_complete(),
        "the snapshot was loaded"
    );
    println!("{seconds} {} {}", cpu_seconds(), peak_bytes());
}

/// The best of three loads; `is_empty` clears the cache before each.
fn row(name: &str, bytes: u64, url: &str, cache: Option<&str>, is_empty: bool) {
    let program = std::env::current_exe().expect("this program");
    let run = |_| -> [f64; 3] {
        let mut command = Command::new(&program);
        command.args(["--load", url]).stderr(Stdio::inherit());
        if let Some(cache) = cache {
            if is_empty && std::fs::exists(cache).expect("a directory") {
                std::fs::remove_dir_all(cache).expect("a directory of this run");
            }
            command.args(["--cache", cache]);
        }
        let output = command.output().expect("command runs");
        let text = String::from_utf8(output.stdout).expect("numbers");
        let numbers: Vec<f64> = text
            .split_whitespace()
            .map(|number| number.parse().expect("a number"))
            .collect();
        numbers.try_into().expect("three numbers")
    };
    let best = (0..3).map(run).min_by(|a, b| a[0].total_cmp(&b[0]));
    let [seconds, cpu, peak] = best.expect("three runs");
    let bytes = bytes as f64;
    println!(
        "| {name} | {seconds:.1} | {:.2} | {cpu:.1} | {:.2} |",
        bytes / 1e9 / seconds,
        peak / bytes
    );
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .expect("a name")
        .split_whitespace()
        .collect();
    // Times are hundredths of a second.
    (fields[11].parse::<f64>().expect("utime") + fields[12].parse::<f64>().expect("stime")) / 100.0
}

fn peak_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect("a peak");
    line.split_whitespace()
        .nth(1)
        .expect("a number")
        .parse::<u64>()
        .expect("a number")
        * 1024
}

/// Latency of requests of one connection, without and with swaps.
fn swaps() {
    println!(
        "Latency of requests of one connection to a server with one worker, during swaps of \
         generations of 300 MB without common chunks; microseconds.\n"
    );
    println!(
        "| meanwhile | requests | median | 99 % | 99.9 % | highest |\n|---|---|---|---|---|---|"
    );
    for swap in [SwapMode::Whole, SwapMode::Rolling] {
        let folder = tempfile::tempdir().expect("a directory");
        let directory = folder.path().join("store");
        std::fs::create_dir(&directory).expect("a directory");
        let url = directory.to_str().expect("UTF-8");
        for seed in [1, 2] {
            block_on(publish(url, SWAPPED_KEYS, seed));
        }
        let mut assembly = assembly(url, swap);
        assembly.config.store.cache_dir = Some(folder.path().join("cache"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let never = Box::new(|| Err("no reload".to_owned()));
        let running = runtime
            .block_on(rtad::serve::start(assembly, never))
            .expect("rtad starts");
        if swap == SwapMode::Whole {
            let stop = Arc::new(AtomicBool::new(false));
            let client = send_requests(running.decision_address, &stop);
            std::thread::sleep(QUIET);
            stop.store(true, Ordering::Relaxed);
            print("nothing", client.join().expect("no panic"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let client = send_requests(running.decision_address, &stop);
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < QUIET {
            runtime.block_on(go_to(url, if count % 2 == 0 { 1 } else { 2 }));
            runtime.block_on(running.poll());
            count += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let words = if swap == SwapMode::Whole {
            "whole"
        } else {
            "rolling"
        };
        print(
            &format!("{count} swaps, {words}"),
            client.join().expect("no panic"),
        );
        drop(running);
        runtime.shutdown_background();
    }
}

/// Makes another generation live, by a rollback.
async fn go_to(url: &str, generation: u64) {
    let writer = StoreWriter::open(url).expect("a store");
    let base = writer.base(&name()).await.expect("a store");
    writer
        .publish(base)
        .await
        .expect("nobody else publishes")
        .roll_back(generation)
        .await
        .expect("complete generation");
}

/// Sends requests until stopped; returns the latency of each, in nanoseconds.
fn send_requests(address: SocketAddr, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<u32>> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("rtad listens");
        stream.set_nodelay(true).expect("TCP");
        let mut took = Vec::new();
        let mut answer = [0; 4096];
        for number in 0_u64.. {
            if stop.load(Ordering::Relaxed) {
                return took;
            }
            let id = format!("{:016x}{:016x}", mix(number), mix(number ^ 7));
            let body = format!(r#"{{"strategies":["new-users"],"device":{{"imei_md5":"{id}"}}}}"#);
            let request = format!(
                "POST /v1/decide HTTP/1.1\r\nHost: rtad\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let begun = Instant::now();
            stream
                .write_all(request.as_bytes())
                .expect("rtad reads the request");
            let read = stream.read(&mut answer).expect("rtad answers");
            took.push(begun.elapsed().as_nanos().min(u32::MAX.into()) as u32);
            assert!(
                answer[..read].starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(&answer[..read])
            );
        }
        took
    })
}

fn print(name: &str, mut took: Vec<u32>) {
    took.sort_unstable();
    let at =
        |fraction: f64| f64::from(took[((took.len() - 1) as f64 * fraction) as usize]) / 1000.0;
    let [median, nearly, rarely, highest] = [0.5, 0.99, 0.999, 1.0].map(at);
    println!(
        "| {name} | {} | {median:.0} | {nearly:.0} | {rarely:.0} | {highest:.0} |",
        took.len()
    );
}
