//! RedisBloom filters in two generations: `BF.MEXISTS` on the previous one, then `BF.MADD` of the
//! other keys to the current one.

use redis::{Pipeline, cmd};

use super::{Generations, RedisServer};
use crate::engine::{Engine, Key, Outcome, Server, Sizing};

/// Two filters of the RedisBloom module.
pub(crate) struct Bloom {
    server: RedisServer,
    generations: Generations,
    keys: u64,
    fpr: f64,
}

impl Bloom {
    /// Starts a server with the module and makes empty filters.
    pub(crate) fn start(sizing: &Sizing) -> Outcome<(Self, String)> {
        let module =
            sizing.redisbloom.as_deref().ok_or("redisbloom: expected --redisbloom FILE")?;
        let engine = Self {
            server: RedisServer::start(Some(module))?,
            generations: Generations::new(sizing.ticks),
            // A filter that does not grow refuses keys over its capacity. The retention test
            // needs room in a full window.
            keys: sizing.keys + sizing.keys / 100,
            fpr: sizing.fpr / 2.0,
        };
        engine.generations.create(&engine.server, engine.reserve())?;
        Ok((engine, "2 generations, `BF.MEXISTS`, `BF.MADD`".into()))
    }

    /// One command for all keys; returns their answers.
    fn for_each_key<'k>(
        &self,
        command: &str,
        name: &str,
        keys: impl Iterator<Item = &'k Key>,
    ) -> Outcome<Vec<bool>> {
        let mut command = cmd(command);
        command.arg(name);
        for key in keys {
            command.arg(key);
        }
        let mut pipeline = redis::pipe();
        let (answers,) = self.server.run(pipeline.add_command(command))?;
        Ok(answers)
    }

    fn reserve(&self) -> impl Fn(&mut Pipeline, &str) {
        |pipeline, name| {
            let mut reserve = cmd("BF.RESERVE");
            reserve.arg(name).arg(self.fpr).arg(self.keys).arg("NONSCALING");
            pipeline.add_command(reserve).ignore();
        }
    }
}

impl Engine for Bloom {
    fn observe(&self, keys: &[Key], out: &mut Vec<bool>) -> Outcome {
        let names = self.generations.read();
        let [current, previous] = *names;
        let exists = self.for_each_key("BF.MEXISTS", previous, keys.iter())?;
        out.clear();
        out.extend(exists.iter().map(|exists| !exists));
        let absent: Vec<&Key> = keys
            .iter()
            .zip(&*out)
            .filter_map(|(key, is_absent)| is_absent.then_some(key))
            .collect();
        if absent.is_empty() {
            return Ok(());
        }
        let added = self.for_each_key("BF.MADD", current, absent.into_iter())?;
        let mut added = added.into_iter();
        for is_new in out.iter_mut().filter(|is_absent| **is_absent) {
            *is_new = added.next().ok_or("BF.MADD: too few answers")?;
        }
        Ok(())
    }

    fn advance(&self, tick: u64) -> Outcome {
        self.generations.advance(tick, &self.server, self.reserve())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.server)
    }
}
