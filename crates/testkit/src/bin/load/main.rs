//! Load generators with an open loop, one single-threaded process each.
//!
//! | command | purpose |
//! |---|---|
//! | `pace` | fixed rates: for `loadtest/peers` |
//! | `steady` | until the end of its input, with verified answers: for `tests/suites/fleet` |

mod connection;
mod latency;
mod pace;
mod steady;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Send requests at fixed rates, independent of the answers.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send requests at fixed rates
    Pace {
        #[command(flatten)]
        target: Target,
        /// Longest wait for an idle connection in milliseconds, after which a request is dropped
        #[arg(long, default_value = "1000")]
        max_wait: u64,
        /// Requests per second and duration of each phase
        #[arg(required = true, value_name = "RATE:SECONDS")]
        phases: Vec<pace::Phase>,
    },
    /// Send requests at a fixed rate until the end of standard input, and verify every answer. The
    /// file has each request with its answers before and after a change
    Steady {
        #[command(flatten)]
        target: Target,
        /// Requests per second
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        rate: u32,
    },
}

#[derive(Args)]
struct Target {
    /// Address of the server
    #[arg(long)]
    address: SocketAddr,
    /// File of requests
    #[arg(long)]
    requests: PathBuf,
    /// Number of keep-alive connections, with one request in flight on each
    #[arg(long)]
    connections: usize,
    /// Deadline of an answer in milliseconds
    #[arg(long, default_value = "60")]
    in_time: u64,
}

/// Any error ends the process.
type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    match Cli::parse().command {
        Command::Pace {
            target:
                Target {
                    address,
                    requests,
                    connections,
                    in_time,
                },
            max_wait,
            phases,
        } => {
            let [in_time, max_wait] = [in_time, max_wait].map(Duration::from_millis);
            pace::run(address, &requests, connections, in_time, max_wait, &phases)
        }
        Command::Steady {
            target:
                Target {
                    address,
                    requests,
                    connections,
                    in_time,
                },
            rate,
        } => steady::run(
            address,
            &requests,
            connections,
            Duration::from_millis(in_time),
            rate,
        ),
    }
}
