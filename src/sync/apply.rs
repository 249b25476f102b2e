//! Application of a plan: the changes to the served snapshot, in the order in which files are read.
//!
//! 1. The record restricts the served snapshot at once: a disable or an expiry needs no file.
//! 2. The small files are read: the manifest, tombstones and deltas. Each read has a deadline. They
//!    apply to the served generation. If they cannot be read, the tombstones apply alone.
//! 3. The chunks of a new generation are loaded, for as long as it takes. Meanwhile the record and
//!    its deltas are read at the poll interval, and applied. While refused chunks are backed off,
//!    this step is omitted.

use std::sync::Arc;

use parking_lot::Mutex;

use super::error::SyncError;
use super::pace::Pace;
use super::plan::Plan;
use super::progress::{Progress, RefusedPart};
use super::state::Syncer;
use crate::catalog::Audience;
use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::{AudienceName, Current, Manifest, Newer, Overlay, Snapshot, State};

/// Outcome of a poll that did not fail.
#[derive(Debug)]
pub(super) enum Polled {
    Unchanged,
    /// The record was refused before, for this cause, and is still backed off.
    Skipped(&'static str),
    /// A snapshot to serve.
    Loaded(Arc<Snapshot>),
}

/// A generation whose chunks are being loaded. Newer records may come during the load.
///
/// The swap at the end of the load replaces the served overlay with this one. So whatever a newer
/// record changes in the served one, a restriction, tombstones or deltas, changes here in the same
/// step: an `await` in between may be the end of the load, which then undoes erasures.
struct Loading {
    /// Size of the generation's chunks.
    chunk_bytes: u64,
    /// The newest record whose deltas are in `overlay`: it is accepted with the generation.
    applied: Current,
    overlay: Overlay,
}

/// The small files of a generation.
struct SmallFiles {
    manifest: Manifest,
    manifest_file: Vec<u8>,
    overlay: Overlay,
}

/// A snapshot, and the record that it is the whole of.
struct Loaded {
    current: Current,
    snapshot: Snapshot,
}

impl Syncer {
    /// Does the work of a plan for `current`. An accepted snapshot is committed to the cache. Takes
    /// the audience by value: the chunks that a new generation replaces must be freed. Returns
    /// `None` if the store changed to another generation during the load.
    pub(super) async fn apply(
        &self,
        plan: Plan,
        audience: Audience,
        current: Current,
        progress: &mut Progress,
    ) -> Result<Option<Polled>, SyncError> {
        let Audience {
            name,
            snapshot: held,
            ..
        } = audience;
        if plan == Plan::Nothing {
            return Ok(Some(Polled::Unchanged));
        }
        self.restrict(&name, &current);
        let mut part = RefusedPart::Files;
        let loaded = match (plan, held) {
            (Plan::Refused(cause), _) => {
                progress.count_skipped();
                return Ok(Some(Polled::Skipped(cause)));
            }
            (Plan::RefusedChunks(cause), held) => {
                drop(held);
                progress.count_skipped();
                self.apply_small_files(&name, &current).await?;
                progress.record_deltas(&current);
                return Ok(Some(Polled::Skipped(cause)));
            }
            // The held snapshot stays loaded but unavailable: a build after a mistaken deletion
            // can share its chunks. The cache keeps the deletion: a start without the store must
            // not serve the audience again.
            (Plan::Delete, Some(held)) => {
                let overlay = Overlay::over(held.overlay(), Newer::Current(&current));
                let snapshot = held.with_overlay(overlay);
                Ok(Some(Loaded {
                    current: current.clone(),
                    snapshot,
                }))
            }
            (Plan::Deltas, Some(held)) => self.with_deltas(&name, &held, &current).await.map(Some),
            (_, held) => {
                drop(held);
                match self.apply_small_files(&name, &current).await {
                    Ok(files) => {
                        part = RefusedPart::Chunks;
                        self.load_chunks(&name, &current, files, progress).await
                    }
                    Err(error) => Err(error),
                }
            }
        };
        match loaded {
            Ok(None) => Ok(None),
            Ok(Some(Loaded { current, snapshot })) => {
                progress.accept(&current);
                if let Some(cache) = &self.cache {
                    cache.prune(&name).await;
                }
                Ok(Some(Polled::Loaded(Arc::new(snapshot))))
            }
            Err(error) => {
                // Any other error is the store's: the next poll tries again.
                if error.is_refusal() {
                    progress.refuse(current, part, error.cause());
                }
                Err(error)
            }
        }
    }

