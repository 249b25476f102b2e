//! Windows compared with a map, over failures and crashes.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::*;
use super::driven::{Driven, GroupRequest};
use super::{LONG, SPEC, key, keys};
use crate::{Durability as D, Seen, WindowSpec};

#[derive(Debug, Clone)]
enum Action {
    /// Requests of one group.
    Observe(Vec<Vec<u64>>),
    /// A request with a key for retries, which says its events too.
    Retry(u8),
    Forget(u64),
    Tick(u64),
    Checkpoint,
    Cycle,
    Fail(bool),
    Crash,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let request = prop::collection::vec(0..60_u64, 1..50);
    let action = prop_oneof![
        6 => prop::collection::vec(request, 1..4).prop_map(Action::Observe),
        2 => (0..6_u8).prop_map(Action::Retry),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slots {
    Narrow,
    Wide,
    Whole,
}

impl Slots {
    fn spec(self, count: u16, lifetime: u16) -> WindowSpec {
        let spec = WindowSpec { lifetime, ..SPEC };
        match self {
            Self::Narrow => WindowSpec {
                fpr: 1e-5,
                count: 1,
                ..spec
            },
            Self::Wide => WindowSpec { count, ..spec },
            Self::Whole => WindowSpec {
                count,
                whole_keys: true,
                ..spec
            },
        }
    }
}

/// The events of a request with this key for retries.
fn events_of(retry: u8) -> [u64; 3] {
    let first = u64::from(retry) * 7;
    [first, first + 1, first + 1]
}

/// Counts with the tick of the first event.
#[derive(Default)]
struct Model {
    entries: HashMap<u64, (u64, u16)>,
    /// Answers by the key for retries.
    answers: HashMap<u8, Vec<Seen>>,
    /// Thresholds that keys have reached since they were last compared.
    reached: Vec<(u16, Key)>,
}

impl Model {
    fn expire(&mut self, tick: u64, lifetime: u16) {
        self.entries
            .retain(|_, (first, _)| tick - *first < u64::from(lifetime));
    }

    fn observe(&mut self, n: u64, tick: u64, most: u16) -> Seen {
        let Some((_, count)) = self.entries.get_mut(&n) else {
            self.entries.insert(n, (tick, 1));
            self.reached.push((1, key(n)));
            return Seen::New;
        };
        if *count < most {
            *count += 1;
            if *count == 2 {
                self.reached.push((2, key(n)));
            }
        }
        Seen::Duplicate(*count)
    }

    fn observe_all(&mut self, numbers: &[u64], tick: u64, most: u16) -> Vec<Seen> {
        let mut seen = Vec::new();
        for n in numbers {
            seen.push(self.observe(*n, tick, most));
        }
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Copies for checkpoints between any two groups, failures, and crashes at any time.
    #[test]
    fn window_agrees_with_a_map_over_failures_and_crashes(
        actions in actions(),
        slots in prop::sample::select(vec![Slots::Narrow, Slots::Wide, Slots::Whole]),
        is_fsync: bool,
        count in 1..4_u16,
        lifetime in prop::sample::select(vec![1, 5, 129]),
    ) {
        let spec = slots.spec(count, lifetime);
        let most = spec.count;
        let durability = if is_fsync { D::Fsync } else { LONG };
        let mut dir = tempfile::tempdir().unwrap();
        let mut driven = Driven::open(dir.path(), spec, durability, 0);
        let mut model = Model::default();
        let mut tick = 0;
        for action in actions {
            match action {
                Action::Observe(requests) => {
                    let mut group = Vec::new();
                    for numbers in &requests {
                        group.push(GroupRequest {
                            keys: keys(numbers.iter().copied()),
                            retry: None,
                        });
                    }
                    let answers = driven.observe_group(group);

                    for (numbers, answer) in requests.iter().zip(answers) {
                        let expected = model.observe_all(numbers, tick, most);
                        prop_assert_eq!(answer.unwrap().seen, expected);
                    }
                }
                Action::Retry(retry) => {
                    let answer = driven.retry(keys(events_of(retry)), retry, retry).unwrap();

                    prop_assert_eq!(answer.is_repeated, model.answers.contains_key(&retry));
                    if !answer.is_repeated {
                        let seen = model.observe_all(&events_of(retry), tick, most);
                        model.answers.insert(retry, seen);
                    }
                    prop_assert_eq!(&answer.seen, &model.answers[&retry]);
                }
                Action::Forget(n) => {
                    let forgotten = driven.forget(keys([n])).unwrap();
                    prop_assert_eq!(forgotten, [model.entries.remove(&n).is_some()]);
                }
                Action::Tick(ticks) => {
                    tick += ticks;
                    driven.set_tick(tick);
                }
                Action::Checkpoint => drop(driven.begin_checkpoint()),
                Action::Cycle => {
                    driven.run_cycle(Duration::ZERO);
                }
                Action::Fail(is_full) => {
                    if is_full { driven.disk.fill(1) } else { driven.disk.fail_syncs(1) }
                    let retry = 9;
                    let mut answers = driven.observe_group(vec![
                        GroupRequest { keys: keys([3, 59]), retry: None },
                        GroupRequest { keys: keys(events_of(retry)), retry: Some(retry) },
                    ]);
                    driven.disk.fail_syncs(0);
                    driven.disk.fill(0);

                    let keyed = answers.pop().unwrap();
                    let plain = answers.pop().unwrap();
                    prop_assert_eq!(plain.is_ok(), keyed.is_ok());
                    match keyed {
                        Ok(keyed) => {
                            let seen = model.observe_all(&[3, 59], tick, most);
                            prop_assert_eq!(plain.unwrap().seen, seen);
                            if !keyed.is_repeated {
                                let seen = model.observe_all(&events_of(retry), tick, most);
                                model.answers.insert(retry, seen);
                            }
                            prop_assert_eq!(&keyed.seen, &model.answers[&retry]);
                        }
                        Err(failure) => {
                            prop_assert_eq!(failure, Failure::NotWritable);
                            prop_assert!(driven.failure.is_some());
                        }
                    }
                }
                Action::Crash => (driven, dir) = driven.crash(spec, durability),
            }
            let mut expected = std::mem::take(&mut model.reached);
            if slots == Slots::Whole {
                let mut reached = std::mem::take(&mut driven.heard.lock().unwrap().reached);
                reached.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(reached, expected);
            }
            if driven.failure.is_some() {
                (driven, dir) = driven.crash(spec, durability);
            }

            model.expire(tick, lifetime);
            let mut expected = Vec::new();
            for n in 0..60 {
                expected.push(model.entries.get(&n).map_or(0, |(_, count)| *count));
            }
            prop_assert_eq!(driven.counts(keys(0..60)), expected);
            prop_assert_eq!(driven.state().window.entries, model.entries.len() as u64);
        }
        drop(dir);
    }
}
