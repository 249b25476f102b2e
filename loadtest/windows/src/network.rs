//! Engines reached by network: Redis servers on Unix sockets, one per engine. A batch of events is
//! one pipeline per round trip.

mod bits;
mod bloom;
mod redis_server;
mod set;

pub(crate) use bits::Bits;
pub(crate) use bloom::Bloom;
pub(crate) use set::Set;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redis::{Pipeline, cmd};

use crate::engine::Outcome;
use redis_server::RedisServer;

/// Names of two Redis keys: the current generation and the previous one. They swap once per window,
/// as in the classic Bloom filters in process.
struct Generations {
    ticks: u64,
    names: RwLock<[&'static str; 2]>,
}

impl Generations {
    const fn new(ticks: u64) -> Self {
        Self { ticks, names: RwLock::new(["window:0", "window:1"]) }
    }

    /// Current and previous. No swap happens while the guard is held.
    fn read(&self) -> RwLockReadGuard<'_, [&'static str; 2]> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, [&'static str; 2]> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes both generations.
    fn create(&self, server: &RedisServer, create: impl Fn(&mut Pipeline, &str)) -> Outcome {
        let mut pipeline = redis::pipe();
        for name in *self.read() {
            create(&mut pipeline, name);
        }
        server.run::<()>(&pipeline)
    }

    /// Once per window: replaces the previous generation by the current one, and that by an empty
    /// one.
    fn advance(
        &self,
        tick: u64,
        server: &RedisServer,
        create: impl Fn(&mut Pipeline, &str),
    ) -> Outcome {
        if !tick.is_multiple_of(self.ticks) {
            return Ok(());
        }
        let mut names = self.write();
        names.swap(0, 1);
        let mut pipeline = redis::pipe();
        pipeline.add_command(cmd("UNLINK").arg(names[0]).take()).ignore();
        create(&mut pipeline, names[0]);
        server.run::<()>(&pipeline)
    }
}
