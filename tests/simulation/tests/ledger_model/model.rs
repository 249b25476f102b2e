//! The model: membership by the documented rules, from the history alone.
//!
//! Keys are bits of a mask. A generation contains its input, changed by the appends that its build
//! saw. Later appends apply to it in the order of their sequence numbers, after a rollback too.
//! Tombstones apply to everything.

use std::collections::BTreeMap;

/// A set of keys: bit `n` is key `n`.
pub type Keys = u16;

/// Keys of the model.
pub const KEYS: u8 = 12;

/// A change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Add,
    Remove,
    Entomb,
    Lift,
}

/// A published generation.
#[derive(Debug, Clone, Copy)]
struct Generation {
    keys: Keys,
    /// Sequences of the appends that its build saw: after `from`, through `through`.
    from: u64,
    through: u64,
}

/// An append of one key that took effect.
#[derive(Debug, Clone, Copy)]
struct Appended {
    sequence: u64,
    key: u8,
    is_added: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    generations: BTreeMap<u64, Generation>,
    appends: Vec<Appended>,
    tombstones: Keys,
    /// The live generation; none before the first and after a deletion.
    live: Option<u64>,
    is_disabled: bool,
    /// The states since the pod's last whole poll. Mixed chunks answer from any of them.
    states: Vec<Published>,
}

/// A state in which something is published.
#[derive(Debug, Clone, Copy)]
struct Published {
    /// Members but for tombstones.
    keys: Keys,
    tombstones: Keys,
}

pub const fn bit(key: u8) -> Keys {
    1 << key
}

const fn set(keys: Keys, key: u8, is_set: bool) -> Keys {
    if is_set {
        keys | bit(key)
    } else {
        keys & !bit(key)
    }
}

impl Model {
    /// Members, or none if the audience answers nothing.
    pub fn members(&self) -> Option<Keys> {
        if self.is_disabled {
            return None;
        }
        let Published { keys, tombstones } = self.published()?;
        Some(keys & !tombstones)
    }

    /// The state while it is enabled; none if nothing is published.
    fn published(&self) -> Option<Published> {
        let generation = self.generations[&self.live?];
        Some(Published {
            keys: self.applied(generation.keys, generation.through, u64::MAX),
            tombstones: self.tombstones,
        })
    }

    /// Whether the pod may answer so after a failed poll: from a chunk of one state since the last
    /// whole poll, under the tombstones of that state or a later one.
    pub fn may_answer(&self, key: u8, answer: bool) -> bool {
        for (index, state) in self.states.iter().enumerate() {
            for later in &self.states[index..] {
                let members = state.keys & !later.tombstones;
                if (members & bit(key) != 0) == answer {
                    return true;
                }
            }
        }
        false
    }

    /// Records a poll. After a whole one, and after one that saw a deletion, the pod answers from
    /// the present state alone.
    pub fn polled(&mut self, is_whole: bool) {
        if is_whole || self.live.is_none() {
            self.states = self.published().into_iter().collect();
        }
    }

    /// Records the present state. The pod may read it at any time until the next one.
    fn record(&mut self) {
        self.states.extend(self.published());
    }

    /// The keys of a build from `input`, whose base is at `through`.
    pub fn built(&self, input: Keys, through: u64) -> Keys {
        let live = self.live.map(|live| self.generations[&live]);
        let from = live.map_or(0, |live| live.through);
        self.applied(input, from, through)
    }

    /// Keys that an append since the base's generation decides for a build at `through`.
    pub fn decided(&self, through: u64) -> Keys {
        self.built(Keys::MAX, through) ^ !self.built(0, through)
    }

    fn applied(&self, keys: Keys, after: u64, through: u64) -> Keys {
        let appends = self.appended(after, through);
        appends.fold(keys, |keys, append| set(keys, append.key, append.is_added))
    }

    fn appended(&self, after: u64, through: u64) -> impl DoubleEndedIterator<Item = &Appended> {
        let is_within =
            move |append: &&Appended| append.sequence > after && append.sequence <= through;
        self.appends.iter().filter(is_within)
    }

    /// The last change of each key counts. Additions of keys with a tombstone have no effect.
    pub fn append(&mut self, sequence: u64, changes: &[(u8, Kind)]) {
        let mut members = BTreeMap::new();
        let mut tombstones = BTreeMap::new();
        for (key, kind) in changes {
            match kind {
                Kind::Add | Kind::Remove => members.insert(*key, *kind == Kind::Add),
                Kind::Entomb | Kind::Lift => tombstones.insert(*key, *kind == Kind::Entomb),
            };
        }
        for (key, is_set) in tombstones {
            match is_set {
                true => self.tombstones |= bit(key),
                false => self.tombstones &= !bit(key),
            }
        }
        for (key, is_added) in members {
            if !is_added || self.tombstones & bit(key) == 0 {
                self.appends.push(Appended {
                    sequence,
                    key,
                    is_added,
                });
            }
        }
        self.record();
    }

    /// The last change that the live generation's build saw of a key, if any. None for keys that
    /// changed later: their change may be merged with it.
    pub fn carried(&self, key: u8) -> Option<bool> {
        let Generation { from, through, .. } = self.generations[&self.live?];
        let last = self.appends.iter().rev().find(|append| append.key == key)?;
        (last.sequence > from && last.sequence <= through).then_some(last.is_added)
    }

    pub fn publish(&mut self, generation: u64, keys: Keys, through: u64) {
        let from = self.live.map_or(0, |live| self.generations[&live].through);
        self.generations.insert(
            generation,
            Generation {
                keys,
                from,
                through,
            },
        );
        self.live = Some(generation);
        self.record();
    }

    pub fn roll_back(&mut self, generation: u64) {
        self.live = Some(generation);
        self.record();
    }

    pub fn delete(&mut self) {
        (self.live, self.is_disabled) = (None, false);
        self.generations.clear();
        self.appends.clear();
    }

    pub const fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    pub const fn disable(&mut self, is_disabled: bool) {
        self.is_disabled = is_disabled;
    }

    /// Forgets the generations that a gc removed.
    pub fn keep(&mut self, generations: &[u64]) {
        self.generations
            .retain(|generation, _| generations.contains(generation));
    }

    pub const fn is_live(&self) -> bool {
        self.live.is_some()
    }
}
