//! Stores with the same content, such as one near and its mirror far away: the first that answers
//! is read.
//!
//! A store that fails, or lacks a file that another store's record names, is followed by the next
//! one. Reads begin with the store that answered last. The first one is tried again a minute after
//! it failed. A mirror that lags is safe: no reader goes back to an older record.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::{
    AudienceName, ChunkEntry, ChunkReader, Current, Delta, DeltaEntry, Manifest,
};
use rtad_store::{ByteSink, Live, Store, StoreError, Trust};

/// Time until the first store is tried again.
const RETRY_FIRST: Duration = Duration::from_secs(60);

/// One or more stores. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stores {
    all: Arc<[Store]>,
    /// The store that answered last, and when an earlier one failed.
    preferred: Arc<Mutex<Preferred>>,
}

#[derive(Debug)]
struct Preferred {
    index: usize,
    since: Instant,
}

impl From<Store> for Stores {
    fn from(store: Store) -> Self {
        Self::new(vec![store])
    }
}

impl Stores {
    /// Stores in the order in which they are read.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn new(stores: Vec<Store>) -> Self {
        assert!(!stores.is_empty(), "a pod has a store");
        Self {
            all: stores.into(),
            preferred: Arc::new(Mutex::new(Preferred {
                index: 0,
                since: Instant::now(),
            })),
        }
    }

    /// The public keys, which are the same for all.
    pub(super) fn trust(&self) -> &Trust {
        self.all[0].trust()
    }

    pub(super) fn stall_timeout(&self) -> Duration {
        self.all[0].stall_timeout()
    }

    /// Whether the store that is read is behind a network.
    pub(super) fn is_remote(&self) -> bool {
        self.all[self.first()].is_remote()
    }

    /// See [`Store::live_since`]. If a store has no record, or only older ones than the `known`
    /// position, the next one may have a newer one.
    pub(super) async fn live_since(
        &self,
        audience: &AudienceName,
        last: Option<&Live>,
        known: Option<(u64, u64)>,
    ) -> Result<Option<Live>, StoreError> {
        let behind = Mutex::new(None);
        let read = async |store: &Store| {
            let found = store.live_since(audience, last).await?;
            let is_behind = match &found {
                Some(found) => Some(found.current.position()) < known,
                None => true,
            };
            if is_behind && self.all.len() > 1 {
                // `read` goes on to the next store after this error.
                behind.lock().get_or_insert(found);
                return Err(StoreError::NotFound {
                    path: format!("a newer record of {audience}"),
                });
            }
            Ok(found)
        };
        match self.read(read).await {
            // No store has a newer one.
            Err(error) => behind.into_inner().ok_or(error),
            read => read,
        }
    }

    /// The live manifest: see [`Store::manifest_and_file`].
    pub(super) async fn manifest_and_file(
        &self,
        audience: &AudienceName,
        current: &Current,
    ) -> Result<(Manifest, Vec<u8>), StoreError> {
        let entry = current.live_entry();
        self.read(async |store| store.manifest_and_file(audience, &entry).await)
            .await
    }

    /// See [`Store::delta_and_file`].
    pub(super) async fn delta_and_file(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
    ) -> Result<(Delta, Vec<u8>), StoreError> {
        self.read(async |store| store.delta_and_file(audience, entry).await)
            .await
    }

    /// See [`Store::chunk_copied`]. `begin` makes the reader and the sink of each try.
    pub(super) async fn chunk_copied<R: ChunkReader, C: ByteSink>(
        &self,
        audience: &AudienceName,
        entry: &ChunkEntry,
        begin: impl Fn() -> (R, C),
    ) -> Result<(R::Verified, C), StoreError> {
        self.read(async |store| {
            let (reader, sink) = begin();
            store.chunk_copied(audience, entry, reader, sink).await
        })
        .await
    }

    /// Reads from one store after the other, until one has what is read.
    async fn read<T>(
        &self,
        read: impl AsyncFn(&Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let first = self.first();
        let mut failed = None;
        for offset in 0..self.all.len() {
            let index = (first + offset) % self.all.len();
            match read(&self.all[index]).await {
                Err(error) if may_be_elsewhere(&error) => {
                    failed.get_or_insert(error);
                }
                result => {
                    if let Some(error) = failed {
                        self.prefer(index, &error);
                    }
                    return result;
                }
            }
        }
        Err(failed.expect("there is a store"))
    }

    /// The store to read first.
    fn first(&self) -> usize {
        let preferred = self.preferred.lock();
        if preferred.since.elapsed() < RETRY_FIRST {
            preferred.index
        } else {
            0
        }
    }

    /// Records that another store answered than the one that was read first.
    fn prefer(&self, index: usize, error: &StoreError) {
        let mut preferred = self.preferred.lock();
        if preferred.index != index {
            let error = error_chain(error);
            let position = index + 1;
            let of = self.all.len();
            tracing::warn!(error, position, of, "a store failed; another one is read");
        }
        *preferred = Preferred {
            index,
            since: Instant::now(),
        };
    }
}

/// Whether another store may have what is read: after an outage, and what a lagging mirror lacks or
/// a damaged file has.
const fn may_be_elsewhere(error: &StoreError) -> bool {
    error.is_outage()
        || matches!(
            error,
            StoreError::NotFound { .. }
                | StoreError::LostRecord { .. }
                | StoreError::Signature { .. }
                | StoreError::Manifest { .. }
                | StoreError::Chunk { .. }
                | StoreError::Delta { .. }
        )
}

#[cfg(test)]
mod tests;
