//! Engines for the test-and-set of a key in a sliding time window, measured with the same events:
//! see `run.sh`.
//!
//! | module | job |
//! |---|---|
//! | `engine` | interface of engines, and their list |
//! | `workload` | events of the steady state, CPU time, memory, false-positive rate |
//! | `race` | two threads that send the same keys |
//! | `local` | Bloom filters in process |
//! | `network` | Redis |
//!
//! Each engine runs in a process of its own, so that the memory of one is not counted for another.

mod engine;
mod hash;
mod local;
mod meter;
mod network;
mod race;
mod sizing;
mod workload;

use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use engine::{ENGINES, Entry, Outcome, Sizing};
use race::Race;
use workload::{Measured, Traffic};

const HEAD: &str = "\
| engine | parameters | CPU s per million events | of it server | million events/s per core \
| bytes per key | retention | false positives | fpr | missed | double winners per million keys |
|---|---|---|---|---|---|---|---|---|---|---|";

/// Keys of a call in the race test of an engine in process: in small batches, the threads meet more
/// often. A server needs larger ones: it reads a small pipeline at once.
const LOCAL_RACE_BATCH: usize = 32;

/// Measures engines for a test-and-set in a sliding time window, and prints a Markdown table.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// Keys within a window, for engines in process
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// Keys within a window, for engines reached by network
    #[arg(long, default_value_t = 2_000_000)]
    network_keys: u64,
    /// False-positive rate of a full window
    #[arg(long, default_value_t = 1e-6)]
    fpr: f64,
    /// Ticks of a window, a multiple of 4
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(4..))]
    ticks: u64,
    /// Seconds of a window, for the engine with a clock of its own
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Part of the events that repeat a key of the window
    #[arg(long, default_value_t = 0.2)]
    repeats: f64,
    /// Events of a call, and of a pipeline
    #[arg(long, default_value_t = 1000)]
    batch: usize,
    /// Keys of the race test, for engines in process
    #[arg(long, default_value_t = 1_000_000)]
    race_keys: u64,
    /// Keys of the race test, for engines reached by network
    #[arg(long, default_value_t = 500_000)]
    network_race_keys: u64,
    /// File of the RedisBloom module
    #[arg(long)]
    redisbloom: Option<PathBuf>,
    /// Measure only these engines, separated by commas
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Measure one engine in this process, and print its row without the head
    #[arg(long, hide = true)]
    row: Option<String>,
}

fn main() -> Outcome {
    let cli = Cli::parse();
    cli.validate()?;
    match &cli.row {
        Some(name) => print(&cli.row(find(name)?)?),
        None => cli.table(),
    }
}

impl Cli {
    fn validate(&self) -> Outcome {
        for name in &self.engines {
            find(name)?;
        }
        for (name, keys) in [("keys", self.keys), ("network-keys", self.network_keys)] {
            if keys < self.ticks {
                return Err(format!("{name}: expected at least one key per tick").into());
            }
        }
        if !(0.0..1.0).contains(&self.repeats) {
            return Err(
                format!("repeats: expected 0 to less than 1, found {}", self.repeats).into()
            );
        }
        if self.fpr <= 0.0 || self.fpr >= 1.0 {
            return Err(format!("fpr: expected between 0 and 1, found {}", self.fpr).into());
        }
        if self.batch == 0 {
            return Err("batch: expected at least 1, found 0".into());
        }
        Ok(())
    }

    /// One process per engine, with the same options.
    fn table(&self) -> Outcome {
        print(HEAD)?;
        for entry in ENGINES {
            if !self.engines.is_empty() && !self.engines.iter().any(|name| name == entry.name) {
                continue;
            }
            let status = Command::new(std::env::current_exe()?)
                .args(std::env::args_os().skip(1))
                .args(["--row", entry.name])
                .status()?;
            if !status.success() {
                return Err(format!("{}: {status}", entry.name).into());
            }
        }
        Ok(())
    }

    /// Measures an engine.
    fn row(&self, entry: &Entry) -> Outcome<String> {
        let (keys, race_keys) = if entry.is_network {
            (self.network_keys, self.network_race_keys)
        } else {
            (self.keys, self.race_keys)
        };
        let sizing = Sizing {
            keys,
            fpr: self.fpr,
            ticks: self.ticks,
            window: Duration::from_secs(self.seconds),
            redisbloom: self.redisbloom.clone(),
        };
        let memory_before = meter::resident_bytes()?;
        let (engine, parameters) = (entry.build)(&sizing)?;
        let traffic = Traffic { repeats: self.repeats, batch: self.batch };
        let measured = workload::measure(&*engine, &sizing, traffic, memory_before)?;
        drop(engine);
        if measured.late_ticks > 0 {
            return Err(format!(
                "{}: {} ticks ended late: expected a higher --seconds",
                entry.name, measured.late_ticks
            )
            .into());
        }
        // No clock expires keys.
        let sizing_of_race = Sizing { window: Duration::from_secs(3600), ..sizing.clone() };
        let (engine, _) = (entry.build)(&sizing_of_race)?;
        let batch = if entry.is_network { self.batch } else { LOCAL_RACE_BATCH };
        let race = Race { keys: race_keys, batch, per_tick: sizing.keys / sizing.ticks };
        let doubles = race::double_winners(&*engine, race)?;
        Ok(format_row(entry.name, &parameters, &sizing, &measured, (doubles, race_keys)))
    }
}

fn format_row(
    name: &str,
    parameters: &str,
    sizing: &Sizing,
    measured: &Measured,
    (doubles, race_keys): (u64, u64),
) -> String {
    let millions = measured.events as f64 / 1e6;
    let cpu = measured.cpu.client + measured.cpu.server;
    let server = measured.cpu.server / millions;
    let keys = sizing.keys / sizing.ticks * sizing.ticks;
    format!(
        "| {name} | {parameters} | {:.3} | {} | {:.2} | {:.1} | {:.2} | {} of {} | {:.1e} | {} \
         | {:.1} |",
        cpu / millions,
        if server > 0.0 { format!("{server:.3}") } else { "-".into() },
        millions / cpu,
        measured.memory_bytes as f64 / keys as f64,
        measured.retention,
        measured.false_positives,
        measured.first_events,
        measured.false_positives as f64 / measured.first_events as f64,
        measured.missed,
        doubles as f64 / race_keys as f64 * 1e6,
    )
}

fn find(name: &str) -> Outcome<&'static Entry> {
    let names: Vec<_> = ENGINES.iter().map(|entry| entry.name).collect();
    ENGINES
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| format!("engines: expected {}, found {name}", names.join(", ")).into())
}

fn print(line: &str) -> Outcome {
    let mut stdout = stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}
