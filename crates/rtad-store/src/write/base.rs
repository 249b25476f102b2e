//! Base of a publish: the record that was live when its work began.

use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::deltas_path;
use crate::read::Live;
use rtad_core::snapshot::{AudienceName, Current, Folded, State};

/// The state that was live when the work began.
#[derive(Debug, Clone)]
pub struct Base {
    audience: AudienceName,
    current: Option<Current>,
}

impl Base {
    /// A base with the state that was live when the work began, in this process or another.
    pub const fn new(audience: AudienceName, current: Option<Current>) -> Self {
        Self { audience, current }
    }

    /// The audience to publish.
    pub const fn audience(&self) -> &AudienceName {
        &self.audience
    }

    /// The live state, if there was one.
    pub const fn current(&self) -> Option<&Current> {
        self.current.as_ref()
    }

    /// The state that names a generation: none before the first publish, and none after the
    /// audience was deleted, as the files of its generations are removed.
    pub fn with_generation(&self) -> Option<&Current> {
        self.current()
            .filter(|current| current.state != State::Deleted)
    }

    /// The manifest's entry for a build that folds in the base's deltas; `None` if nothing was
    /// live.
    pub fn folded(&self) -> Option<Folded> {
        self.current().map(|current| Folded {
            through: current.sequence,
            ..Folded::default()
        })
    }

    /// Checks that no generation was published since. Later deltas are allowed.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`].
    pub fn check_is_live(&self, live: Option<&Live>) -> Result<(), StoreError> {
        let published = |current: Option<&Current>| current.map_or(0, Current::published_sequence);
        let live = live.map(|live| &live.current);
        if published(live) == published(self.current()) {
            return Ok(());
        }
        let now = live.map_or(0, |current| current.generation);
        let then = self.current().map_or(0, |current| current.generation);
        let reason =
            format!("generation {now} was published since this work began at generation {then}");
        Err(StoreError::conflict(&self.audience, reason, false))
    }
}

impl StoreWriter {
    /// The base of a publish that begins now.
    ///
    /// # Errors
    ///
    /// A store error, a refused record, or [`StoreError::LostRecords`]: a publish would forget
    /// erasures and registrations. A killed first publish leaves no deltas.
    pub async fn base(&self, audience: &AudienceName) -> Result<Base, StoreError> {
        let live = match self.store().live(audience).await {
            Err(StoreError::NoDirectory { .. }) if self.creates_store() => None,
            live => live?,
        };
        if live.is_none()
            && !self
                .backend()
                .list(&deltas_path(audience))
                .await?
                .is_empty()
        {
            return Err(StoreError::LostRecords {
                audience: audience.clone(),
            });
        }
        Ok(Base::new(audience.clone(), live.map(|live| live.current)))
    }
}
