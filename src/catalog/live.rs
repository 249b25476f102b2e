//! Decider of platform requests: turns ids into keys, evaluates strategies, and counts both.

use std::time::{Duration, Instant};

use super::served::{Catalog, ServedPlatform};
use crate::platform::{Decider, Failure, Id, IdReader, Keys, MAX_READ_IDS};
use crate::strategy::Decision;
use rtad_core::device::DeviceKey;

/// Keys of one request, within the limits of ids. Used by serving and by `explain`.
#[derive(Debug)]
pub struct RequestKeys {
    /// Distinct keys.
    keys: Keys,
    /// Ids in the request, usable or not.
    ids: usize,
    coverage: Coverage,
}

/// The part of a request's ids that the keys stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coverage {
    /// All.
    Complete,
    /// The first ones. An unread id might be a member, so the keys can prove membership only.
    TooMany,
    /// The request was given up, so the keys do not count.
    GivenUp,
}

/// Capacity of a request for one more id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// The id may be read.
    Available,
    /// The id exceeds the limit.
    Exceeded,
    /// An earlier id exceeded a limit, or the request was given up.
    Exhausted,
}

/// The result of keeping a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is looked up.
    New,
    /// It was kept before.
    Duplicate,
    /// It exceeds the limit, and is not looked up.
    Exceeded,
}

impl Default for RequestKeys {
    #[inline]
    fn default() -> Self {
        Self { keys: Keys::new(), ids: 0, coverage: Coverage::Complete }
    }
}

impl RequestKeys {
    /// Counts one more id. Only an `Available` one may be kept.
    #[inline]
    pub fn capacity(&mut self) -> Capacity {
        self.ids += 1;
        if self.coverage != Coverage::Complete {
            Capacity::Exhausted
        } else if self.ids > MAX_READ_IDS {
            self.coverage = Coverage::TooMany;
            Capacity::Exceeded
        } else {
            Capacity::Available
        }
    }

    /// Keeps the key of an id.
    #[inline]
    pub fn keep(&mut self, key: DeviceKey) -> Kept {
        if self.keys.contains(&key) {
            Kept::Duplicate
        } else if self.keys.try_push(key).is_ok() {
            Kept::New
        } else {
            self.coverage = Coverage::TooMany;
            Kept::Exceeded
        }
    }

    /// Makes every later decision `unavailable`.
    pub const fn give_up(&mut self) {
        self.coverage = Coverage::GivenUp;
    }

    /// The keys that are looked up; none after [`RequestKeys::give_up`].
    pub fn keys(&self) -> &[DeviceKey] {
        if self.coverage == Coverage::GivenUp { &[] } else { &self.keys }
    }

    /// The decision of the strategy at `index`, before its cap and not counted.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn decide(&self, catalog: &Catalog, index: usize) -> Decision {
        match self.coverage {
            Coverage::Complete => catalog.decide_uncounted(index, &self.keys),
            Coverage::TooMany => catalog.decide_incomplete(index, &self.keys),
            Coverage::GivenUp => catalog.strategies()[index].when_unavailable(),
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
    at: Instant,
}

impl<'a> Live<'a> {
    /// A decider that looks up ids, for a request of the time `at`.
    #[inline]
    pub fn new(
        catalog: &'a Catalog,
        served: &'a ServedPlatform,
        reader: &'a IdReader,
        at: Instant,
    ) -> Self {
        Self { catalog, served, reader, request_keys: RequestKeys::default(), at }
    }

    /// Counts one more id, and reads it within the limits. Too many ids are counted once.
    #[inline]
    fn take(&mut self, read: impl FnOnce(&IdReader) -> Option<DeviceKey>) {
        let exceeds = match self.request_keys.capacity() {
            Capacity::Available => {
                let key = read(self.reader);
                key.is_some_and(|key| self.request_keys.keep(key) == Kept::Exceeded)
            }
            Capacity::Exceeded => true,
            Capacity::Exhausted => false,
        };
        if exceeds {
            self.served.count_failure(Failure::TooManyIds);
        }
    }
}

impl Decider for Live<'_> {
    #[inline]
    fn id(&mut self, id: Id<'_>) {
        self.take(|reader| reader.key(id.field, id.value));
    }

    #[inline]
    fn doubtful(&mut self, id: Id<'_>) {
        self.take(|reader| {
            reader.doubtful(id.field);
            None
        });
    }

    fn report_failure(&mut self, failure: Failure) {
        self.served.count_failure(failure);
    }

    #[inline]
    fn decide(&mut self, strategy: usize) -> Decision {
        let (keys, catalog) = (&self.request_keys, self.catalog);
        let decide = || keys.decide(catalog, strategy);
        let decision = catalog.within_cap(strategy, keys.keys(), self.at, decide);
        self.served.count(strategy, decision);
        decision
    }

    #[inline]
    fn cap_ends_in(&self, strategy: usize) -> Option<Duration> {
        self.catalog.cap_ends_in(strategy, self.at)
    }

    fn give_up(&mut self) {
        self.request_keys.give_up();
    }
}
