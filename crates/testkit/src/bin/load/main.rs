//! Load generator with an open loop and verified answers, one single-threaded process: the traffic
//! of `tests/suites/fleet`.

mod connection;
mod steady;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Send requests at a fixed rate until the end of standard input, and verify every answer. The file
/// has each request with its answers before and after a change
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
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
    /// Requests per second
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
}

/// Any error ends the process.
type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let cli = Cli::parse();
    let in_time = Duration::from_millis(cli.in_time);
    steady::run(
        cli.address,
        &cli.requests,
        cli.connections,
        in_time,
        cli.rate,
    )
}
