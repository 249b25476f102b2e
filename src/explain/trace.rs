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
    pub path: String,
    pub field: IdField,
    pub value: String,
    pub found: IdResult,
    pub key: Option<DeviceKey>,
    /// The device in the decision log, if each id of the request is a device of its own.
    pub log_device: Option<String>,
}

/// Another field of the request.
#[derive(Debug, serde::Serialize)]
pub struct Note {
    pub what: &'static str,
    pub value: String,
}

/// The contents of a request.
pub struct Trace {
    pub keys: RequestKeys,
    pub ids: Vec<TracedId>,
    /// The requested strategy ids, and the indexes of the configured strategies; empty if the
    /// request names none.
    pub asked: Vec<(String, Option<usize>)>,
    pub notes: Vec<Note>,
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
    pub fn note(&mut self, what: &'static str, value: String) {
        self.notes.push(Note { what, value });
    }

    /// Notes how many ids and strategies are not listed, if any.
    pub fn note_unlisted(&mut self, unlisted: usize) {
        if unlisted > 0 {
            let what = "ids and strategies that are not listed";
            self.note(what, unlisted.to_string());
        }
    }

    /// The contents of a request, whose ids are not counted.
    pub fn of(read: &Read<'_>, reader: &IdReader) -> Self {
        let mut trace = Self::empty();
        let ids = &mut trace.ids;
        trace.keys.add(
            read,
            |field, value| reader.key_uncounted(field, value),
            |id, found, key| {
                if ids.len() < MAX_LISTED {
                    ids.push(TracedId {
                        path: id.path.to_owned(),
                        field: id.field,
                        value: id.value.to_string(),
                        found,
                        key,
                        log_device: None,
                    });
                }
            },
        );

        let mut unlisted = read.ids.len() - trace.ids.len();
        if !read.asked.is_all() {
            for asked in read.asked.iter().take(MAX_LISTED) {
                let strategy = asked.known.map(|known| known.strategy);
                trace.asked.push((asked.id.to_string(), strategy));
            }
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