    /// Applies the state and the end of validity of `current` before its deltas are read, which may
    /// fail. Never makes the audience available: that takes the deltas.
    fn restrict(&self, name: &AudienceName, current: &Current) {
        let Some(held) = self.served(name) else {
            return;
        };
        let overlay = Overlay::over(held.overlay(), Newer::Current(current));
        if overlay.validity() == held.overlay().validity() {
            return;
        }
        drop(held);
        self.update(name, |held| held.with_overlay(overlay.clone()));
    }

    /// Applies the tombstones of a `current` whose other files cannot be read, or are refused.
    async fn apply_tombstones(&self, name: &AudienceName, current: &Current) {
        let Some(held) = self.served(name).map(|held| held.overlay().clone()) else {
            return;
        };
        if let Some(newer) = self.newer_tombstones(name, &held, current).await {
            self.serve_newer(name, &newer);
        }
    }

    /// The tombstones of `current`, unless `held` has the same ones, or they cannot be read.
    async fn newer_tombstones(
        &self,
        name: &AudienceName,
        held: &Overlay,
        current: &Current,
    ) -> Option<Newer<'static>> {
        let entry = current.tombstones.as_ref();
        let size_bytes = entry.map_or(0, |entry| entry.size_bytes());
        let is_same = held.tombstones().map(|delta| delta.entry()) == entry;
        if is_same || size_bytes > self.settings().max_snapshot_bytes {
            return None;
        }

        let loader = self.loader();
        let read = loader.tombstones(name, Some(held), current);
        let tombstones = loader
            .within(size_bytes, format!("{name}/deltas"), read)
            .await;
        tombstones.ok().map(Newer::Tombstones)
    }

    /// Applies a part of a newer record to the served overlay, if there is one.
    fn serve_newer(&self, name: &AudienceName, newer: &Newer<'_>) {
        self.update(name, |held| {
            held.with_overlay(Overlay::over(held.overlay(), newer.clone()))
        });
    }

    /// The held generation with the deltas of `current`.
    async fn with_deltas(
        &self,
        name: &AudienceName,
        held: &Snapshot,
        current: &Current,
    ) -> Result<Loaded, SyncError> {
        let loader = self.loader();
        let read = async {
            loader.check(held.manifest(), current)?;
            loader.overlay(name, Some(held.overlay()), current).await
        };
        match read.await {
            Ok(overlay) => Ok(Loaded {
                current: current.clone(),
                snapshot: held.with_overlay(overlay),
            }),
            Err(error) => {
                self.apply_tombstones(name, current).await;
                Err(error)
            }
        }
    }

    /// The small files of a new generation, served over the old one already: its changes apply even
    /// if its chunks cannot be loaded.
    async fn apply_small_files(
        &self,
        name: &AudienceName,
        current: &Current,
    ) -> Result<SmallFiles, SyncError> {
        let held = self.served(name).map(|held| held.overlay().clone());
        match self.small_files(name, held.as_ref(), current).await {
            Ok(files) => {
                self.serve_newer(name, &Newer::Deltas(files.overlay.clone()));
                self.prune_served(name).await;
                Ok(files)
            }
            Err(error) => {
                self.apply_tombstones(name, current).await;
                Err(error)
            }
        }
    }

