//! Sources of explanations: the catalog, ids, polls, and the names of devices in the decision log.

use crate::catalog::{Catalog, RequestKeys};
use crate::log::LogKey;
use crate::platform::IdReader;
use crate::sync::SyncHistory;

/// Sources of explanations.
#[derive(Debug, Clone, Copy)]
pub struct Explainer<'a> {
    /// The audiences, strategies and platforms that decide.
    pub catalog: &'a Catalog,
    /// Reads ids into keys, and counts none.
    pub ids: &'a IdReader,
    /// Polls of the audiences.
    pub history: &'a SyncHistory,
    /// The secret that names devices in the decision log; `None` without a log.
    pub log_key: Option<&'a LogKey>,
}

impl Explainer<'_> {
    /// The device of these keys as the decision log names it, in hex; `None` without a log or a
    /// usable id.
    pub(super) fn log_device(&self, keys: &RequestKeys) -> Option<String> {
        let name = self.log_key?.name(keys.device()?);
        Some(const_hex::encode(name.hmac))
    }
}
