//! A window as a map, and the requests that change it.

use std::collections::HashMap;

use super::{key, keys};
use crate::{Key, RequestKey, Retry, Seen, WindowSpec};

/// A request, as the model knows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Observe(Vec<u64>),
    /// A request with a key for retries, which says its events too.
    Retry(u8),
    Forget(u64),
    Counts,
}

/// Keys of the model.
pub const KEYS: u64 = 60;

impl Ask {
    /// Its events.
    pub fn numbers(&self) -> Vec<u64> {
        match self {
            Self::Observe(numbers) => numbers.clone(),
            Self::Retry(retry) => {
                let first = u64::from(*retry) * 7;
                vec![first, first + 1, first + 1]
            }
            Self::Forget(n) => vec![*n],
            Self::Counts => (0..KEYS).collect(),
        }
    }

    pub fn keys(&self) -> Vec<Key> {
        keys(self.numbers())
    }

    pub fn retry(&self) -> Option<Retry> {
        match self {
            Self::Retry(retry) => Some((RequestKey([*retry; 16]), [*retry; 16])),
            _ => None,
        }
    }
}

/// An answer, in the words of the model.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Seen(Vec<Seen>, bool),
    Forgotten(Vec<bool>),
    Counts(Vec<u16>),
}

/// Counts with the tick of the first event.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub entries: HashMap<u64, (u64, u16)>,
    /// Answers by the key for retries.
    pub answers: HashMap<u8, Vec<Seen>>,
    /// Thresholds that keys have reached since they were last compared.
    pub reached: Vec<(u16, Key)>,
}

impl Model {
    /// Applies a request at a tick.
    pub fn apply(&mut self, ask: &Ask, tick: u64, spec: &WindowSpec) -> Told {
        self.expire(tick, spec.lifetime);
        match ask {
            Ask::Observe(numbers) => Told::Seen(self.observe(numbers, tick, spec.count), false),
            Ask::Retry(retry) => match self.answers.get(retry) {
                Some(seen) => Told::Seen(seen.clone(), true),
                None => {
                    let seen = self.observe(&ask.numbers(), tick, spec.count);
                    self.answers.insert(*retry, seen.clone());
                    Told::Seen(seen, false)
                }
            },
            Ask::Forget(n) => Told::Forgotten(vec![self.entries.remove(n).is_some()]),
            Ask::Counts => Told::Counts(self.counts()),
        }
    }

    pub fn counts(&self) -> Vec<u16> {
        let count = |n| self.entries.get(&n).map_or(0, |(_, count)| *count);
        (0..KEYS).map(count).collect()
    }

    pub fn expire(&mut self, tick: u64, lifetime: u16) {
        self.entries
            .retain(|_, (first, _)| tick - *first < u64::from(lifetime));
    }

    fn observe(&mut self, numbers: &[u64], tick: u64, most: u16) -> Vec<Seen> {
        let mut seen = Vec::new();
        for n in numbers {
            let Some((_, count)) = self.entries.get_mut(n) else {
                self.entries.insert(*n, (tick, 1));
                self.reached.push((1, key(*n)));
                seen.push(Seen::New);
                continue;
            };
            if *count < most {
                *count += 1;
                if *count == 2 {
                    self.reached.push((2, key(*n)));
                }
            }
            seen.push(Seen::Duplicate(*count));
        }
        seen
    }
}