    /// The generation that `current` names, with the record that was read last; `None` if that
    /// one names another generation.
    async fn load_chunks(
        &self,
        name: &AudienceName,
        current: &Current,
        files: SmallFiles,
        progress: &mut Progress,
    ) -> Result<Option<Loaded>, SyncError> {
        let SmallFiles {
            manifest,
            manifest_file,
            overlay,
        } = files;
        let shared = Mutex::new(Loading {
            chunk_bytes: manifest.size_bytes(),
            applied: current.clone(),
            overlay,
        });
        let held = self.served(name);
        let load = async {
            match held {
                Some(held) if self.rolls() => self.roll(name, held, manifest, manifest_file).await,
                held => {
                    self.loader()
                        .load(held.as_deref(), manifest, manifest_file)
                        .await
                }
            }
        };
        let loaded = tokio::select! {
            biased;
            loaded = load => loaded.map(Some),
            () = self.follow(name, &shared, progress) => Ok(None),
        };
        let Loading {
            applied, overlay, ..
        } = shared.into_inner();
        let snapshot = loaded?.map(|snapshot| snapshot.with_overlay(overlay));
        Ok(snapshot.map(|snapshot| Loaded {
            current: applied,
            snapshot,
        }))
    }

    /// The manifest and the deltas of a new generation. Deltas of a refused one are not read.
    async fn small_files(
        &self,
        name: &AudienceName,
        held: Option<&Overlay>,
        current: &Current,
    ) -> Result<SmallFiles, SyncError> {
        let loader = self.loader();
        let read = async { Ok(self.stores.manifest_and_file(name, current).await?) };
        let (manifest, manifest_file) = loader
            .within(
                current.manifest_size_bytes,
                format!("{name}/manifests"),
                read,
            )
            .await?;
        loader.check(&manifest, current)?;
        let overlay = loader.overlay(name, held, current).await?;
        Ok(SmallFiles {
            manifest,
            manifest_file,
            overlay,
        })
    }

    /// Removes cached files that the served snapshot needs no more, if there is one.
    async fn prune_served(&self, name: &AudienceName) {
        if self.served(name).is_some()
            && let Some(cache) = &self.cache
        {
            cache.prune(name).await;
        }
    }

    /// Follows the record while its generation is loaded. Returns when it names another one.
    async fn follow(&self, name: &AudienceName, shared: &Mutex<Loading>, progress: &mut Progress) {
        let mut live = progress.live.clone();
        loop {
            tokio::time::sleep(Pace::default().delay(self.settings().poll_interval)).await;
            let known = progress.newest().map(Current::position);
            match self.read_current(name, live.as_ref(), known).await {
                // An older copy is no reason to forget what to ask for next.
                Ok(Some(read)) if Some(read.current.position()) < known => continue,
                Ok(read) => live = read,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(
                        audience = name.as_str(),
                        error,
                        "records not read during a load"
                    );
                    continue;
                }
            }
            let Some(current) = live.as_ref().map(|live| &live.current) else {
                continue;
            };
            if progress.is_stale(current) || *current == shared.lock().applied {
                continue;
            }
            progress.see(current);

            let overlay = {
                let mut loading = shared.lock();
                self.restrict(name, current);
                let is_other_generation =
                    current.manifest_sha256 != loading.applied.manifest_sha256;
                if current.state == State::Deleted || is_other_generation {
                    return;
                }
                loading.overlay = Overlay::over(&loading.overlay, Newer::Current(current));
                loading.overlay.clone()
            };

            let loader = self.loader();
            let chunk_bytes = shared.lock().chunk_bytes;
            let read = async {
                loader.check_size(chunk_bytes, current)?;
                loader.overlay(name, Some(&overlay), current).await
            };
            match read.await {
                Ok(newer) => {
                    self.serve_newer(name, &Newer::Deltas(newer.clone()));
                    {
                        let mut loading = shared.lock();
                        loading.applied = current.clone();
                        loading.overlay = newer;
                    }
                    self.prune_served(name).await;
                }
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(
                        audience = name.as_str(),
                        error,
                        "deltas not read during a load"
                    );
                    if let Some(newer) = self.newer_tombstones(name, &overlay, current).await {
                        self.serve_newer(name, &newer);
                        let mut loading = shared.lock();
                        loading.overlay = Overlay::over(&loading.overlay, newer);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
