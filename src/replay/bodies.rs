//! Facts of logged bodies in given snapshots: what rows cannot answer about other audiences.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use rtad_log::{LogRow, LoggedFacts, LookedUpIds};

use crate::catalog::{Catalog, RequestKeys};
use crate::http::api;
use crate::log::{API, audiences};
use crate::platform::{Admission, IdReader, Purpose, Read, RequestHead};

/// Snapshots, and a reader of ids.
#[derive(Debug)]
pub struct Snapshots {
    catalog: Arc<Catalog>,
    reader: IdReader,
}

impl Snapshots {
    /// The snapshots of a catalog.
    pub const fn new(catalog: Arc<Catalog>, reader: IdReader) -> Self {
        Self { catalog, reader }
    }

    /// The facts of a row, with its device's memberships in these snapshots; `None` without a body
    /// that can be read.
    pub(super) fn facts<'f>(
        &'f self,
        row: &'f LogRow<'_>,
        facts: &'f LoggedFacts<'_>,
    ) -> Option<LoggedFacts<'f>> {
        let raw = row.end.raw?;
        let keys = match row.end.platform {
            API => {
                let request = api::decode(raw.body, &self.reader, self.catalog.has_sha1()).ok()?;
                RequestKeys::of(request.keys, request.units)
            }
            platform => self.keys(platform, raw.query, raw.body)?,
        };
        let ids = match keys.keys().is_empty() {
            _ if keys.has_too_many_ids() => LookedUpIds::TooMany,
            true => LookedUpIds::None,
            false => LookedUpIds::All,
        };
        Some(LoggedFacts {
            request_id: facts.request_id,
            device: facts.device,
            ids,
            attributes: facts.attributes,
            asked: facts
                .asked
                .as_ref()
                .map(|asked| asked.iter().copied().collect()),
            audiences: audiences(&self.catalog, &keys).collect(),
            experiments: facts.experiments.iter().copied().collect(),
            decisions: facts.decisions.iter().copied().collect(),
        })
    }

    /// The keys of a platform's body.
    fn keys(&self, platform: &str, query: Option<&str>, body: &[u8]) -> Option<RequestKeys> {
        let served = self.catalog.platform_named(platform)?;
        let (headers, body) = (HeaderMap::new(), Ok(Bytes::copy_from_slice(body)));
        let head = RequestHead {
            headers: &headers,
            query,
        };
        let (mut read, mut found) = (Read::default(), None);
        served
            .platform
            .respond(Admission::Granted, head, &body, &mut read, |read, _| {
                if read.purpose != Purpose::Fallback {
                    let mut keys = RequestKeys::new(&self.catalog);
                    let key = |field, id: &[u8]| self.reader.key_uncounted(field, id);
                    keys.add(read, key, |_, _, _| {});
                    found = Some(keys);
                }
            });
        found
    }
}
