//! Engines: the interface that the harness measures, and the list of all engines.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use crate::local::{apbf::Apbf, blocked::Blocked, plain::Plain, rtad::Rtad};
use crate::network::{Bits, Bloom, Set};

/// Device key.
pub(crate) type Key = [u8; 16];

/// Any error ends the measurement.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Test-and-set of keys in a sliding window of ticks. Two threads call `observe` at the same time.
///
/// A key is `new` at its first event, and a duplicate for `Sizing::ticks` ticks from then on, the
/// tick of its first event included. Duplicates do not extend the time.
pub(crate) trait Engine: Sync {
    /// Replaces the content of `out` by one answer per key, in order: whether the key is new. All
    /// new keys are stored.
    ///
    /// # Errors
    ///
    /// The engine could not answer, or could not store a new key.
    fn observe(&self, keys: &[Key], out: &mut Vec<bool>) -> Outcome;

    /// Moves to `tick`, the successor of the current tick; the first is 0.
    ///
    /// # Errors
    ///
    /// The engine could not expire its keys.
    fn advance(&self, tick: u64) -> Outcome;

    /// The server of an engine that is reached by network.
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// Duration of a tick, if the engine expires by a clock of its own.
    fn tick_duration(&self) -> Option<Duration> {
        None
    }
}

/// Process that an engine asks.
pub(crate) trait Server {
    /// User and system time so far in seconds, of all its threads.
    fn cpu_seconds(&self) -> Outcome<f64>;
    /// Memory of its data in bytes.
    fn memory_bytes(&self) -> Outcome<u64>;
}

/// Size of a window.
#[derive(Debug, Clone)]
pub(crate) struct Sizing {
    /// Keys within a window.
    pub(crate) keys: u64,
    /// Highest false-positive rate of a full window.
    pub(crate) fpr: f64,
    /// Ticks of a window.
    pub(crate) ticks: u64,
    /// Time of a window, for engines that expire by a clock.
    pub(crate) window: Duration,
    /// File of the RedisBloom module.
    pub(crate) redisbloom: Option<PathBuf>,
}

/// Row of the table: a name and the engine's constructor.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Whether the engine is a server: it gets fewer keys.
    pub(crate) is_network: bool,
    /// Makes an empty engine, and describes its parameters.
    pub(crate) build: Build,
}

/// All engines, in the order of the table.
pub(crate) const ENGINES: &[Entry] = &[
    local("rtad-narrow", |sizing| Ok(boxed(Rtad::new(sizing, true)?))),
    local("rtad", |sizing| Ok(boxed(Rtad::new(sizing, false)?))),
    local("blocked", |sizing| Ok(boxed(Blocked::new(sizing, false)?))),
    local("blocked-locked", |sizing| Ok(boxed(Blocked::new(sizing, true)?))),
    local("apbf", |sizing| Ok(boxed(Apbf::new(sizing)?))),
    local("plain-k8", |sizing| Ok(boxed(Plain::new(sizing, 8)?))),
    local("plain-k12", |sizing| Ok(boxed(Plain::new(sizing, 12)?))),
    local("plain-k16", |sizing| Ok(boxed(Plain::new(sizing, 16)?))),
    network("redis-set", |sizing| Ok(boxed(Set::start(sizing)?))),
    network("redisbloom", |sizing| Ok(boxed(Bloom::start(sizing)?))),
    network("redis-setbit", |sizing| Ok(boxed(Bits::start(sizing)?))),
];

/// Constructor of an empty engine with room for the keys of a window.
type Build = fn(&Sizing) -> Outcome<(Box<dyn Engine>, String)>;

const fn local(name: &'static str, build: Build) -> Entry {
    Entry { name, is_network: false, build }
}

const fn network(name: &'static str, build: Build) -> Entry {
    Entry { name, is_network: true, build }
}

fn boxed<E: Engine + 'static>((engine, parameters): (E, String)) -> (Box<dyn Engine>, String) {
    (Box::new(engine), parameters)
}
