//! Peer servers that rtad is measured with, one single-threaded process each:
//! see `run.sh`.
//!
//! | command | purpose |
//! |---|---|
//! | `epoll` | a constant answer from a bare epoll loop: the cost of the kernel |
//! | `axum` | a constant answer from a bare axum route: the cost of HTTP |
//! | `axum-redis-exists` | one `EXISTS` per request: a service with ids as keys in Redis |
//! | `axum-redis-bloom` | a pipeline of `GETBIT`s per request: a Bloom filter in a Redis bitmap |
//! | `set-commands`, `bitmap` | load ids into Redis for these two |
//!
//! A server listens on a free loopback port, prints its address to standard output, and serves
//! until killed.

mod bare;
mod bloom;
mod epoll;
mod fill;
mod lookup;

use std::error::Error;
use std::io::Write as _;
use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};

/// Peer servers for measuring rtad.
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
        /// Route, in axum's syntax
        #[arg(long)]
        route: String,
        #[command(flatten)]
        answer: Constant,
    },
    /// Answer GET /v1/check/{audience}/{id} with an EXISTS in Redis
    AxumRedisExists {
        /// Port of Redis on loopback
        #[arg(long)]
        redis: u16,
    },
    /// Answer GET /v1/check/{audience}/{id} with a Bloom filter in Redis
    AxumRedisBloom {
        /// Port of Redis on loopback
        #[arg(long)]
        redis: u16,
        /// Number of ids passed to `bitmap`
        #[arg(long)]
        ids: u64,
    },
    /// Read md5 ids, one per line; write a SET of each for `redis-cli --pipe`
    SetCommands,
    /// Read md5 ids, one per line; write the bitmap of their Bloom filter
    Bitmap {
        /// Number of ids
        #[arg(long)]
        ids: u64,
    },
}

#[derive(Args)]
struct Constant {
    /// Content type of the answer [default: none]
    #[arg(long)]
    content_type: Option<String>,
    /// Bytes of the body
    #[arg(long)]
    length: usize,
}

/// Any error ends the process.
type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    match Cli::parse().command {
        Command::Epoll(Constant {
            content_type,
            length,
        }) => Ok(epoll::serve(content_type.as_deref(), length)?),
        Command::Axum {
            route,
            answer: Constant {
                content_type,
                length,
            },
        } => block_on(bare::serve(&route, content_type.as_deref(), length)),
        Command::AxumRedisExists { redis } => block_on(lookup::serve_exists(redis)),
        Command::AxumRedisBloom { redis, ids } => block_on(lookup::serve_bloom(redis, ids)),
        Command::SetCommands => fill::set_commands(),
        Command::Bitmap { ids } => fill::bitmap(ids),
    }
}

fn block_on(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// Prints the address of the server.
fn announce(address: SocketAddr) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{address}")?;
    stdout.flush()
}

/// Unmodified axum on the current thread.
async fn serve(router: axum::Router) -> Outcome {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?)?;
    Ok(axum::serve(listener, router).await?)
}
