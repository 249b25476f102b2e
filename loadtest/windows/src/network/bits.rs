//! Classic Bloom filters in Redis bitmaps, in two generations: eight `GETBIT`s on the previous one,
//! then eight `SETBIT`s on the current one for the other keys.

use redis::{Pipeline, cmd};

use super::{Generations, RedisServer};
use crate::engine::{Engine, Key, Outcome, Server, Sizing};
use crate::hash::{hash_of, nth, scale};
use crate::sizing::plain_bits_per_key;

/// Bits of a key.
const HASHES: usize = 8;

/// Two bitmaps.
pub(crate) struct Bits {
    server: RedisServer,
    generations: Generations,
    bits: u64,
}

impl Bits {
    /// Starts a server with empty bitmaps.
    pub(crate) fn start(sizing: &Sizing) -> Outcome<(Self, String)> {
        let bits_per_key = plain_bits_per_key(HASHES as u32, sizing.fpr / 2.0);
        let engine = Self {
            server: RedisServer::start(None)?,
            generations: Generations::new(sizing.ticks),
            bits: (sizing.keys as f64 * bits_per_key).ceil() as u64,
        };
        engine.generations.create(&engine.server, engine.reserve())?;
        let parameters = format!("2 generations, 8 `GETBIT`, 8 `SETBIT`, m/n = {bits_per_key:.1}");
        Ok((engine, parameters))
    }

    /// Writes the last bit, so that the bitmap never grows.
    fn reserve(&self) -> impl Fn(&mut Pipeline, &str) {
        |pipeline, name| {
            let mut last = cmd("SETBIT");
            last.arg(name).arg(self.bits - 1).arg(0);
            pipeline.add_command(last).ignore();
        }
    }

    /// One command per bit of each key; returns their answers.
    fn for_each_bit<'k>(
        &self,
        command: impl Fn(u64) -> redis::Cmd,
        keys: impl Iterator<Item = &'k Key>,
    ) -> Outcome<Vec<bool>> {
        let mut pipeline = redis::pipe();
        for key in keys {
            let hash = hash_of(key);
            for index in 0..HASHES as u64 {
                pipeline.add_command(command(scale(nth(hash, index), self.bits)));
            }
        }
        // Redis's client refuses an empty pipeline.
        if pipeline.is_empty() { Ok(Vec::new()) } else { self.server.run(&pipeline) }
    }
}

impl Engine for Bits {
    fn observe(&self, keys: &[Key], out: &mut Vec<bool>) -> Outcome {
        let names = self.generations.read();
        let [current, previous] = *names;
        let get = |bit| cmd("GETBIT").arg(previous).arg(bit).take();
        let old = self.for_each_bit(get, keys.iter())?;
        out.clear();
        out.extend(old.chunks(HASHES).map(|bits| bits.contains(&false)));
        let absent = keys.iter().zip(&*out).filter_map(|(key, is_absent)| is_absent.then_some(key));
        let set = |bit| cmd("SETBIT").arg(current).arg(bit).arg(1).take();
        let old = self.for_each_bit(set, absent)?;
        let mut old = old.chunks(HASHES);
        for is_new in out.iter_mut().filter(|is_absent| **is_absent) {
            *is_new = old.next().ok_or("SETBIT: too few answers")?.contains(&false);
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
