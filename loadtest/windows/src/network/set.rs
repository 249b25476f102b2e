//! Keys in Redis: `SET key 1 NX EX`. Exact; Redis expires keys by its own clock.

use std::time::Duration;

use redis::cmd;

use super::RedisServer;
use crate::engine::{Engine, Key, Outcome, Server, Sizing};

/// One Redis key per device key.
pub(crate) struct Set {
    server: RedisServer,
    window: Duration,
    ticks: u64,
}

impl Set {
    /// Starts an empty server.
    pub(crate) fn start(sizing: &Sizing) -> Outcome<(Self, String)> {
        let engine =
            Self { server: RedisServer::start(None)?, window: sizing.window, ticks: sizing.ticks };
        Ok((engine, format!("`SET NX EX {}`", sizing.window.as_secs())))
    }
}

impl Engine for Set {
    fn observe(&self, keys: &[Key], out: &mut Vec<bool>) -> Outcome {
        let mut pipeline = redis::pipe();
        for key in keys {
            let mut set = cmd("SET");
            set.arg(key).arg(1).arg("NX").arg("EX").arg(self.window.as_secs());
            pipeline.add_command(set);
        }
        // OK if set, nil if the key exists.
        *out = self.server.run(&pipeline)?;
        Ok(())
    }

    fn advance(&self, _tick: u64) -> Outcome {
        Ok(())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.server)
    }

    fn tick_duration(&self) -> Option<Duration> {
        Some(self.window.div_f64(self.ticks as f64))
    }
}
