//! Adapter benchmark: time and allocations per request body in process, and CPU time per request
//! over HTTP, compared with a bare axum route that reads a body of the same size.
//!
//! Over HTTP, each server is a separate process with one worker; this process sends the load over
//! 64 keep-alive connections. The figure is the server's user and system CPU time per answered
//! request, as the median of alternating rounds.
//!
//! ```text
//! cargo bench --bench adapters                     # 10 million keys
//! cargo bench --bench adapters -- --keys 100000000
//! cargo bench --bench adapters -- --instructions   # counts instructions; needs valgrind
//! ```

#![allow(clippy::print_stdout)]

mod instructions;
mod lanes;
mod load;

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::routing::post;
use bytes::Bytes;
use http::HeaderMap;
use lanes::Lane;
use rtad::catalog::Serving;
use rtad::config::{LogConfig, Secret};
use rtad::log::{DecidedRead, DecisionLog, LogTap, LoggedAnswer};
use rtad::platform::{Admission, IdReader, Read, RequestHead};
use rtad::serve::Assembly;
use rtad::sync::{Shared, Syncer};
use rtad::telemetry::{Telemetry, count_as_worker};
use rtad_core::device::KeyMaker;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::GenerationFacts;
use rtad_store::Store;
use rtad_store::write::StoreWriter;
use tokio::time::Instant;

const REQUESTS: usize = 1_000_000;
const ROUNDS: usize = 5;
/// The number of instructions does not depend on the audience's size.
const COUNTED_KEYS: u64 = 100_000;
const ROUND: Duration = Duration::from_secs(2);

fn main() {
    let argument = |name: &str| {
        std::env::args()
            .skip_while(|argument| argument != name)
            .nth(1)
    };
    if let Some(store) = argument("--serve-rtad") {
        return block_on(serve_rtad(Path::new(&store)));
    }
    if let Some(length) = argument("--serve-bare") {
        return block_on(serve_bare(length.parse().expect("a number")));
    }
    let keys: u64 = argument("--keys").map_or(10_000_000, |keys| keys.parse().expect("a number"));
    if let Some(store) = argument("--counted") {
        return counted(Path::new(&store));
    }
    let store = tempfile::tempdir().expect("a directory");
    if std::env::args().any(|argument| argument == "--instructions") {
        block_on(publish(store.path(), "old_users", COUNTED_KEYS));
        block_on(publish(store.path(), "payers", COUNTED_KEYS / 2));
        return instructions::table(store.path(), &lanes::all(COUNTED_KEYS));
    }
    block_on(publish(store.path(), "old_users", keys));
    let lanes = lanes::all(keys);
    println!("An audience of {keys} keys; requests with 3 ids each, half of them of members.\n");
    in_process(store.path(), &lanes);
    over_http(store.path(), &lanes);
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

/// Publishes an audience of `count` keys, like the loader.
async fn publish(directory: &Path, name: &str, count: u64) {
    let name = name.parse().expect("a valid name");
    let writer = StoreWriter::open(&directory.display().to_string()).expect("a directory");
    let keys = (0..count).map(lanes::member).collect();
    let filter = FilterSpec::for_fpr(FilterKind::Block512, 1e-4).expect("a sensible rate");
    let publication = writer
        .publish(writer.base(&name).await.expect("an empty store"))
        .await
        .expect("nobody else publishes");
    publication
        .commit_keys(keys, filter, 1e-4, GenerationFacts::built_now_by("bench"))
        .await
        .expect("room on the disk, and no concurrent publish");
}

/// Excludes an audience.
const PLAIN: &str = "[[strategy]]\nname = \"new-users\"\nexclude = [\"old_users\"]\n";

/// Three nested rules, a value and an experiment.
const STEERED: &str = r#"
[[audience]]
name = "payers"
[[experiment]]
name = "return"
buckets = [{ name = "a", slots = "0..5000" }, { name = "b", slots = "5000..10000" }]
[[strategy]]
name = "new-users"
when = { any = [
  { none = ["old_users"] },
  { all = ["payers", { any = [{ bucket = "return:b" }, { os = "ios" }] }] },
] }
[[strategy.value]]
audience = "payers"
weight = 2.0
[[strategy.value]]
weight = 1.0
"#;

fn assembly(store: &Path, strategies: &str) -> Assembly {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nworkers = 1\n\
         [server.api]\npublic = true\n[store]\n\
         url = {store:?}\n\
         [[audience]]\nname = \"old_users\"\n{strategies}{}",
        lanes::PLATFORMS
    );
    Assembly::read(Some((lanes::CONFIG_FILE, &text)), |_| None, &Vec::new()).expect("a good config")
}

