//! Session of one audience at the store: opens its ledger on demand and logs store errors.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::{AudienceName, Current, Digest, State};
use rtad_store::StoreError;
use rtad_store::write::{Ledger, StoreWriter};

use crate::error::ApiError;
use crate::telemetry::Telemetry;

/// Shortest time between logs of the same failure: clients and windows try again each second.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// Facts of a generation that its writes depend on.
#[derive(Debug, Clone)]
pub struct LiveFacts {
    /// Whether its devices have values.
    pub(super) has_values: bool,
    /// The window that it follows: changes of others would be undone.
    pub(super) from_window: Option<AudienceName>,
}

pub struct Session {
    pub(super) store: StoreWriter,
    pub(super) audience: AudienceName,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) ledger: Option<Ledger>,
    /// Whether the ledger was open once: the audience is in the store.
    pub(super) was_open: bool,
    /// Manifest of the generation last asked about, and its facts.
    facts: Option<(Digest, LiveFacts)>,
    /// Manifest of the generation with values that a warning was logged for.
    warned: Option<Digest>,
    /// The failure that was logged last, and when.
    logged: Option<(String, Instant)>,
}

impl Session {
    pub const fn new(
        store: StoreWriter,
        audience: AudienceName,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            store,
            audience,
            telemetry,
            ledger: None,
            was_open: false,
            facts: None,
            warned: None,
            logged: None,
        }
    }

    /// Opens the ledger unless it is open. Returns whether this call opened it.
    pub async fn open(&mut self) -> Result<bool, ApiError> {
        if self.ledger.is_some() {
            return Ok(false);
        }
        match self.store.ledger(&self.audience).await {
            Ok(ledger) => {
                self.telemetry.opened(&self.audience);
                self.ledger = Some(ledger);
                self.was_open = true;
            }
            Err(StoreError::NotFound { .. }) => return Err(ApiError::UnknownAudience),
            Err(error) => return Err(self.failed("could not read the newest record", &error)),
        }
        Ok(true)
    }

    /// Reads the newest record; returns whether it is another.
    pub async fn refresh(&mut self) -> Result<bool, ApiError> {
        let Some(ledger) = &mut self.ledger else {
            return Ok(false);
        };
        ledger
            .refresh()
            .await
            .map_err(|error| self.failed("could not read the newest record", &error))
    }

    pub fn is_live(&self) -> bool {
        self.ledger
            .as_ref()
            .is_some_and(|ledger| ledger.current().state == State::Live)
    }

    /// The facts of the generation. Reads its manifest once.
    pub async fn facts(&mut self, current: &Current) -> Result<LiveFacts, StoreError> {
        if let Some((manifest, facts)) = &self.facts
            && *manifest == current.manifest_sha256
        {
            return Ok(facts.clone());
        }
        let manifest = self
            .store
            .store()
            .manifest(&self.audience, &current.live_entry())
            .await?;
        let facts = LiveFacts {
            has_values: manifest.filter().value_bits() > 0,
            from_window: manifest.from_window().cloned(),
        };
        self.facts = Some((current.manifest_sha256, facts.clone()));
        Ok(facts)
    }

    /// Logs once per generation that devices lost their values.
    pub fn warn_without_value(&mut self, current: &Current, devices: u64) {
        if self.warned.replace(current.manifest_sha256) != Some(current.manifest_sha256) {
            tracing::warn!(
                audience = self.audience.as_str(),
                generation = current.generation,
                devices,
                "devices were added without a value: they have none until the next build, also \
                 those that had one; not logged again for this generation"
            );
        }
    }

    /// Logs a store error, unless it was logged lately; returns the error for the client.
    pub fn failed(&mut self, what: &'static str, error: &StoreError) -> ApiError {
        let failure = format!("{what}: {}", error_chain(error));
        let is_logged = self
            .logged
            .as_ref()
            .is_some_and(|(logged, at)| *logged == failure && at.elapsed() < LOG_AGAIN);
        if !is_logged {
            let audience = self.audience.as_str();
            tracing::warn!(audience, what, error = error_chain(error), "not written");
            self.logged = Some((failure, Instant::now()));
        }
        ApiError::from(error)
    }
}
