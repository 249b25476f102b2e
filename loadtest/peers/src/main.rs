//! What rtad is measured beside, each in a process of its own with one thread: see `run.sh`.
//!
//! | command | what it is |
//! |---|---|
//! | `epoll` | a constant answer from a bare epoll loop: what the kernel alone costs |
//! | `axum` | a constant answer from a bare axum route: what HTTP costs |
//! | `axum-redis-exists` | one `EXISTS` a request: a service that keeps its ids as keys in Redis |
//! | `axum-redis-bloom` | a pipeline of `GETBIT`s a request: a Bloom filter in a Redis bitmap |
//! | `set-commands`, `bitmap` | put ids into Redis for the two of them |
//! | `pace` | no server: asks one at a fixed rate |
//! | `steady` | the same until it is told to end, comparing every answer: for `tests/suites/fleet` |
//!
//! A server listens on a free port of loopback, says on standard output where, and serves until it is killed.

mod bare;
mod bloom;
mod connection;
mod epoll;
mod fill;
mod lookup;
mod pace;
mod steady;

use std::error::Error;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Serves as one of the peers that rtad is measured beside.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer every request with the same bytes, from a bare epoll loop
    Epoll(Constant),
    /// Answer every request with the same bytes, from a bare axum route
    Axum {
        /// The route, in axum's words
        #[arg(long)]
        route: String,
        #[command(flatten)]
        answer: Constant,
    },
    /// Answer GET /v1/check/{audience}/{id} by an EXISTS
    AxumRedisExists {
        /// Port of Redis on loopback
        #[arg(long)]
        redis: u16,
    },
    /// Answer GET /v1/check/{audience}/{id} by the bits of a Bloom filter
    AxumRedisBloom {
        /// Port of Redis on loopback
        #[arg(long)]
        redis: u16,
        /// How many ids `bitmap` was made for
        #[arg(long)]
        ids: u64,
    },
    /// Ask a server at a fixed rate
    Pace {
        /// Where it listens
        #[arg(long)]
        address: SocketAddr,
        /// The requests
        #[arg(long)]
        requests: PathBuf,
        /// Connections that are kept open; each carries one request at a time
        #[arg(long)]
        connections: usize,
        /// For how long an answer is of use, in milliseconds
        #[arg(long, default_value = "60")]
        in_time: u64,
        /// For how long a request may wait for a free connection before it is given up, in milliseconds
        #[arg(long, default_value = "1000")]
        patience: u64,
        /// Requests a second, and for how many seconds: one after the other
        #[arg(required = true, value_name = "RATE:SECONDS")]
        phases: Vec<pace::Phase>,
    },
    /// Ask a server at a fixed rate until the end of standard input, and compare every answer
    Steady {
        /// Where it listens
        #[arg(long)]
        address: SocketAddr,
        /// The requests, each with its answers of before and after
        #[arg(long)]
        requests: PathBuf,
        /// Connections that are kept open; each carries one request at a time
        #[arg(long)]
        connections: usize,
        /// For how long an answer is of use, in milliseconds
        #[arg(long, default_value = "60")]
        in_time: u64,
        /// Requests a second
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        rate: u32,
    },
    /// Read md5 ids, one a line; write a SET of each for `redis-cli --pipe`
    SetCommands,
    /// Read md5 ids, one a line; write the bitmap of their Bloom filter
    Bitmap {
        /// How many there are
        #[arg(long)]
        ids: u64,
    },
}

#[derive(Args)]
struct Constant {
    /// The answer's content type; without it, the answer names none
    #[arg(long)]
    content_type: Option<String>,
    /// Bytes of its body
    #[arg(long)]
    length: usize,
}

/// Whatever goes wrong ends the process, and the run with it.
type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    match Cli::parse().command {
        Command::Epoll(Constant { content_type, length }) => {
            Ok(epoll::serve(content_type.as_deref(), length)?)
        }
        Command::Axum { route, answer: Constant { content_type, length } } => {
            block_on(bare::serve(&route, content_type.as_deref(), length))
        }
        Command::AxumRedisExists { redis } => block_on(lookup::serve_exists(redis)),
        Command::AxumRedisBloom { redis, ids } => block_on(lookup::serve_bloom(redis, ids)),
        Command::Pace { address, requests, connections, in_time, patience, phases } => {
            let [in_time, patience] = [in_time, patience].map(Duration::from_millis);
            pace::ask(address, &requests, connections, in_time, patience, &phases)
        }
        Command::Steady { address, requests, connections, in_time, rate } => {
            steady::ask(address, &requests, connections, Duration::from_millis(in_time), rate)
        }
        Command::SetCommands => fill::set_commands(),
        Command::Bitmap { ids } => fill::bitmap(ids),
    }
}

fn block_on(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Tells whoever started this process where it listens.
fn announce(address: SocketAddr) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{address}")?;
    stdout.flush()
}

/// Stock axum, on the one thread that there is.
async fn serve(router: axum::Router) -> Outcome {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?)?;
    Ok(axum::serve(listener, router).await?)
}
