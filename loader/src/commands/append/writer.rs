//! Publisher of one operation on keys, with retries after conflicts.

use std::time::Duration;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{self, CommandFailure, ExitStatus};
use rtad_core::device::DeviceKey;
use rtad_core::random;
use rtad_core::snapshot::{AudienceName, Current};
use rtad_store::write::{Appended, Change, Ledger, StoreWriter};
use rtad_store::{Store, StoreError};

use super::super::error::CommonError;

/// Attempts while other writers cause conflicts.
const MAX_TRIES: u32 = 50;
/// Longest delay between attempts; a random fraction keeps two writers out of step.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Add,
    /// Removes the tombstone and adds the key.
    Restore,
    Remove,
    Entomb,
}

impl Operation {
    fn change(self, keys: &[DeviceKey], values: &[u8]) -> Change {
        let mut change = Change::default();
        for (index, key) in keys.iter().copied().enumerate() {
            match self {
                Self::Remove => change.remove(key),
                Self::Entomb => change.entomb(key),
                Self::Add | Self::Restore => {
                    if self == Self::Restore {
                        change.lift(key);
                    }
                    match values.get(index) {
                        Some(value) => change.add_with_value(key, *value),
                        None => change.add(key),
                    }
                }
            }
        }
        change
    }
}

/// `--value` over a generation without values.
#[derive(Debug, thiserror::Error)]
#[error(
    "audience {audience}: generation {generation} has no values: --value needs one that was built \
     with --value"
)]
pub struct NoValues {
    audience: AudienceName,
    generation: u64,
}

impl CommandFailure for NoValues {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

#[derive(Debug)]
pub struct AppendWriter {
    ledger: Ledger,
    operation: Operation,
}

impl AppendWriter {
    pub async fn open(
        store: &StoreWriter,
        audience: &AudienceName,
        operation: Operation,
    ) -> Result<Self, CommandError> {
        let ledger = store.ledger(audience).await.map_err(|error| match error {
            StoreError::NotFound { .. } => CommonError::not_published(audience),
            error => error.into(),
        })?;
        Ok(Self { ledger, operation })
    }

    /// Refuses values over a live generation without any. Warns of devices without a value over one
    /// with values, as they lose theirs; an unreadable generation does not stop those.
    pub async fn check_values(
        &self,
        store: &Store,
        audience: &AudienceName,
        is_given: bool,
    ) -> Result<(), CommandError> {
        let live = self.current().live_entry();
        let manifest = match store.manifest(audience, &live).await {
            Err(_) if !is_given => return Ok(()),
            manifest => manifest?,
        };

        match (is_given, manifest.filter().value_bits() > 0) {
            (true, false) => {
                return Err(NoValues {
                    audience: audience.clone(),
                    generation: manifest.generation(),
                }
                .into());
            }
            (false, true) => exit::write_warning(&format!(
                "{audience}: its generation has values, and devices that are added without --value \
                 have none until the next build, also those that had one"
            )),
            _ => {}
        }
        Ok(())
    }

    /// Reads the newest record.
    pub async fn refresh(&mut self) -> Result<(), StoreError> {
        self.ledger.refresh().await.map(|_| ())
    }

    /// The record that the next publish follows.
    pub const fn current(&self) -> &Current {
        self.ledger.current()
    }

    /// Publishes all keys or none, with the value of each or without any. The last one of a key
    /// counts.
    pub async fn publish(
        &mut self,
        keys: &[DeviceKey],
        values: &[u8],
    ) -> Result<Appended, StoreError> {
        let change = self.operation.change(keys, values);
        for _ in 0..MAX_TRIES {
            match self.ledger.append(change.clone()).await {
                Err(StoreError::Conflict { .. }) => {
                    self.ledger.refresh().await?;
                    tokio::time::sleep(MAX_RETRY_DELAY.mul_f64(random::fraction())).await;
                }
                // Another writer merged deltas that this ledger knew, and they were removed since.
                Err(StoreError::NotFound { .. }) if self.ledger.refresh().await? => {}
                done => return done,
            }
        }
        self.ledger.append(change).await
    }
}
