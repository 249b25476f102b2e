//! The history of an audience, record by record, by the documented rules.
//!
//! A generation has the keys of its input, changed by the appends that its build saw. Later appends
//! apply to it in the order of their records, after a rollback too. Tombstones apply to everything.

use std::collections::BTreeMap;

use rtad_core::snapshot::{Current, State};

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

/// Change that a process makes with the record that it creates.
#[derive(Debug)]
pub enum Intent {
    /// The changes of keys. The last change of each counts.
    Append(Vec<(u8, Kind)>),
    /// A build, whose base is of a record.
    Publish { keys: Keys, through: u64 },
    /// Everything else changes only which generations are named.
    Other,
}

/// A change of membership that took effect with a record.
#[derive(Debug, Clone, Copy)]
struct Appended {
    sequence: u64,
    key: u8,
    is_added: bool,
}

/// A published generation.
#[derive(Debug, Clone, Copy)]
struct Generation {
    keys: Keys,
    /// The last record that its build saw.
    through: u64,
}

/// The state after a record.
#[derive(Debug, Clone)]
pub struct Published {
    /// The generation of most pods.
    pub generation: u64,
    /// The generation of the pods of the stage.
    pub staged: Option<u64>,
    pub tombstones: Keys,
    pub is_served: bool,
    /// Keys of each generation, also those that have a tombstone.
    keys: BTreeMap<u64, Keys>,
}

/// The records of an audience.
#[derive(Debug, Default)]
pub struct History {
    generations: BTreeMap<u64, Generation>,
    appends: Vec<Appended>,
    records: Vec<Published>,
}

pub const fn bit(key: u8) -> Keys {
    1 << key
}

/// All keys of the model.
pub const ALL: Keys = bit(KEYS) - 1;

impl History {
    /// Number of the newest record.
    pub const fn newest(&self) -> u64 {
        self.records.len() as u64
    }

    /// The state after a record.
    pub fn at(&self, record: u64) -> Option<&Published> {
        self.records.get(record.checked_sub(1)? as usize)
    }

    /// Adds the next record. Returns what is wrong with it.
    pub fn add(&mut self, current: &Current, intent: &Intent) -> Result<(), String> {
        let sequence = self.newest() + 1;
        if current.sequence != sequence {
            return Err(format!(
                "record {} follows {}",
                current.sequence,
                sequence - 1
            ));
        }
        let mut tombstones = self.records.last().map_or(0, |before| before.tombstones);
        match intent {
            Intent::Append(changes) => self.append(sequence, changes, &mut tombstones),
            Intent::Publish { keys, through } => {
                let (keys, through) = (*keys, *through);
                let generation = match current.staged {
                    Some(staged) => staged.entry.generation,
                    None => current.generation,
                };
                let before = self
                    .generations
                    .insert(generation, Generation { keys, through });
                if before.is_some() {
                    return Err(format!("generation {generation} was published twice"));
                }
            }
            Intent::Other => {}
        }
        if !self.generations.contains_key(&current.generation) {
            return Err(format!(
                "generation {} was never published",
                current.generation
            ));
        }
        let mut keys = BTreeMap::new();
        for (generation, published) in &self.generations {
            let applied = self.applied(published.keys, published.through, sequence);
            keys.insert(*generation, applied);
        }
        self.records.push(Published {
            keys,
            generation: current.generation,
            staged: current.staged.map(|staged| staged.entry.generation),
            tombstones,
            is_served: current.state == State::Live,
        });
        Ok(())
    }

    fn append(&mut self, sequence: u64, changes: &[(u8, Kind)], tombstones: &mut Keys) {
        let (members, lifted) = last_of_each(changes);
        for (key, is_set) in lifted {
            if is_set {
                *tombstones |= bit(key);
            } else {
                *tombstones &= !bit(key);
            }
        }
        for (key, is_added) in members {
            // An addition of a key with a tombstone has no effect.
            if !is_added || *tombstones & bit(key) == 0 {
                self.appends.push(Appended {
                    sequence,
                    key,
                    is_added,
                });
            }
        }
    }

    /// Members of a generation after a record, without those that have a tombstone.
    pub fn members(&self, generation: u64, record: u64) -> Keys {
        let Some(tombstones) = self.at(record).map(|published| published.tombstones) else {
            return 0;
        };
        self.keys(generation, record) & !tombstones
    }

    /// Keys of a generation after a record, also those that have a tombstone.
    pub fn keys(&self, generation: u64, record: u64) -> Keys {
        let keys = self
            .at(record)
            .and_then(|published| published.keys.get(&generation));
        keys.copied().unwrap_or(0)
    }

    /// Keys after the appends of some records.
    fn applied(&self, keys: Keys, after: u64, through: u64) -> Keys {
        let mut keys = keys;
        for append in &self.appends {
            if append.sequence <= after || append.sequence > through {
                continue;
            }
            if append.is_added {
                keys |= bit(append.key);
            } else {
                keys &= !bit(append.key);
            }
        }
        keys
    }

    /// Membership of the keys that were appended after a generation's build, up to a record.
    pub fn decided(&self, generation: u64, through: u64) -> BTreeMap<u8, bool> {
        let after = self.generations.get(&generation).map_or(0, |it| it.through);
        let mut decided = BTreeMap::new();
        for append in &self.appends {
            if append.sequence > after && append.sequence <= through {
                decided.insert(append.key, append.is_added);
            }
        }
        decided
    }

    /// Whether changes are without effect after a record.
    pub fn holds(&self, changes: &[(u8, Kind)], record: u64) -> bool {
        let Some(published) = self.at(record) else {
            return false;
        };
        let members = self.keys(published.generation, record);
        let (members_of, lifted) = last_of_each(changes);
        for (number, is_added) in members_of {
            let is_erased = published.tombstones & bit(number) != 0;
            let is_member = members & bit(number) != 0;
            if is_member != is_added && !(is_added && is_erased) {
                return false;
            }
        }
        let mut lifted = lifted.into_iter();
        lifted.all(|(number, is_set)| (published.tombstones & bit(number) != 0) == is_set)
    }

    /// Whether a pod may answer so that has read at least record `from`, and whose tombstones are
    /// those of `erased` or later: from one state since, under the tombstones of that or a later
    /// one.
    pub fn may_answer(&self, key: u8, answer: bool, from: u64, erased: u64) -> bool {
        for record in from.max(1)..=self.newest() {
            let Some(published) = self.at(record) else {
                continue;
            };
            let mut keys = self.keys(published.generation, record);
            let mut allowed = [keys, keys];
            if let Some(staged) = published.staged {
                keys = self.keys(staged, record);
                allowed[1] = keys;
            }
            for keys in allowed {
                let is_key = keys & bit(key) != 0;
                for later in record.max(erased)..=self.newest() {
                    let is_erased = self.records[later as usize - 1].tombstones & bit(key) != 0;
                    if (is_key && !is_erased) == answer {
                        return true;
                    }
                }
            }
        }
        false
    }
}

/// The last change of each key: of its membership, and of its tombstone.
fn last_of_each(changes: &[(u8, Kind)]) -> (BTreeMap<u8, bool>, BTreeMap<u8, bool>) {
    let mut members = BTreeMap::new();
    let mut lifted = BTreeMap::new();
    for (key, kind) in changes {
        match kind {
            Kind::Add | Kind::Remove => members.insert(*key, *kind == Kind::Add),
            Kind::Entomb | Kind::Lift => lifted.insert(*key, *kind == Kind::Entomb),
        };
    }
    (members, lifted)
}
