//! Changes of a whole audience: create, disable, enable, expire, delete. They share the queue of
//! its writes.

use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::{GenerationFacts, State};
use rtad_store::StoreError;

use super::commands::AudienceChange;
use super::session::Session;
use crate::TOOL;
use crate::error::ApiError;

/// Attempts of a change while others write the same audience.
const MAX_TRIES: u32 = 20;

impl Session {
    /// Makes a change; returns the number of the record with it.
    pub async fn apply(&mut self, change: AudienceChange) -> Result<u64, ApiError> {
        match change {
            AudienceChange::Create(filter, fpr) => self.create(filter, fpr).await,
            AudienceChange::State(state) => self.set(|_, expires| (state, expires)).await,
            AudienceChange::Expires(expires) => self.set(|state, _| (state, expires)).await,
            AudienceChange::Delete => self.delete().await,
        }
    }

    async fn set(
        &mut self,
        change: impl Fn(State, Option<u64>) -> (State, Option<u64>),
    ) -> Result<u64, ApiError> {
        for _ in 0..MAX_TRIES {
            self.open().await?;
            self.refresh().await?;
            let ledger = self.ledger.as_mut().expect("it was just opened");
            let current = ledger.current();
            if current.state == State::Deleted {
                return Err(ApiError::Deleted);
            }
            let wanted = change(current.state, current.expires_unix_seconds);
            if wanted == (current.state, current.expires_unix_seconds) {
                return Ok(current.sequence);
            }
            match ledger.set(wanted.0, wanted.1).await {
                Ok(()) => return Ok(ledger.current().sequence),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(self.failed("could not create the next record", &error)),
            }
        }
        Err(ApiError::Contended)
    }

    async fn create(&mut self, filter: FilterSpec, fpr: f64) -> Result<u64, ApiError> {
        match self.publish_empty(filter, fpr).await {
            Ok(Some(sequence)) => Ok(sequence),
            Ok(None) => Err(ApiError::Exists),
            // Another process created it, or a build is running.
            Err(StoreError::Conflict { .. }) => match self.store.store().live(&self.audience).await
            {
                Ok(Some(live)) if live.current.state != State::Deleted => Err(ApiError::Exists),
                Ok(_) => Err(ApiError::Busy),
                Err(error) => Err(self.failed("could not read the newest record", &error)),
            },
            Err(error) => Err(self.failed("could not create", &error)),
        }
    }

    /// Returns the sequence; `None` if the audience exists.
    async fn publish_empty(
        &mut self,
        filter: FilterSpec,
        fpr: f64,
    ) -> Result<Option<u64>, StoreError> {
        let base = self.store.base(&self.audience).await?;
        if base
            .current()
            .is_some_and(|current| current.state != State::Deleted)
        {
            return Ok(None);
        }
        if base.current().is_none() && self.was_open {
            // Deleted audiences have records: this is another store, or a mount is lost.
            let path = format!("{}/records", self.audience);
            return Err(StoreError::NotFound { path });
        }
        let facts = GenerationFacts {
            folded: base.folded(),
            ..GenerationFacts::built_now_by(TOOL)
        };
        let publication = self.store.publish(base).await?;
        let published = publication.commit_keys(Vec::new(), filter, fpr, facts);
        let sequence = published.await?.current.sequence;

        self.telemetry.opened(&self.audience);
        self.was_open = true;
        Ok(Some(sequence))
    }

    async fn delete(&mut self) -> Result<u64, ApiError> {
        let deleted = self.store.delete(&self.audience).await;
        // Also after an error: the audience may be deleted but still have files.
        self.ledger = None;
        match deleted {
            Ok(deletion) => Ok(deletion.sequence),
            Err(StoreError::NotFound { .. }) => Err(ApiError::UnknownAudience),
            Err(StoreError::Conflict { .. }) => Err(ApiError::Busy),
            Err(error) => Err(self.failed("could not delete", &error)),
        }
    }
}
