//! Quotas: a number of devices that pods share, one part each. The sum of the parts never exceeds
//! the limit.
//!
//! ```text
//! {store}/.caps/{cap}/{period}/records/{number}.json   the sum; pod and amount of this record
//! ```
//!
//! * A pod takes devices by the record that it creates with a larger sum, and gives them back by
//!   one with a smaller sum. Who loses the race for a number goes on from the winner's record.
//! * The answer to a create may be lost, and its put may arrive late. So the pod repeats it, with
//!   the same bytes under the same number, until it knows whose record that is. Until then it
//!   writes nothing else of the quota, and does not use the devices.
//! * What a killed pod had taken stays taken.
//! * A store that has lost records is an older copy of itself: a pod that knows of later ones adds
//!   none to it. In an empty directory no pod begins: its mount may be missing.

use std::time::SystemTime;

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use super::folder::prepare_folder;
use super::writer::StoreWriter;
use crate::backend::{Backend, Created, Directory};
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::cap_path;
use crate::records::Records;
use rtad_core::random;
use rtad_core::snapshot::AudienceName;

/// The version of the records that this program reads and writes.
const FORMAT: u32 = 1;
/// Races for a number that a change may lose: more than pods that start at once.
const MAX_RACES: u32 = 200;
/// Records between two writes of the hint, which Google takes once a second. A reader reads so many
/// records more, at most.
const HINT_INTERVAL: u64 = 8;

/// The content of a record: the state, and the change that led to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Grant {
    format: u32,
    /// Devices that all pods have taken, less those that they have given back.
    granted: u64,
    /// Devices that this record takes; negative if it gives them back.
    amount: i64,
    /// Name of the pod.
    pod: String,
    /// Random number of the attempt: of two pods that create the same number, each knows its own.
    writer: u64,
}

/// The newest known record.
#[derive(Debug, Clone, Copy)]
struct Newest {
    number: u64,
    granted: u64,
    /// The random number of its attempt.
    writer: u64,
}

/// A record that this pod tries to create.
#[derive(Debug)]
struct Attempt {
    number: u64,
    grant: Grant,
}

/// One quota, as a pod sees it.
#[derive(Debug)]
pub struct Quota {
    store: StoreWriter,
    folder: Path,
    pod: String,
    newest: Option<Newest>,
    attempt: Option<Attempt>,
}

impl Quota {
    /// The quota of a cap in a period, for a pod. Sends no request.
    pub fn new(store: StoreWriter, cap: &AudienceName, period: &str, pod: String) -> Self {
        Self {
            store,
            folder: cap_path(cap).join(period),
            pod,
            newest: None,
            attempt: None,
        }
    }