/// The state of a worker.
fn loaded(directory: &Path, strategies: &str) -> (Arc<Serving>, IdReader) {
    count_as_worker(0);
    let shared = Shared::default();
    let store = Store::open(&directory.display().to_string()).expect("a directory");
    let sync = Syncer::new(
        store,
        assembly(directory, strategies).plan(),
        shared.clone(),
    );
    block_on(sync.poll_all());
    (
        sync.serving(),
        IdReader::new(KeyMaker::default(), &shared.telemetry),
    )
}

/// `--counted STORE OPERATION COUNT`: see `instructions`.
fn counted(store: &Path) {
    let [operation, count] =
        [2, 1].map(|last| std::env::args().rev().nth(last - 1).expect("an argument"));
    let (strategies, operation) = match operation.strip_prefix(instructions::STEERED) {
        Some(operation) => (STEERED, operation),
        None => (PLAIN, &*operation),
    };
    let (serving, ids) = loaded(store, strategies);
    let (log, operation) = match operation.strip_prefix(instructions::LOGGED) {
        Some(operation) => (Some(Log::start()), operation),
        None => (None, operation),
    };
    let (tap, count) = (
        log.as_ref().map(|log| &log.tap),
        count.parse().expect("a number"),
    );
    instructions::repeat((&serving, &ids), COUNTED_KEYS, operation, tap, count);
}

/// Time and allocations from request body to answer body, without HTTP.
fn in_process(directory: &Path, lanes: &[Lane]) {
    let (serving, ids) = loaded(directory, PLAIN);
    let log = Log::start();
    println!(
        "| in process, best of three rounds of {REQUESTS} | body, bytes | ns | ns, logged | \
         allocations | bytes allocated |"
    );
    println!("|---|---|---|---|---|---|");
    for lane in lanes.iter().filter(|lane| lane.path.starts_with("/rta/")) {
        let of = |tap| {
            let (serving, ids) = (&serving, &ids);
            move |body: &Bytes| {
                black_box(answered(serving, ids, lane.path, body.clone(), tap)).len()
            }
        };
        let round = |tap| {
            let begun = thread_seconds();
            let bytes: usize = lane.bodies.iter().cycle().take(REQUESTS).map(of(tap)).sum();
            black_box(bytes);
            (thread_seconds() - begun) * 1e9 / REQUESTS as f64
        };
        let best = |tap| (0..3).map(|_| round(tap)).fold(f64::INFINITY, f64::min);
        let (nanoseconds, logged) = (best(None), best(Some(&log.tap)));
        let answer = of(None);
        let allocated = allocation_counter::measure(|| {
            black_box(lane.bodies.iter().map(answer).sum::<usize>());
        });
        let each = |total: u64| total as f64 / lane.bodies.len() as f64;
        println!(
            "| {} | {} | {nanoseconds:.0} | {logged:.0} | {:.1} | {:.0} |",
            lane.name,
            lane.bodies[0].len(),
            each(allocated.count_total),
            each(allocated.bytes_total)
        );
    }
}

/// CPU time of this thread.
fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// A decision log of all requests, in a folder that is removed at the end.
struct Log {
    tap: LogTap,
    _log: DecisionLog,
    _folder: tempfile::TempDir,
}

impl Log {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let to = folder.path().display().to_string();
        let secret = Secret::new("the secret of a benchmark");
        let config = LogConfig {
            to,
            secret,
            sample: 1.0,
            max_rate: 10_000_000,
            ..<_>::default()
        };
        let log = DecisionLog::start(config, "pod".to_owned(), &Telemetry::default());
        let log = log.expect("a directory");
        Self {
            tap: log.tap(),
            _log: log,
            _folder: folder,
        }
    }
}

