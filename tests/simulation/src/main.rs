//! The product's code in a simulated world, from one seed.
//!
//! | file | job |
//! |---|---|
//! | `random` | numbers from a seed |
//! | `schedule` | events, one after the other, in virtual time |
//! | `trace` | what happened, for a person |
//! | `process` | processes with clocks of their own |
//! | `network` | delays, lost requests and answers, partitions |
//! | `store` | buckets, as an `ObjectStore` of a process |
//! | `model` | the history of an audience |
//! | `audience` | its invariants, at each change of a bucket |
//! | `jobs` | loader, online writes, mirror |
//! | `pod` | pods, and what they may answer |
//! | `world` | a run of one seed: audiences |
//! | `windows` | another one: owners and standbys of event windows |
//! | `caps` | another one: pods that share a cap |
//! | `meter` | requests and bytes, by the minute |
//! | `day` | a day of a fleet |
//! | `report` | what a day was, in Markdown |
//! | `picture` | the same, as a picture |

#![allow(clippy::print_stdout, reason = "the report of a command")]

mod audience;
mod caps;
mod day;
mod jobs;
mod meter;
mod model;
mod network;
mod picture;
mod pod;
mod process;
mod random;
mod report;
mod schedule;
mod store;
mod trace;
mod windows;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use parking_lot::Mutex;

use crate::world::Outcome;

/// Runs worlds until an invariant is violated, or a day of a fleet.
#[derive(Debug, Parser)]
struct Args {
    /// Runs one seed, and prints its trace
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// The first one
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// The world. Unset = audiences, windows and caps in turn
    #[arg(long)]
    world: Option<World>,
    /// Runs a day of a fleet instead, and prints its report
    #[arg(long)]
    day: bool,
    /// Pods of the day, a third of them in each region
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(3..))]
    pods: u64,
    /// Seconds between two polls of a pod of the day
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    poll_interval: u64,
    /// Length of the day, in hours: its events keep their order
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(2..))]
    hours: u64,
    /// Writes the report of the day to this file, and its picture beside it, as `.svg`
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum World {
    Audiences,
    Windows,
    Caps,
}

fn run(world: Option<World>, seed: u64, keeps_trace: bool) -> Outcome {
    let by_seed = match seed % 3 {
        0 => World::Caps,
        1 => World::Audiences,
        _ => World::Windows,
    };
    match world.unwrap_or(by_seed) {
        World::Audiences => world::run(seed, keeps_trace),
        World::Windows => windows::run(seed, keeps_trace),
        World::Caps => caps::run(seed, keeps_trace),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.day {
        return run_day(&args);
    }
    if let Some(seed) = args.seed {
        let outcome = run(args.world, seed, true);
        println!("{}", outcome.trace);
        return report(seed, &outcome);
    }
    match first_failure(&args) {
        Some(seed) => report(seed, &run(args.world, seed, false)),
        None => {
            println!("{} seeds from {}: nothing found", args.seeds, args.first);
            ExitCode::SUCCESS
        }
    }
}

fn run_day(args: &Args) -> ExitCode {
    let day = day::run(day::Plan {
        seed: args.seed.unwrap_or(args.first),
        pods: args.pods,
        length: Duration::from_secs(args.hours * 3600),
        poll_interval: Duration::from_secs(args.poll_interval),
    });
    let Some(path) = &args.report else {
        print!("{}", report::markdown(&day, "day.svg"));
        return ExitCode::SUCCESS;
    };
    let picture = path.with_extension("svg");
    let name = picture.file_name().unwrap_or_default().to_string_lossy();
    let written = write(path, &report::markdown(&day, &name))
        .and_then(|()| write(&picture, &picture::svg(&day)));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn report(seed: u64, outcome: &Outcome) -> ExitCode {
    println!(
        "seed {seed}: {} events, {} records, digest {:016x}",
        outcome.events, outcome.records, outcome.digest
    );
    match &outcome.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("violated: {violation}");
            ExitCode::FAILURE
        }
    }
}

/// Runs seeds on all processors; the lowest one that violates an invariant.
fn first_failure(args: &Args) -> Option<u64> {
    let next = AtomicU64::new(args.first);
    let failed = Mutex::new(None::<u64>);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.first + args.seeds || failed.lock().is_some() {
                        return;
                    }
                    if run(args.world, seed, false).violation.is_some() {
                        let mut failed = failed.lock();
                        *failed = Some(failed.map_or(seed, |other| other.min(seed)));
                    }
                }
            });
        }
    });
    failed.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of seeds is `SEEDS`. A seed that fails is run by `simulation --seed N`.
    #[test]
    fn no_seed_violates_an_invariant() {
        let seeds = std::env::var("SEEDS").unwrap_or_else(|_| "300".to_owned());
        let args = Args::parse_from(["simulation", "--seeds", &seeds]);
        if let Some(seed) = first_failure(&args) {
            let violation = run(None, seed, false).violation;
            panic!(
                "simulation --seed {seed}: {}",
                violation.unwrap_or_default()
            );
        }
    }

    #[test]
    fn day_has_a_report_that_its_seed_determines() {
        let plan = day::Plan {
            seed: 1,
            pods: 12,
            length: Duration::from_secs(2 * 3600),
            poll_interval: Duration::from_secs(10),
        };
        let day = day::run(plan);
        let text = report::markdown(&day, "day.svg");
        for section in [
            "Events",
            "Bids",
            "Generations",
            "Lag",
            "Requests",
            "Bytes and dollars",
            "Origin of the figures",
        ] {
            assert!(
                text.contains(&format!("\n## {section}\n")),
                "{section}: {text}"
            );
        }
        for event in [
            "nightly list was staged as generation 2",
            "generation 2 was promoted",
            "wrong people was staged as generation 3",
            "all pods go on with generation 2",
            "region south is back",
        ] {
            assert!(text.contains(event), "{event}: {text}");
        }
        assert!(!text.contains("failed"), "{text}");

        let again = day::run(plan);
        assert_eq!(report::markdown(&again, "day.svg"), text);
        assert_eq!(picture::svg(&again), picture::svg(&day));
    }

    #[test]
    fn seed_determines_its_trace() {
        for seed in 1..=4 {
            let (one, other) = (run(None, seed, true), run(None, seed, true));
            assert_eq!(one.trace, other.trace, "seed {seed}");
            assert!(one.records > 0 && one.events > 1000, "{one:?}");
        }
    }
}
