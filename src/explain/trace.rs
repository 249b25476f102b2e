//! A decider that records a request's ids with their results, its other fields, and the decisions.
//!
//! It reads ids and decides as [`crate::catalog::Live`] does, with the same limits of ids, and
//! counts nothing.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::catalog::{Capacity, Catalog, Kept, RequestKeys};
use crate::platform::{Decider, Failure, Id, IdReader, MAX_IDS, UNREADABLE};
use crate::strategy::Decision;
use rtad_core::device::{DeviceKey, IdField, Unusable};

/// Longest list of ids, notes or strategies in an explanation.
const MAX_LISTED: usize = 256;
/// Label of the note about an id whose type the config does not map.
const SKIPPED: &str = "id skipped";

/// The result of reading an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub(super) enum Found {
    /// Its key is checked.
    Usable,
    /// A placeholder for "no id".
    Blank,
    /// Invalid for its kind.
    Malformed,
    /// Marked as unreliable by the platform.
    Doubtful,
    /// Same key as an earlier id.
    Duplicate,
    /// Beyond a limit of ids.
    NotLookedAt,
}

/// An id that the request carries.
pub(super) struct TracedId {
    pub(super) path: String,
    pub(super) field: &'static IdField,
    pub(super) value: String,
    pub(super) found: Found,
    pub(super) key: Option<DeviceKey>,
}

/// Another field of the request.
#[derive(Debug, serde::Serialize)]
pub(super) struct Note {
    pub(super) what: &'static str,
    pub(super) value: String,
}

/// One request's decider.
pub(super) struct Trace<'a> {
    catalog: &'a Catalog,
    reader: &'a IdReader,
    pub(super) request_keys: RequestKeys,
    pub(super) ids: Vec<TracedId>,
    pub(super) notes: Vec<Note>,
    /// The decoder's message about an unreadable body.
    pub(super) unreadable: Option<String>,
    /// The requested strategy ids, and the indexes of the configured ones.
    pub(super) asked: Vec<(String, Option<usize>)>,
    /// By index of the strategy.
    pub(super) decisions: Vec<Option<Decision>>,
    pub(super) too_many_ids: bool,
    /// Number of entries beyond [`MAX_LISTED`].
    unlisted: usize,
    at: Instant,
}

impl<'a> Trace<'a> {
    pub(super) fn new(catalog: &'a Catalog, reader: &'a IdReader) -> Self {
        Self {
            catalog,
            reader,
            request_keys: RequestKeys::default(),
            ids: Vec::new(),
            notes: Vec::new(),
            unreadable: None,
            asked: Vec::new(),
            decisions: vec![None; catalog.strategies().len()],
            too_many_ids: false,
            unlisted: 0,
            at: Instant::now(),
        }
    }

    /// The request's other fields, in the order of reading.
    pub(super) fn notes(&mut self) -> Vec<Note> {
        let mut notes = std::mem::take(&mut self.notes);
        if self.unlisted > 0 {
            notes.push(Note {
                what: "ids, strategies and notes that are not listed",
                value: self.unlisted.to_string(),
            });
        }
        notes
    }

    fn record(&mut self, id: Id<'_>, read: impl FnOnce(&mut Self) -> (Found, Option<DeviceKey>)) {
        let capacity = self.request_keys.capacity();
        self.too_many_ids |= capacity == Capacity::Exceeded;
        let (found, key) =
            if capacity == Capacity::Available { read(self) } else { (Found::NotLookedAt, None) };
        if self.ids.len() == MAX_LISTED {
            self.unlisted += 1;
            return;
        }
        self.ids.push(TracedId {
            path: id.path.to_owned(),
            field: &IdField::ALL[id.field],
            value: String::from_utf8_lossy(id.value).into_owned(),
            found,
            key,
        });
    }
}

impl Decider for Trace<'_> {
    fn id(&mut self, id: Id<'_>) {
        self.record(id, |trace| match trace.reader.key_uncounted(id.field, id.value) {
            Ok(key) => match trace.request_keys.keep(key) {
                Kept::New => (Found::Usable, Some(key)),
                Kept::Duplicate => (Found::Duplicate, Some(key)),
                Kept::Exceeded => {
                    trace.too_many_ids = true;
                    (Found::NotLookedAt, None)
                }
            },
            Err(Unusable::Blank) => (Found::Blank, None),
            Err(Unusable::Malformed) => (Found::Malformed, None),
        });
    }

    fn doubtful(&mut self, id: Id<'_>) {
        self.record(id, |_| (Found::Doubtful, None));
    }

    fn wants_skipped(&self) -> bool {
        true
    }

    fn skipped(&mut self, path: &str, why: &dyn Display) {
        // A body may hold thousands; `MAX_IDS` of them are enough to see the mistake.
        if self.notes.iter().filter(|note| note.what == SKIPPED).count() < MAX_IDS {
            self.notes.push(Note { what: SKIPPED, value: format!("{path}: {why}") });
        }
    }

    fn note(&mut self, what: &'static str, value: &dyn Display) {
        if what == UNREADABLE {
            self.unreadable = Some(value.to_string());
        } else if self.notes.len() >= MAX_LISTED {
            self.unlisted += 1;
        } else {
            self.notes.push(Note { what, value: value.to_string() });
        }
    }

    fn requested_strategy(&mut self, id: &dyn Display, strategy: Option<usize>) {
        if self.asked.len() == MAX_LISTED {
            self.unlisted += 1;
            return;
        }
        self.asked.push((id.to_string(), strategy));
    }

    fn report_failure(&mut self, failure: Failure) {
        self.notes.push(Note { what: "signature", value: failure.as_str().to_owned() });
    }

    fn decide(&mut self, strategy: usize) -> Decision {
        let (keys, catalog) = (&self.request_keys, self.catalog);
        let decision = keys.decide(catalog, strategy);
        let decision = catalog.within_cap_uncounted(strategy, decision, keys.keys(), self.at);
        self.decisions[strategy] = Some(decision);
        decision
    }

    fn cap_ends_in(&self, strategy: usize) -> Option<Duration> {
        self.catalog.cap_ends_in(strategy, self.at)
    }

    fn give_up(&mut self) {
        self.request_keys.give_up();
    }
}