/// Answers a body like a platform's route.
fn answered(
    serving: &Serving,
    ids: &IdReader,
    path: &str,
    body: Bytes,
    tap: Option<&LogTap>,
) -> Bytes {
    let catalog = serving.load();
    let served = catalog.platform_at(path).expect("a configured platform");
    let headers = HeaderMap::new();
    let head = RequestHead {
        headers: &headers,
        query: None,
    };
    let (body, mut read) = (Ok(body), Read::default());
    let started = Instant::now();
    let mut entry = tap.map(LogTap::begin);
    let answered = served.platform.respond(
        Admission::ByHeaders,
        head,
        &body,
        &mut read,
        |read, verdicts| {
            let mut keys = catalog.no_keys();
            catalog.add_keys(served, ids, read, &mut keys);
            catalog.prefetch_caps(&keys, started, read.strategies());
            let mut facts = catalog.no_facts(&keys);
            catalog.add_facts(&keys, read, &mut facts);
            catalog.decide(read.strategies(), &facts, verdicts);
            catalog.admit(&keys, started, verdicts);
            catalog.count(served, &facts, verdicts);
            if let Some(entry) = &mut entry {
                let decided = DecidedRead {
                    read,
                    keys: &keys,
                    facts: &facts,
                    verdicts,
                    at: started,
                };
                entry.decided(&catalog, &decided);
            }
            catalog.remove_shadow(verdicts);
        },
    );
    if let Some(entry) = entry {
        let platform = &*served.platform.name;
        entry.finish(
            &catalog,
            &LoggedAnswer {
                platform,
                failure: None,
                raw: None,
                started,
            },
        );
    }
    assert!(answered.error.is_none(), "a good body");
    answered.bytes
}

/// A server process. It ends when its stdin is closed, and so with this process.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("a path");
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("this program runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped stdout");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("server prints its address");
        let address = line.trim().parse().expect("an address");
        Self { child, address }
    }

    /// User and system CPU time of all threads: fields 14 and 15 of `/proc/PID/stat`, in hundredths
    /// of a second.
    fn cpu_seconds(&self) -> [f64; 2] {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .expect("server is running");
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        [11, 12].map(|field| fields[field].parse::<f64>().expect("a number") / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints the address and waits until stdin is closed.
async fn until_alone(address: SocketAddr) {
    println!("{address}");
    let _ = std::io::stdout().flush();
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
}

async fn serve_rtad(store: &Path) {
    let unchanged = assembly(store, PLAIN);
    let reread = Box::new(move || Ok(unchanged.clone()));
    let running = rtad::serve::start(assembly(store, PLAIN), reread)
        .await
        .expect("rtad starts");
    until_alone(running.decision_address).await;
}

/// An axum route that reads a body and answers with as many bytes as rtad, on one thread and with
/// TCP_NODELAY.
async fn serve_bare(length: usize) {
    let answer = Bytes::from(vec![b'x'; length]);
    let route = post(async move |body: Bytes| {
        black_box(body);
        answer.clone()
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("an address");
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    tokio::spawn(
        async move { axum::serve(listener, axum::Router::new().route("/bare", route)).await },
    );
    until_alone(address).await;
}

/// CPU time per request of each lane's route, and of a bare route with bodies of the same size.
fn over_http(store: &Path, lanes: &[Lane]) {
    let rtad = Server::start(&["--serve-rtad", &store.display().to_string()]);
    println!(
        "\n| over HTTP, median of {ROUNDS} rounds | rtad: CPU µs a request (user + system) | \
         bare axum | ratio |"
    );
    println!("|---|---|---|---|");
    for lane in lanes {
        let length = load::answer_length(rtad.address, lane.path, &lane.bodies[0]);
        let bare = Server::start(&["--serve-bare", &length.to_string()]);
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            rounds[0].push(round(&rtad, lane.path, &lane.bodies));
            rounds[1].push(round(&bare, "/bare", &lane.bodies));
        }
        let [ours, bare] = rounds.map(median);
        let show =
            |[user, system]: [f64; 2]| format!("{:.2} ({user:.2} + {system:.2})", user + system);
        let ratio = ours.iter().sum::<f64>() / bare.iter().sum::<f64>();
        println!(
            "| {} | {} | {} | {ratio:.2} |",
            lane.name,
            show(ours),
            show(bare)
        );
    }
}

/// Microseconds of CPU time, user and system, per request of one round.
fn round(server: &Server, path: &str, bodies: &Arc<[Bytes]>) -> [f64; 2] {
    let before = server.cpu_seconds();
    let answered = block_on(load::run(server.address, path, bodies, ROUND));
    let after = server.cpu_seconds();
    [0, 1].map(|part| (after[part] - before[part]) * 1e6 / answered as f64)
}

/// The median round, by its sum.
fn median(mut rounds: Vec<[f64; 2]>) -> [f64; 2] {
    rounds.sort_by(|a, b| (a[0] + a[1]).total_cmp(&(b[0] + b[1])));
    rounds[rounds.len() / 2]
}
