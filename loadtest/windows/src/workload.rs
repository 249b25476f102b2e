//! Workload in the steady state. Each tick brings the same number of keys that were never sent
//! before, and repeated keys that are in the window. The first window fills the engine; in two more
//! windows, all keys are replaced twice.

use std::ops::Range;
use std::thread::sleep;
use std::time::Instant;

use crate::engine::{Engine, Key, Outcome, Sizing};
use crate::hash::{mix, scale};
use crate::meter::{CpuTime, own_cpu_seconds, resident_bytes, server_cpu_seconds};

/// Windows of measured events, after one that fills the engine.
const MEASURED_WINDOWS: u64 = 2;
/// Events made before they are timed: the harness's own work is not measured.
const PREPARED: usize = 100_000;

/// Keys of a tick whose retention is tested: few, as the forgotten ones are stored again.
const RETENTION_KEYS: u64 = 16;

/// Events of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    /// Part of the events that repeat a key of the window.
    pub(crate) repeats: f64,
    /// Events of a call of the engine.
    pub(crate) batch: usize,
}

/// Result of a measurement. Counts are of the measured windows.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) cpu: CpuTime,
    pub(crate) events: u64,
    /// Events of keys that were never sent before.
    pub(crate) first_events: u64,
    /// Of these, the events answered `duplicate`.
    pub(crate) false_positives: u64,
    /// Repeated keys answered `new`.
    pub(crate) missed: u64,
    /// Highest memory in bytes at the end of a tick.
    pub(crate) memory_bytes: u64,
    /// Ticks whose events ended over a tick late, by the engine's clock.
    pub(crate) late_ticks: u64,
    /// Longest time that keys stay, in windows, just before the engine forgets keys.
    pub(crate) retention: f64,
}

/// An event and its correct answer.
struct Prepared {
    keys: Vec<Key>,
    is_first: Vec<bool>,
}

/// Key number `index`, of a run.
pub(crate) fn key(run: u64, index: u64) -> Key {
    let low = mix(index ^ mix(run));
    (u128::from(mix(low ^ run)) << 64 | u128::from(low)).to_le_bytes()
}

/// Sends all events to an empty engine. `memory_before` is the resident memory before it was made.
pub(crate) fn measure(
    engine: &dyn Engine,
    sizing: &Sizing,
    traffic: Traffic,
    memory_before: u64,
) -> Outcome<Measured> {
    let per_tick = sizing.keys / sizing.ticks;
    let (mut measured, mut out) = (Measured::default(), Vec::with_capacity(traffic.batch));
    // The same size in each round, so that the memory of the harness is constant.
    let mut prepared = Prepared {
        keys: Vec::with_capacity(2 * PREPARED),
        is_first: Vec::with_capacity(2 * PREPARED),
    };
    let began = Instant::now();
    let mut server_before = 0.0;
    let last_tick = sizing.ticks * (1 + MEASURED_WINDOWS);
    for tick in 0..last_tick {
        let is_measured = tick >= sizing.ticks;
        if tick == sizing.ticks {
            server_before = server_cpu_seconds(engine)?;
        }
        if tick > 0 {
            let before = own_cpu_seconds();
            engine.advance(tick)?;
            if is_measured {
                measured.cpu.client += own_cpu_seconds() - before;
            }
        }
        // Repeats are younger than the window by a tick, as a clock of the engine may differ by
        // the time of a tick.
        let oldest = (tick + 2).saturating_sub(sizing.ticks) * per_tick;
        let mut next = tick * per_tick;
        while next < (tick + 1) * per_tick {
            let until = ((tick + 1) * per_tick).min(next + (PREPARED / 2) as u64);
            prepare(&mut prepared, oldest, next..until, traffic.repeats);
            next = until;
            for (keys, is_first) in
                prepared.keys.chunks(traffic.batch).zip(prepared.is_first.chunks(traffic.batch))
            {
                let before = own_cpu_seconds();
                engine.observe(keys, &mut out)?;
                let cpu = own_cpu_seconds() - before;
                if out.len() != keys.len() {
                    return Err(format!("{} answers to {} events", out.len(), keys.len()).into());
                }
                if is_measured {
                    measured.cpu.client += cpu;
                    measured.count(is_first, &out);
                }
            }
        }
        if is_measured {
            let memory = match engine.server() {
                Some(server) => server.memory_bytes()?,
                None => resident_bytes()?.saturating_sub(memory_before),
            };
            measured.memory_bytes = measured.memory_bytes.max(memory);
        }
        if let Some(duration) = engine.tick_duration() {
            let due = duration.mul_f64((tick + 1) as f64);
            sleep(due.saturating_sub(began.elapsed()));
            // Repeats are young enough for a delay of a tick.
            measured.late_ticks += u64::from(began.elapsed() > due + duration);
        }
    }
    measured.cpu.server = server_cpu_seconds(engine)? - server_before;
    measured.retention = retention(engine, sizing, last_tick)?;
    Ok(measured)
}

impl Measured {
    fn count(&mut self, is_first: &[bool], is_new: &[bool]) {
        self.events += is_first.len() as u64;
        for (is_first, is_new) in is_first.iter().zip(is_new) {
            self.first_events += u64::from(*is_first);
            self.false_positives += u64::from(*is_first && !is_new);
            self.missed += u64::from(!is_first && *is_new);
        }
    }
}

/// Makes events of the keys of a range, which were never sent, in their order. Between them are
/// events of keys from `oldest` on that were sent before the range.
fn prepare(prepared: &mut Prepared, oldest: u64, first: Range<u64>, repeats: f64) {
    prepared.keys.clear();
    prepared.is_first.clear();
    let sent = first.start.saturating_sub(oldest);
    let per_first = repeats / (1.0 - repeats);
    let mut due = 0.0;
    for index in first {
        prepared.keys.push(key(0, index));
        prepared.is_first.push(true);
        due += per_first;
        while due >= 1.0 && sent > 0 {
            due -= 1.0;
            let random = mix(mix(index) ^ due.to_bits());
            prepared.keys.push(key(0, oldest + scale(random, sent)));
            prepared.is_first.push(false);
        }
    }
}

/// Age in windows up to which most keys are still duplicates, found by bisection.
fn retention(engine: &dyn Engine, sizing: &Sizing, now: u64) -> Outcome<f64> {
    let per_tick = sizing.keys / sizing.ticks;
    let mut out = Vec::new();
    // Keys before `kept` are forgotten; those from `end` on are kept.
    let (mut kept, mut end) = (0, now);
    while kept < end {
        let tick = kept.midpoint(end);
        let keys: Vec<Key> = (0..per_tick.min(RETENTION_KEYS))
            .map(|index| key(0, tick * per_tick + index))
            .collect();
        engine.observe(&keys, &mut out)?;
        if out.iter().filter(|is_new| !**is_new).count() * 2 > out.len() {
            end = tick;
        } else {
            kept = tick + 1;
        }
    }
    Ok((now - kept) as f64 / sizing.ticks as f64)
}
