//! Session of one audience at the store: opens its ledger on demand and logs store errors.

use std::sync::Arc;

use rtad_core::device::KeyDigest;
use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::{AudienceName, Current, Digest, State};
use rtad_store::StoreError;
use rtad_store::write::{Ledger, StoreWriter};

use crate::error::ApiError;
use crate::telemetry::Telemetry;

/// Facts of a generation that its writes must match.
#[derive(Debug, Clone, Copy)]
pub struct GenerationFacts {
    /// Whether devices have values.
    pub(super) has_values: bool,
    pub(super) digest: KeyDigest,
}

pub struct Session {
    pub(super) store: StoreWriter,
    pub(super) audience: AudienceName,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) ledger: Option<Ledger>,
    /// Manifest of the generation last asked about, and its facts.
    facts: Option<(Digest, GenerationFacts)>,
    /// Hash of the ids of all generations, once a manifest has said so.
    pub(super) digest: Option<KeyDigest>,
    /// Manifest of the generation with values that a warning was logged for.
    warned: Option<Digest>,
}

impl Session {
    pub const fn new(
        store: StoreWriter,
        audience: AudienceName,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let (ledger, facts, digest, warned) = (None, None, None, None);
        Self {
            store,
            audience,
            telemetry,
            ledger,
            facts,
            digest,
            warned,
        }
    }

    /// Opens the ledger unless it is open. Returns whether this call opened it.
    pub async fn open(&mut self) -> Result<bool, ApiError> {
        if self.ledger.is_some() {
            return Ok(false);
        }
        match self.store.ledger(&self.audience).await {
            Ok(ledger) => self.opened(ledger),
            Err(StoreError::NotFound { .. }) => return Err(ApiError::UnknownAudience),
            Err(error) => return Err(self.failed("could not read CURRENT", &error)),
        }
        Ok(true)
    }

    pub fn opened(&mut self, ledger: Ledger) {
        self.telemetry.opened(&self.audience);
        self.ledger = Some(ledger);
    }

    /// Rereads `CURRENT`; returns whether it has changed.
    pub async fn refresh(&mut self) -> Result<bool, ApiError> {
        let Some(ledger) = &mut self.ledger else {
            return Ok(false);
        };
        ledger
            .refresh()
            .await
            .map_err(|error| self.failed("could not read CURRENT", &error))
    }

    pub fn is_live(&self) -> bool {
        self.ledger
            .as_ref()
            .is_some_and(|ledger| ledger.current().state == State::Live)
    }

    /// The facts of the generation. Reads its manifest once.
    pub async fn facts(&mut self, current: &Current) -> Result<GenerationFacts, StoreError> {
        if let Some((_, facts)) = self
            .facts
            .filter(|(manifest, _)| *manifest == current.manifest_sha256)
        {
            return Ok(facts);
        }
        let manifest = self.store.store().manifest(&self.audience, current).await?;
        let has_values = manifest.filter().value_bits() > 0;
        let facts = GenerationFacts {
            has_values,
            digest: manifest.key_digest(),
        };
        self.facts = Some((current.manifest_sha256, facts));
        self.digest = Some(facts.digest);
        Ok(facts)
    }

    /// The hash of the audience's ids, which no build changes: that of an earlier generation, if
    /// the manifest is unreadable.
    pub async fn digest(&mut self, current: &Current) -> Result<KeyDigest, StoreError> {
        let facts = self.facts(current).await;
        facts
            .map(|facts| facts.digest)
            .or_else(|error| self.digest.ok_or(error))
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

    /// Logs a store error; returns the error for the client.
    pub fn failed(&self, what: &'static str, error: &StoreError) -> ApiError {
        let audience = self.audience.as_str();
        tracing::warn!(audience, what, error = error_chain(error), "not written");
        ApiError::from(error)
    }
}
