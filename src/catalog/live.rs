//! Decider of platform requests: turns ids into keys, evaluates strategies, and counts both.

use super::served::{Catalog, ServedPlatform};
use crate::platform::{Decider, Failure, Id, IdReader, Keys, MAX_IDS};
use crate::strategy::Decision;
use rtad_core::device::DeviceKey;

/// Keys of one request, within the limit of ids. Used by serving and by `explain`.
#[derive(Debug)]
pub struct RequestKeys {
    /// Distinct keys.
    keys: Keys,
    /// Ids in the request, usable or not.
    ids: usize,
    decides: bool,
}

/// Capacity of a request for one more id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// The id may be read.
    Available,
    /// The id exceeds the limit. The request gets `unavailable`, because an unread id might be a
    /// member.
    Exceeded,
    /// An earlier id exceeded the limit, or the request was given up.
    Exhausted,
}

impl Default for RequestKeys {
    #[inline]
    fn default() -> Self {
        Self { keys: Keys::new(), ids: 0, decides: true }
    }
}

impl RequestKeys {
    /// Counts one more id. Only an `Available` one may be kept.
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

    /// Keeps the key of an id; false if it is a duplicate.
    #[inline]
    pub fn keep(&mut self, key: DeviceKey) -> bool {
        let is_new = !self.keys.contains(&key);
        if is_new {
            self.keys.push(key);
        }
        is_new
    }

    /// Makes every later decision `unavailable`.
    pub const fn give_up(&mut self) {
        self.decides = false;
    }

    /// The keys that decide; none after [`RequestKeys::give_up`] or too many ids.
    pub fn keys(&self) -> &[DeviceKey] {
        if self.decides { &self.keys } else { &[] }
    }

    /// The decision of the strategy at `index`, not counted.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn decide(&self, catalog: &Catalog, index: usize) -> Decision {
        if self.decides {
            catalog.decide_uncounted(index, &self.keys)
        } else {
            catalog.strategies()[index].when_unavailable()
        }
    }
}

/// Decider of one request.
#[derive(Debug)]
pub struct Live<'a> {
    catalog: &'a Catalog,
    served: &'a ServedPlatform,
    reader: &'a IdReader,
    request_keys: RequestKeys,
}

impl<'a> Live<'a> {
    /// A decider that looks up ids.
    #[inline]
    pub fn new(catalog: &'a Catalog, served: &'a ServedPlatform, reader: &'a IdReader) -> Self {
        Self { catalog, served, reader, request_keys: RequestKeys::default() }
    }

    /// Whether one more id may be read. Too many ids are counted once.
    #[inline]
    fn accepts_id(&mut self) -> bool {
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
        if self.accepts_id()
            && let Some(key) = self.reader.key(id.field, id.value)
        {
            self.request_keys.keep(key);
        }
    }

    #[inline]
    fn doubtful(&mut self, id: Id<'_>) {
        if self.accepts_id() {
            self.reader.doubtful(id.field);
        }
    }

    fn report_failure(&mut self, failure: Failure) {
        self.served.count_failure(failure);
    }

    #[inline]
    fn decide(&mut self, strategy: usize) -> Decision {
        let decision = self.request_keys.decide(self.catalog, strategy);
        self.served.count(strategy, decision);
        decision
    }

    fn give_up(&mut self) {
        self.request_keys.give_up();
    }
}
