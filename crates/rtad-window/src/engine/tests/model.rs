//! Windows compared with a map, over failures and crashes.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::*;
use super::driven::Driven;
use super::{LONG, SPEC, keys};
use crate::{Durability as D, WindowSpec};

#[derive(Debug, Clone)]
enum Action {
    Observe(Vec<u64>),
    Forget(u64),
    Tick(u64),
    Checkpoint,
    Cycle,
    Fail(bool),
    Crash,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => prop::collection::vec(0..60_u64, 1..50).prop_map(Action::Observe),
        2 => (0..60_u64).prop_map(Action::Forget),
        3 => (0..4_u64).prop_map(Action::Tick),
        1 => (100..400_u64).prop_map(Action::Tick),
        2 => Just(Action::Checkpoint),
        4 => Just(Action::Cycle),
        1 => any::<bool>().prop_map(Action::Fail),
        1 => Just(Action::Crash),
    ];
    prop::collection::vec(action, 1..60)
}

/// Counts with the tick of the first event.
#[derive(Default)]
struct Model(HashMap<u64, (u64, u16)>);

impl Model {
    fn expire(&mut self, tick: u64, lifetime: u16) {
        self.0
            .retain(|_, (first, _)| tick - *first < u64::from(lifetime));
    }

    fn observe(&mut self, n: u64, tick: u64, most: u16) -> Seen {
        let mut seen = Seen::New;
        self.0
            .entry(n)
            .and_modify(|(_, count)| {
                *count = (*count + 1).min(most);
                seen = Seen::Duplicate(*count);
            })
            .or_insert((tick, 1));
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Copies for checkpoints between any two groups, failures, and crashes at any time.
    #[test]
    fn window_agrees_with_a_map_over_failures_and_crashes(
        actions in actions(),
        whole_keys: bool,
        is_fsync: bool,
        count in 1..4_u16,
        lifetime in prop::sample::select(vec![1, 5, 129]),
    ) {
        let spec = WindowSpec { count, whole_keys, lifetime, ..SPEC };
        let durability = if is_fsync { D::Fsync } else { LONG };
        let mut dir = tempfile::tempdir().unwrap();
        let mut driven = Driven::open(dir.path(), spec, durability, 0);
        let mut model = Model::default();
        let mut tick = 0;
        for action in actions {
            match action {
                Action::Observe(numbers) => {
                    let seen = driven.observe(keys(numbers.iter().copied())).unwrap();
                    let expected: Vec<Seen> =
                        numbers.iter().map(|n| model.observe(*n, tick, count)).collect();
                    prop_assert_eq!(seen, expected);
                }
                Action::Forget(n) => {
                    let forgotten = driven.forget(keys([n])).unwrap();
                    prop_assert_eq!(forgotten, [model.0.remove(&n).is_some()]);
                }
                Action::Tick(ticks) => {
                    tick += ticks;
                    driven.set_tick(tick);
                }
                Action::Checkpoint => drop(driven.begin_checkpoint()),
                Action::Cycle => {
                    driven.engine.run_cycle(Duration::ZERO);
                }
                Action::Fail(is_full) => {
                    if is_full { driven.disk.fill(1) } else { driven.disk.fail_syncs(1) }
                    let failed = driven.observe(keys([3, 59]));
                    driven.disk.fail_syncs(0);
                    driven.disk.fill(0);
                    match failed {
                        Ok(_) => {
                            for n in [3, 59] {
                                model.observe(n, tick, count);
                            }
                        }
                        Err(failure) => prop_assert_eq!(failure, Failure::NotWritable),
                    }
                }
                Action::Crash => (driven, dir) = driven.crash(spec, durability),
            }
            model.expire(tick, lifetime);
            let expected: Vec<u16> =
                (0..60).map(|n| model.0.get(&n).map_or(0, |(_, count)| *count)).collect();
            prop_assert_eq!(driven.counts(keys(0..60)), expected);
            prop_assert_eq!(driven.state().window.entries, model.0.len() as u64);
        }
        drop(dir);
    }
}
