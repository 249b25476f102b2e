//! Race of two threads that send the same keys at the same time. At most one of them may be told
//! `new` for a key.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::engine::{Engine, Key, Outcome};
use crate::workload::key;

/// Distinguishes these keys from those of the workload.
const RUN: u64 = 1;

/// Number and order of the keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Race {
    pub(crate) keys: u64,
    /// Keys of a call of the engine.
    pub(crate) batch: usize,
    /// Keys of a tick. One thread moves to the next tick while the other may still send.
    pub(crate) per_tick: u64,
}

/// Number of keys of which both threads were told `new`.
///
/// In every second batch, the threads send the keys in opposite orders, so that they meet in the
/// middle even if one starts late.
pub(crate) fn double_winners(engine: &dyn Engine, race: Race) -> Outcome<u64> {
    let arrived = AtomicUsize::new(0);
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(|| run(engine, race, false, &arrived));
        let other = run(engine, race, true, &arrived);
        (one.join(), other)
    });
    let one = one.map_err(|_| "race: a thread panicked")??;
    Ok(one.iter().zip(&other?).filter(|(one, other)| **one && **other).count() as u64)
}

/// One thread: the answer to each key.
fn run(
    engine: &dyn Engine,
    race: Race,
    is_second: bool,
    arrived: &AtomicUsize,
) -> Outcome<Vec<bool>> {
    let (mut answers, mut out, mut result) = (Vec::new(), Vec::new(), Ok(()));
    let mut tick = 0;
    for (round, first) in (0..race.keys).step_by(race.batch).enumerate() {
        let end = (first + race.batch as u64).min(race.keys);
        let mut batch: Vec<Key> = (first..end).map(|index| key(RUN, index)).collect();
        let is_reversed = is_second && round % 2 == 1;
        if is_reversed {
            batch.reverse();
        }
        // The other thread still needs a partner to wait for after a failure.
        if is_second && first / race.per_tick > tick && result.is_ok() {
            tick += 1;
            result = engine.advance(tick);
        }
        arrived.fetch_add(1, SeqCst);
        let mut spins = 0;
        while arrived.load(SeqCst) < 2 * (round + 1) {
            spins += 1;
            if spins % 1000 == 0 { thread::yield_now() } else { spin_loop() }
        }
        if result.is_ok() {
            result = engine.observe(&batch, &mut out);
        }
        if is_reversed {
            out.reverse();
        }
        answers.extend_from_slice(&out);
    }
    result.map(|()| answers)
}
