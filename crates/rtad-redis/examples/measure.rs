//! Measurement of a window: events per second, CPU time and memory of the server per event.
//!
//! ```text
//! cargo run --release -p rtad-redis --example measure -- --events 1000000
//! ```
//!
//! Starts `redis-server` (or `--server`) for each row, on a free port, without persistence. Rows:
//! the window, the same events again (all duplicates), and variants of plain commands beside it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use rtad_redis::{Lifetime, RedisConfig, RedisWindow, Seen};
use testkit::port::free_port;

#[derive(Parser)]
struct Args {
    /// Program of the server
    #[arg(long, default_value = "redis-server")]
    server: String,
    /// Number of events, each with a key of its own
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Keys per batch
    #[arg(long, default_value_t = 1000)]
    batch: usize,
    /// Batches in flight
    #[arg(long, default_value_t = 4)]
    tasks: u64,
    /// Measures the first row alone
    #[arg(long)]
    first: bool,
    /// Repetitions of each row; the table has their medians
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// A value as long as a token.
const DIGITS: &[u8] = b"1234567890123456789";

/// A running server; killed on drop.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    async fn start(program: &str) -> (Self, MultiplexedConnection) {
        let port = free_port();
        let child = Command::new(program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            child,
            url: format!("redis://127.0.0.1:{port}"),
        };
        let client = redis::Client::open(server.url.clone()).unwrap();
        for _ in 0..500 {
            if let Ok(connection) = client.get_multiplexed_async_connection().await {
                return (server, connection);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{program} did not start");
    }

    /// User and system time of all threads so far, in microseconds.
    fn cpu_micros(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|field| field.parse::<u64>().unwrap())
            .sum();
        // A tick of /proc is 10 ms on Linux.
        ticks as f64 * 1e4
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn used_memory(connection: &mut MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("memory")
        .query_async(connection)
        .await
        .unwrap();
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .unwrap();
    used.trim().parse().unwrap()
}

fn key(number: u64) -> [u8; 16] {
    let mixed = u128::from(number).wrapping_mul(0x2d35_8dcc_aa6c_78a5_8b1f_4a5d_9e37_79b9);
    mixed.to_le_bytes()
}

/// Batches of keys, dealt to the tasks.
fn batches(args: &Args, task: u64) -> impl Iterator<Item = (u64, Vec<[u8; 16]>)> + use<> {
    let (events, batch, tasks) = (args.events, args.batch, args.tasks);
    let count = events.div_ceil(batch as u64);
    (0..count)
        .skip(task as usize)
        .step_by(tasks as usize)
        .map(move |number| {
            let first = number * batch as u64;
            (
                number,
                (first..events.min(first + batch as u64)).map(key).collect(),
            )
        })
}

#[derive(Clone, Copy)]
enum Row {
    /// The window, with this name and this number of a period.
    Window(&'static str, Option<u64>),
    /// The window, its events for the second time.
    Again,
    /// `SET key value NX EX 86400` alone; the length of the key and the value.
    Plain(usize, &'static [u8]),
}

async fn run(
    row: Row,
    server: &Server,
    connection: &MultiplexedConnection,
    args: &Args,
    token: u64,
) -> u64 {
    let name = if let Row::Window(name, _) = row {
        name
    } else {
        "day"
    };
    let config = RedisConfig::new(server.url.clone(), name);
    let window = Arc::new(RedisWindow::connect(&config).unwrap());
    let lifetime = match row {
        Row::Window(_, None) => Lifetime::For(Duration::from_secs(86_400)),
        Row::Window(_, Some(period)) => until(period),
        _ => until(20_780),
    };
    let tasks: Vec<_> = (0..args.tasks)
        .map(|task| {
            let (window, batches) = (Arc::clone(&window), batches(args, task));
            let mut connection = connection.clone();
            tokio::spawn(async move {
                let mut failed = 0;
                for (number, keys) in batches {
                    match row {
                        Row::Window(..) | Row::Again => {
                            match window.observe(&keys, lifetime, token + number).await {
                                Ok(seen) => {
                                    let is_new = seen.iter().all(|seen| *seen == Seen::New);
                                    assert_eq!(is_new, matches!(row, Row::Window(..)));
                                }
                                Err(_) => failed += 1,
                            }
                        }
                        Row::Plain(length, value) => {
                            set(&mut connection, &keys, length, value).await;
                        }
                    }
                }
                failed
            })
        })
        .collect();
    let mut failed = 0;
    for task in tasks {
        failed += task.await.unwrap();
    }
    failed
}

async fn set(
    connection: &mut MultiplexedConnection,
    keys: &[[u8; 16]],
    length: usize,
    value: &[u8],
) {
    let mut pipeline = Pipeline::with_capacity(keys.len());
    for key in keys {
        let name = [&vec![b'n'; length - 16][..], key].concat();
        pipeline
            .cmd("SET")
            .arg(name)
            .arg(value)
            .arg("NX")
            .arg("EX")
            .arg(86_400);
    }
    let answers: Vec<Value> = pipeline.query_async(connection).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Value::Okay)));
}

fn until(period: u64) -> Lifetime {
    Lifetime::Until {
        period,
        end: std::time::SystemTime::now() + Duration::from_secs(86_400),
    }
}

#[tokio::main(worker_threads = 1)]
async fn main() {
    let args = Args::parse();
    let rows = [
        (
            "`observe`, names of 30 bytes, all new",
            Row::Window("day", Some(20_780)),
        ),
        ("`observe`, the same again, all duplicates", Row::Again),
        ("`observe`, names of 25 bytes", Row::Window("day", None)),
        (
            "`observe`, names of 40 bytes",
            Row::Window("impressions", Some(498_720)),
        ),
        (
            "`SET NX EX` alone, names of 30 bytes, value of 19 digits",
            Row::Plain(30, DIGITS),
        ),
        ("`SET NX EX` alone, value `1`", Row::Plain(30, b"1")),
        (
            "`SET NX EX` alone, value of 8 bytes",
            Row::Plain(30, b"\x01token\xff\x00"),
        ),
        (
            "`SET NX EX` alone, names of 31 bytes, value of 19 digits",
            Row::Plain(31, DIGITS),
        ),
    ];
    let rows = if args.first { &rows[..1] } else { &rows };
    let mut found = vec![Vec::new(); rows.len()];
    for _ in 0..args.rounds {
        for ((_, row), found) in rows.iter().zip(&mut found) {
            found.push(measured(*row, &args).await);
        }
    }
    println!(
        "| events | events/s | failed batches | server CPU per event | server memory per key |"
    );
    println!("|---|---|---|---|---|");
    for ((title, _), found) in rows.iter().zip(&found) {
        let median = |value: fn(&Figures) -> f64| {
            let mut values: Vec<f64> = found.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let (rate, cpu, memory) = (median(|f| f.rate), median(|f| f.cpu), median(|f| f.memory));
        let failed = median(|f| f.failed);
        println!("| {title} | {rate:.0} | {failed} | {cpu:.2} µs | {memory:.0} bytes |");
    }
}

/// Counted events per second; microseconds and bytes per event.
#[derive(Clone, Copy)]
struct Figures {
    rate: f64,
    failed: f64,
    cpu: f64,
    memory: f64,
}

async fn measured(row: Row, args: &Args) -> Figures {
    let (server, mut connection) = Server::start(&args.server).await;
    if matches!(row, Row::Again) {
        run(
            Row::Window("day", Some(20_780)),
            &server,
            &connection,
            args,
            1 << 40,
        )
        .await;
    }
    let memory = used_memory(&mut connection).await;
    let (cpu, begun) = (server.cpu_micros(), Instant::now());
    let failed = run(row, &server, &connection, args, 1 << 62).await;
    let (cpu, seconds) = (server.cpu_micros() - cpu, begun.elapsed().as_secs_f64());
    let memory = used_memory(&mut connection).await.saturating_sub(memory) as f64;
    let failed = failed as f64;
    let events = (args.events as f64 - failed * args.batch as f64).max(1.0);
    Figures {
        rate: events / seconds,
        failed,
        cpu: cpu / events,
        memory: memory / events,
    }
}
