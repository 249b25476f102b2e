//! Caps of the strategies that a pod serves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cap::{Cap, CapTables};
use crate::strategy::{Decision, Reason};
use rtad_core::device::DeviceKey;

/// The caps by index of the strategy, each with its tables at the time of the catalog: requests
/// need no second atomic pointer.
#[derive(Debug)]
pub struct ServedCaps {
    caps: Vec<Option<ServedCap>>,
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
    pub(super) fn new(caps: Vec<Option<Arc<Cap>>>) -> Self {
        Self {
            caps: caps
                .into_iter()
                .map(|cap| cap.map(ServedCap::new))
                .collect(),
        }
    }

    /// The caps with their current tables.
    pub(super) fn renewed(&self) -> Self {
        let cap = |served: &Option<ServedCap>| Some(Arc::clone(&served.as_ref()?.cap));
        Self::new(self.caps.iter().map(cap).collect())
    }

    /// Begins to read the memory that [`Self::admit`] reads, beside other work.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn prefetch(&self, index: usize, keys: &[DeviceKey], at: Instant) {
        if let Some(cap) = &self.caps[index] {
            let _ = cap.tables.seek(keys, at);
        }
    }

    /// The refusal of the strategy's cap, if it does not admit the device; counts the device.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn admit(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let cap = self.caps[index].as_ref()?;
        if cap.tables.seek(keys, at).admit() {
            return None;
        }
        Some(cap.tables.refusal(at))
    }

    /// [`Self::admit`] without counting the device.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    pub fn would_refuse(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let cap = self.caps[index].as_ref()?;
        if cap.tables.would_admit(keys, at) {
            return None;
        }
        Some(cap.tables.refusal(at))
    }

    /// The decision of the strategy's cap about a device at the time `at`, without counting it: a
    /// bid if it admits the device; `None` without a cap.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    pub fn verdict(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let ServedCap { tables, .. } = self.caps[index].as_ref()?;
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
        Some(self.caps[index].as_ref()?.tables.ends_in(at))
    }

    /// The caps, in the config's order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cap>> {
        self.caps.iter().flatten().map(|served| &served.cap)
    }

    /// Finds the cap of a strategy by its name.
    pub fn named(&self, strategy: &str) -> Option<&Arc<Cap>> {
        self.iter().find(|cap| cap.strategy() == strategy)
    }

    /// Whether every cap has its current tables.
    pub fn are_current(&self) -> bool {
        self.caps
            .iter()
            .flatten()
            .all(|served| Arc::ptr_eq(&served.tables, &served.cap.tables()))
    }
}
