//! Decides for platforms' requests: ids become keys, keys meet the catalog, everything is counted.

use super::{Catalog, ServedPlatform};
use crate::platform::{Decider, Failure, Id, IdReader, Keys, MAX_IDS};
use crate::strategy::Decision;

/// One request's decider. Looks nothing up if it is told that there is no time for it.
#[derive(Debug)]
pub struct Live<'a> {
    catalog: &'a Catalog,
    served: &'a ServedPlatform,
    reader: &'a IdReader,
    keys: Keys,
    /// Ids that were handed over, usable or not.
    ids: usize,
    is_available: bool,
}

impl<'a> Live<'a> {
    /// A decider that looks ids up.
    #[inline]
    pub fn new(catalog: &'a Catalog, served: &'a ServedPlatform, reader: &'a IdReader) -> Self {
        Self { catalog, served, reader, keys: Keys::new(), ids: 0, is_available: true }
    }

    /// One that gives every strategy's `unavailable` answer.
    pub fn unavailable(catalog: &'a Catalog, served: &'a ServedPlatform, reader: &'a IdReader) -> Self {
        Self { is_available: false, ..Self::new(catalog, served, reader) }
    }

    /// Counts an id; false if it is one too many, and then none of them decides: the one that is not looked at might be a member.
    #[inline]
    fn has_room(&mut self) -> bool {
        self.ids += 1;
        if self.ids == MAX_IDS + 1 && self.is_available {
            self.served.count_failure(Failure::TooManyIds);
            self.is_available = false;
        }
        self.is_available
    }
}

impl Decider for Live<'_> {
    #[inline]
    fn id(&mut self, id: Id<'_>) {
        if self.has_room()
            && let Some(key) = self.reader.key(id.field, id.value)
            && !self.keys.contains(&key)
        {
            self.keys.push(key);
        }
    }

    #[inline]
    fn doubtful(&mut self, id: Id<'_>) {
        if self.has_room() {
            self.reader.doubtful(id.field);
        }
    }

    #[inline]
    fn decide(&mut self, strategy: usize) -> Decision {
        let decision = if self.is_available {
            self.catalog.judge(strategy, &self.keys)
        } else {
            self.catalog.strategies[strategy].when_unavailable()
        };
        if let Some(counters) = &self.served.decisions[strategy] {
            counters.count(decision);
        }
        decision
    }
}
