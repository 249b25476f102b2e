//! An audience that follows a window: its only writer.
//!
//! Changes are written as deltas. The whole audience is published as a new generation at the start,
//! after failures, at midnight for days, and when the deltas have outgrown the generation.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{BuildReport, BuiltChunk, ManifestBuilder, chunk_runs, shards_per_chunk};
use rtad_http::error_chain::error_chain;
use rtad_store::StoreError;
use rtad_store::write::{Change, Ledger, StoreWriter};

use super::super::super::expiry_args::ExpiryArgs;
use super::super::super::new_manifest::new_manifest;
use super::config::AudienceConfig;
use super::counters::AudienceCounters;
use super::reports::{Due, Reports};
use super::served::ServedWindow;

/// Keys in deltas beyond which the audience becomes a new generation, if it has fewer keys itself.
const MAX_DELTA_KEYS: u64 = 200_000;
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Follower {
    pub(super) config: AudienceConfig,
    pub(super) window: Arc<ServedWindow>,
    pub(super) reports: Arc<Reports>,
    pub(super) store: StoreWriter,
    /// Shortest interval between writes.
    pub(super) every: Duration,
    pub(super) counters: AudienceCounters,
}

impl Follower {
    /// Writes until `stop`; then once more, so that pods see every acknowledged event.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut ledger = None;
        let mut generation_keys = 0;
        let mut next = Instant::now();
        loop {
            let is_stopping = *stop.borrow();
            if !is_stopping {
                tokio::select! {
                    () = self.reports.wake.notified() => {}
                    _ = stop.changed() => continue,
                    () = tokio::time::sleep(RETRY) => {}
                }
                self.update_lag();
                sleep_until(next).await;
            }
            next = Instant::now() + self.every;
            if self.window.is_fenced() {
                // The other owner writes the audience.
                return;
            }
            if let Some(due) = self.reports.take() {
                let written = match &due {
                    Due::All => self.publish().await.map(|keys| {
                        generation_keys = keys;
                        self.counters.generations.increment(1);
                        ledger = None;
                    }),
                    Due::Changes(keys) => self.append(&mut ledger, keys, generation_keys).await,
                };
                match written {
                    Ok(()) => self.reports.done(),
                    Err(error) => {
                        let audience = self.config.name.as_str();
                        let error_text = error_chain(&error);
                        tracing::warn!(audience, error = error_text, "audience not written");
                        // The ledger may be stale, or the audience deleted.
                        ledger = None;
                        self.reports.retry(match error {
                            StoreError::NotFound { .. } | StoreError::TooManyDeltas { .. } => {
                                Due::All
                            }
                            _ => due,
                        });
                        next = Instant::now() + RETRY;
                    }
                }
            }
            self.update_lag();
            if is_stopping {
                return;
            }
        }
    }

    fn update_lag(&self) {
        self.counters.lag_seconds.set(self.reports.lag().as_secs_f64());
    }

    /// Writes the changes of keys as a delta.
    async fn append(
        &self,
        ledger: &mut Option<Ledger>,
        keys: &[[u8; 16]],
        generation_keys: u64,
    ) -> Result<(), StoreError> {
        let change = self.change(keys);
        let ledger = match ledger {
            Some(ledger) => ledger,
            None => ledger.insert(self.store.ledger(&self.config.name).await?),
        };
        let appended = match ledger.append(change).await {
            // Another writer, of tombstones: once more over its state.
            Err(StoreError::Conflict { .. }) => {
                ledger.refresh().await?;
                ledger.append(self.change(keys)).await?
            }
            appended => appended?,
        };
        self.counters.writes.increment(1);
        if appended.delta_keys > MAX_DELTA_KEYS.max(generation_keys / 2) {
            self.reports.renew();
        }
        Ok(())
    }

    fn change(&self, keys: &[[u8; 16]]) -> Change {
        let mut change = Change::default();
        for (key, count) in keys.iter().zip(self.window.counts_of(keys)) {
            let key = DeviceKey::from_bytes(*key);
            if count >= self.config.min_count { change.add(key) } else { change.remove(key) }
        }
        change
    }

    /// Publishes all members as a new generation; returns their number.
    async fn publish(&self) -> Result<u64, StoreError> {
        let name = &self.config.name;
        let base = self.store.base(name).await?;
        let folded = base.folded();
        let publication = self.store.publish(base).await?;
        // Listed after the base was read: changes from here on are reported.
        let (window, min_count) = (Arc::clone(&self.window), self.config.min_count);
        let listed = tokio::task::spawn_blocking(move || {
            let mut keys = Vec::new();
            window.members(min_count, |key| keys.push(DeviceKey::from_bytes(key)));
            keys.sort_unstable();
            keys
        });
        let keys = match listed.await {
            Ok(keys) => Arc::new(keys),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        };
        let filter = self.config.filter;
        let mut manifest = ManifestBuilder::new(filter, self.config.fpr);
        let shards = shards_per_chunk(&filter, keys.len() as u64);
        let mut start = 0;
        let runs: Vec<_> = chunk_runs(&keys, shards)
            .map(|run| {
                let range = start..start + run.len();
                start = range.end;
                range
            })
            .collect();
        for run in runs {
            let keys = Arc::clone(&keys);
            let built =
                tokio::task::spawn_blocking(move || BuiltChunk::build(&filter, &keys[run])).await;
            let chunk = match built {
                Ok(chunk) => chunk,
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            };
            manifest.add(&chunk);
            publication.put_chunk(chunk).await?;
        }
        let manifest = new_manifest(
            manifest,
            name,
            publication.generation(),
            BuildReport::default(),
            folded,
            ExpiryArgs::default(),
        );
        publication.commit(&manifest).await?;
        Ok(keys.len() as u64)
    }
}
