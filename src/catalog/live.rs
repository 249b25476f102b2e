//! Decides for platforms' requests: ids become keys, keys meet the catalog, everything is counted.

use super::{Catalog, ServedPlatform};
use crate::platform::{Decider, Failure, Id, IdReader, Keys, MAX_IDS};
use crate::strategy::Decision;
use rtad_core::device::DeviceKey;

/// What the ids of one request come to. The same for whoever serves and for whoever explains.
#[derive(Debug)]
pub struct RequestKeys {
    /// Each once.
    keys: Keys,
    /// Ids that were handed over, usable or not.
    ids: usize,
    decides: bool,
}

/// Whether one more id is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// It is.
    Available,
    /// It is the one too many. Now none of them decides: the one that is not looked at might be a member.
    Exceeded,
    /// Nothing is, any more.
    Exhausted,
}

impl Default for RequestKeys {
    #[inline]
    fn default() -> Self {
        Self { keys: Keys::new(), ids: 0, decides: true }
    }
}

impl RequestKeys {
    /// Takes note of one more id. Only one that there is room for may be kept.
    #[inline]
    pub const fn capacity(&mut self) -> Capacity {
        self.ids += 1;
        if !self.decides {
            Capacity::Exhausted
        } else if self.ids > MAX_IDS {
            self.decides = false;
            Capacity::Exceeded
        } else {
            Capacity::Available
        }
    }

    /// Keeps the key of an id; false if it was there.
    #[inline]
    pub fn keep(&mut self, key: DeviceKey) -> bool {
        let is_new = !self.keys.contains(&key);
        if is_new {
            self.keys.push(key);
        }
        is_new
    }

    /// Lets no key decide from now on.
    pub const fn give_up(&mut self) {
        self.decides = false;
    }

    /// The keys that decide; none if none may.
    pub fn keys(&self) -> &[DeviceKey] {
        if self.decides { &self.keys } else { &[] }
    }

    /// What the catalog's strategy at that place decides, not counted.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `place`.
    #[inline]
    pub fn decide(&self, catalog: &Catalog, place: usize) -> Decision {
        if self.decides {
            catalog.decide_uncounted(place, &self.keys)
        } else {
            catalog.strategies[place].when_unavailable()
        }
    }
}

/// One request's decider. Looks nothing up if it is told that there is no time for it.
#[derive(Debug)]
pub struct Live<'a> {
    catalog: &'a Catalog,
    served: &'a ServedPlatform,
    reader: &'a IdReader,
    request_keys: RequestKeys,
}

impl<'a> Live<'a> {
    /// A decider that looks ids up.
    #[inline]
    pub fn new(catalog: &'a Catalog, served: &'a ServedPlatform, reader: &'a IdReader) -> Self {
        Self { catalog, served, reader, request_keys: RequestKeys::default() }
    }

    /// One that gives every strategy's `unavailable` answer.
    pub fn unavailable(
        catalog: &'a Catalog,
        served: &'a ServedPlatform,
        reader: &'a IdReader,
    ) -> Self {
        let mut live = Self::new(catalog, served, reader);
        live.give_up();
        live
    }

    /// Whether an id is looked at; that there are too many is counted once.
    #[inline]
    fn has_room(&mut self) -> bool {
        let capacity = self.request_keys.capacity();
        if capacity == Capacity::Exceeded {
            self.served.count_failure(Failure::TooManyIds);
        }
        capacity == Capacity::Available
    }
}

impl Decider for Live<'_> {
    #[inline]
    fn id(&mut self, id: Id<'_>) {
        if self.has_room()
            && let Some(key) = self.reader.key(id.field, id.value)
        {
            self.request_keys.keep(key);
        }
    }

    #[inline]
    fn doubtful(&mut self, id: Id<'_>) {
        if self.has_room() {
            self.reader.doubtful(id.field);
        }
    }

    fn report_failure(&mut self, failure: Failure) {
        self.served.count_failure(failure);
    }

    #[inline]
    fn decide(&mut self, strategy: usize) -> Decision {
        let decision = self.request_keys.decide(self.catalog, strategy);
        if let Some(counters) = &self.served.decisions[strategy] {
            counters.count(decision);
        }
        decision
    }

    fn give_up(&mut self) {
        self.request_keys.give_up();
    }
}