    /// Devices that all pods have taken, as of the newest known record.
    pub fn granted(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.granted)
    }

    /// Whether the last record that this pod tried to create may or may not exist.
    pub const fn is_unsettled(&self) -> bool {
        self.attempt.is_some()
    }

    /// Whether the newest known record is the first one.
    pub fn is_first(&self) -> bool {
        self.newest.is_some_and(|newest| newest.number == 1)
    }

    /// Reads the records of other pods. Costs one request without news.
    ///
    /// # Errors
    ///
    /// A store error, or [`StoreError::Quota`] for a record that is not understood.
    pub async fn poll(&mut self) -> Result<(), StoreError> {
        let records = Records::new(self.store.store(), self.folder.clone());
        let found = match self.newest {
            Some(newest) => records.newer_than(newest.number).await?,
            None => records.newest().await?,
        };
        match found {
            Some(found) => self.accept(found.number, &found.bytes),
            None => Ok(()),
        }
    }

    /// Creates the next record, with the amount that `decide` returns for what is left of the
    /// limit; none if it is 0. A positive amount is at most what is left. `decide` is called again
    /// after each lost race.
    ///
    /// Returns the amount of the record that was created: that of an earlier call, if its outcome
    /// was unknown until now. 0 without a record.
    ///
    /// The future may be dropped at any time: the next call goes on.
    ///
    /// # Errors
    ///
    /// Those of [`Quota::poll`]; [`StoreError::Quota`] if the newest known record is gone;
    /// [`StoreError::Conditions`]; [`StoreError::EmptyCaps`]. The record may exist, or may still
    /// appear: the next call finds out.
    pub async fn change(
        &mut self,
        limit: u64,
        decide: impl Fn(u64) -> i64,
    ) -> Result<i64, StoreError> {
        if self.attempt.is_none() {
            self.poll().await?;
        }

        let mut is_checked = false;
        for _ in 0..MAX_RACES {
            let mut next = None;
            if self.attempt.is_none() {
                let left = limit.saturating_sub(self.granted());
                let amount = decide(left).min(left.cast_signed());
                if amount == 0 {
                    return Ok(0);
                }
                next = Some(self.attempt_of(amount));
            }
            if !is_checked {
                self.check_newest().await?;
                is_checked = true;
            }
            if next.is_some() {
                self.attempt = next;
            }

            if let Some(amount) = self.settle().await? {
                return Ok(amount);
            }
        }
        Ok(0)
    }

    /// Refuses a store that has lost the newest known record: who starts would be granted again
    /// what was granted since.
    async fn check_newest(&self) -> Result<(), StoreError> {
        // In the folder under a lost mount, each machine would begin anew.
        self.store.store().refuse_empty_caps().await?;
        let Some(newest) = self.newest else {
            return Ok(());
        };
        let records = Records::new(self.store.store(), self.folder.clone());
        let found = match records.read(newest.number).await? {
            None => "none".to_owned(),
            Some(found) => {
                let grant = self.parse(newest.number, &found.bytes)?;
                if grant.writer == newest.writer {
                    return Ok(());
                }
                format!("one of {}", grant.granted)
            }
        };
        let granted = newest.granted;
        let what = format!(
            "the cap's records have gone back: expected the record of {granted} devices, found \
             {found}; restore the records, or restart all pods to count on from those that are left"
        );
        Err(self.refused(newest.number, &what))
    }

    fn attempt_of(&self, amount: i64) -> Attempt {
        let grant = Grant {
            format: FORMAT,
            granted: self.granted().saturating_add_signed(amount),
            amount,
            pod: self.pod.clone(),
            writer: random::number() >> 11,
        };
        let number = self.newest.map_or(0, |newest| newest.number) + 1;
        Attempt { number, grant }
    }

    /// Finds out whose record has the number of the attempt. Returns its amount if it is ours.
    async fn settle(&mut self) -> Result<Option<i64>, StoreError> {
        let Some(Attempt { number, ref grant }) = self.attempt else {
            return Ok(None);
        };
        let store = self.store.store();
        if number == 1 {
            prepare_folder(&self.store, &self.folder).await?;
        }

        let records = Records::new(store, self.folder.clone());
        let bytes = serde_json::to_vec(grant).map_err(|error| self.refused(number, &error))?;
        let created = records.create_or_read(number, bytes).await?;
        if created == Created::Ours && number % HINT_INTERVAL == 1 {
            // The record is there and will be found: an old hint only costs readers requests.
            let _ = records.point_to(number).await;
        }

        if let Created::Theirs(bytes) = created {
            // An unreadable record may be a wrong answer, and ours: the attempt stays unsettled.
            self.accept(number, &bytes)?;
            self.attempt = None;
            return Ok(None);
        }

        // Only here: a call that is dropped before is repeated.
        let Some(Attempt { grant: ours, .. }) = self.attempt.take() else {
            return Ok(None);
        };
        self.note(number, &ours);
        Ok(Some(ours.amount))
    }

    /// Goes on from a record of another pod.
    fn accept(&mut self, number: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let grant = self.parse(number, bytes)?;
        self.note(number, &grant);
        Ok(())
    }

    fn parse(&self, number: u64, bytes: &[u8]) -> Result<Grant, StoreError> {
        let grant: Grant =
            serde_json::from_slice(bytes).map_err(|error| self.refused(number, &error))?;
        if grant.format != FORMAT {
            let found = format!("expected format {FORMAT}, found {}", grant.format);
            return Err(self.refused(number, &found));
        }
        Ok(grant)
    }

    fn note(&mut self, number: u64, grant: &Grant) {
        self.newest = Some(Newest {
            number,
            granted: grant.granted,
            writer: grant.writer,
        });
    }

    fn refused(&self, number: u64, what: &dyn ToString) -> StoreError {
        let records = Records::new(self.store.store(), self.folder.clone());
        StoreError::Quota {
            path: records.path(number).to_string(),
            what: what.to_string(),
        }
    }

    /// Removes the folders of the cap's periods of which `has_ended` is true, by their name and the
    /// time. Returns their number. For the pod that has just created the first record of `begun`.
    ///
    /// The time is the earlier one of `now` and the store's: a clock that is ahead removes no
    /// period that others count in.
    ///
    /// # Errors
    ///
    /// A store error: folders may be left.
    pub async fn remove_ended(
        store: &StoreWriter,
        cap: &AudienceName,
        begun: &str,
        now: SystemTime,
        has_ended: impl Fn(&str, SystemTime) -> bool,
    ) -> Result<usize, StoreError> {
        let folder = cap_path(cap);
        let records = Records::new(store.store(), folder.clone().join(begun));
        let now = now.min(records.written_at(1).await?);

        let objects = store.store().objects(&folder).await?;
        let listing = objects.list_with_delimiter(Some(&folder)).await;
        let listing = listing.map_err(|source| StoreError::backend("list", &folder, source))?;

        let mut removed = 0;
        for period in listing.common_prefixes {
            let name = period.filename();
            if name.is_some_and(|name| has_ended(name, now)) {
                remove_folder(store, &period).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

async fn remove_folder(store: &StoreWriter, folder: &Path) -> Result<(), StoreError> {
    if let Backend::Directory(Directory { root, .. }) = store.backend() {
        let path = root.join(folder.as_ref());
        let removed = blocking(move || std::fs::remove_dir_all(path)).await;
        return removed.map_err(|source| StoreError::Backend {
            action: "remove",
            path: folder.to_string(),
            source: source.into(),
        });
    }

    // Removed while they are listed: there may be a hundred thousand.
    let objects = store.store().objects(folder).await?;
    let listed = objects.list(Some(folder));
    let paths = listed.map_ok(|object| object.location).boxed();
    let removed = objects.delete_stream(paths);
    let removed = removed.try_for_each(|_| async { Ok(()) }).await;
    removed.map_err(|source| StoreError::backend("remove", folder, source))
}

#[cfg(test)]
mod tests;
