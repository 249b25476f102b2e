//! The ids of a request with their results, and its other fields, as texts.

use crate::catalog::{IdResult, RequestKeys};
use crate::platform::{IdReader, Read};
use crate::strategy::Attribute;
use rtad_core::device::{DeviceKey, IdField};

/// Longest list of ids or strategies in an explanation.
pub const MAX_LISTED: usize = 256;

/// The note of an id whose type the config does not map.
pub const ID_SKIPPED: &str = "id skipped";

/// An id that the request carries.
pub struct TracedId {
    pub(super) path: String,
    pub(super) field: IdField,
    pub(super) value: String,
    pub(super) found: IdResult,
    pub(super) key: Option<DeviceKey>,
    /// The device in the decision log, if each id of the request is a device of its own.
    pub(super) log_device: Option<String>,
}

/// Another field of the request.
#[derive(Debug, serde::Serialize)]
pub(super) struct Note {
    pub(super) what: &'static str,
    pub(super) value: String,
}

/// The contents of a request.
pub struct Trace {
    pub(super) keys: RequestKeys,
    pub(super) ids: Vec<TracedId>,
    /// The requested strategy ids, and the indexes of the configured strategies; empty if the
    /// request names none.
    pub(super) asked: Vec<(String, Option<usize>)>,
    pub(super) notes: Vec<Note>,
}

impl Trace {
    /// No contents.
    pub fn empty() -> Self {
        Self {
            keys: RequestKeys::new(true),
            ids: Vec::new(),
            asked: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds another field.
    pub(super) fn note(&mut self, what: &'static str, value: String) {
        self.notes.push(Note { what, value });
    }

    /// Notes how many ids and strategies are not listed, if any.
    pub(super) fn note_unlisted(&mut self, unlisted: usize) {
        if unlisted > 0 {
            let what = "ids and strategies that are not listed";
            self.note(what, unlisted.to_string());
        }
    }

    /// The contents of a request, whose ids are not counted.
    pub fn of(read: &Read<'_>, reader: &IdReader) -> Self {
        let mut trace = Self::empty();
        let (keys, ids) = (&mut trace.keys, &mut trace.ids);
        let key = |field, value: &[u8]| reader.key_uncounted(field, value);
        keys.add(read, key, |id, found, key| {
            if ids.len() < MAX_LISTED {
                let (path, value) = (id.path.to_owned(), id.value.to_string());
                ids.push(TracedId {
                    path,
                    field: id.field,
                    value,
                    found,
                    key,
                    log_device: None,
                });
            }
        });
        let mut unlisted = read.ids.len() - trace.ids.len();
        if !read.asked.is_all() {
            let asked = read.asked.iter().take(MAX_LISTED);
            trace.asked = asked
                .map(|asked| {
                    (
                        asked.id.to_string(),
                        asked.known.map(|known| known.strategy),
                    )
                })
                .collect();
            unlisted += read.asked.iter().len() - trace.asked.len();
        }
        if !read.request_id.is_absent() {
            trace.note("request_id", read.request_id.to_string());
        }
        for one in &read.notes {
            trace.note(one.name, one.value.to_string());
        }
        for (attribute, value) in Attribute::ALL.into_iter().zip(&read.attributes) {
            if !value.is_absent() {
                trace.note(attribute.as_str(), value.to_string());
            }
        }
        if let Some(failure) = read.observed {
            trace.note("signature", failure.as_str().to_owned());
        }
        for skipped in &read.skipped {
            trace.note(ID_SKIPPED, skipped.to_string());
        }
        trace.note_unlisted(unlisted);
        trace
    }
}
