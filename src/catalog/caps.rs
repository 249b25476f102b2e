//! Caps that a pod serves, and the strategies that count into them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cap::{Cap, CapTables};
use crate::strategy::{Decision, Reason, Strategy};
use rtad_core::device::DeviceKey;

/// The caps, each with its tables at the time of the catalog: requests need no second atomic
/// pointer.
#[derive(Debug)]
pub struct ServedCaps {
    caps: Vec<ServedCap>,
    /// Index of its cap, by index of the strategy.
    of_strategies: Vec<Option<usize>>,
}

#[derive(Debug)]
struct ServedCap {
    cap: Arc<Cap>,
    tables: Arc<CapTables>,
}

impl ServedCap {
    fn new(cap: Arc<Cap>) -> Self {
        Self {
            tables: cap.tables(),
            cap,
        }
    }
}

impl ServedCaps {
    pub(super) fn new(caps: Vec<Arc<Cap>>, strategies: &[Strategy]) -> Self {
        Self {
            caps: caps.into_iter().map(ServedCap::new).collect(),
            of_strategies: strategies.iter().map(|strategy| strategy.cap).collect(),
        }
    }

    /// The caps with their current tables.
    pub(super) fn renewed(&self) -> Self {
        let caps = self.iter().cloned();
        Self {
            caps: caps.map(ServedCap::new).collect(),
            of_strategies: self.of_strategies.clone(),
        }
    }

    /// The tables of a strategy's cap.
    #[inline]
    fn tables(&self, strategy: usize) -> Option<&CapTables> {
        let index = self.of_strategies[strategy]?;
        Some(&self.caps[index].tables)
    }

    /// Begins to read the memory that [`Self::admit`] reads, beside other work.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn prefetch(&self, index: usize, keys: &[DeviceKey], at: Instant) {
        if let Some(tables) = self.tables(index) {
            let _ = tables.seek(keys, at);
        }
    }

    /// The refusal of the strategy's cap, if it does not admit the device; counts the device.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn admit(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let tables = self.tables(index)?;
        if tables.seek(keys, at).admit() {
            return None;
        }
        Some(tables.refuse(at))
    }

    /// [`Self::admit`] without counting the device.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    pub fn would_refuse(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let tables = self.tables(index)?;
        if tables.would_admit(keys, at) {
            return None;
        }
        Some(tables.refusal(at))
    }

    /// The decision of the strategy's cap about a device at the time `at`, without counting it: a
    /// bid if it admits the device; `None` without a cap.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    pub fn verdict(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let tables = self.tables(index)?;
        let is_admitted = tables.would_admit(keys, at);
        Some(if is_admitted {
            Decision::bid(Reason::Rule)
        } else {
            tables.refusal(at)
        })
    }

    /// Time from `at` until the strategy's cap counts anew; `None` without a cap.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub(super) fn ends_in(&self, index: usize, at: Instant) -> Option<Duration> {
        Some(self.tables(index)?.ends_in(at))
    }

    /// The caps, in the config's order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cap>> {
        self.caps.iter().map(|served| &served.cap)
    }

    /// Finds a cap by its name.
    pub fn named(&self, name: &str) -> Option<&Arc<Cap>> {
        self.iter().find(|cap| cap.name() == name)
    }

    /// The cap at `index`.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn at(&self, index: usize) -> &Cap {
        &self.caps[index].cap
    }

    /// Whether every cap has its current tables.
    pub fn are_current(&self) -> bool {
        self.caps
            .iter()
            .all(|served| Arc::ptr_eq(&served.tables, &served.cap.tables()))
    }
}
