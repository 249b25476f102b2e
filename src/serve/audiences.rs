//! Audiences of a config that names none: those of the store, or else of the cache.

use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::State;
use rtad_store::{Live, Store};

use super::error::StartError;
use crate::config::Config;
use crate::sync::{START_TIMEOUT, cached_audiences};

/// Opens the config's store. A config without audiences and strategies gets all audiences of the
/// store, or all of the cache if the store is unavailable or slow.
///
/// # Errors
///
/// [`StartError`] if the store cannot be opened, or if neither the config, the store nor the cache
/// names an audience.
pub async fn find_audiences(config: &mut Config) -> Result<Store, StartError> {
    let store = Store::open(&config.store.url)?
        .with_stall_timeout(config.store.stall_timeout)
        .with_public_keys(config.store.public_keys.clone());
    let cached = config
        .store
        .cache_dir
        .as_deref()
        .map(cached_audiences)
        .unwrap_or_default();
    if cached.is_empty() {
        fill_in_audiences(config, &store).await?;
        return Ok(store);
    }
    let found = tokio::time::timeout(START_TIMEOUT, fill_in_audiences(config, &store)).await;
    let failure = match found {
        Ok(Err(StartError::Store(error))) if error.is_outage() => error_chain(&error),
        Ok(found) => return found.map(|()| store),
        Err(_) => format!("no list of audiences within {} s", START_TIMEOUT.as_secs()),
    };
    let count = cached.len();
    tracing::warn!(
        error = failure,
        count,
        "store unavailable: audiences taken from the cache"
    );
    config.serve_all(cached);
    Ok(store)
}

/// Gives a config without audiences and strategies all audiences of the store.
pub async fn fill_in_audiences(config: &mut Config, store: &Store) -> Result<(), StartError> {
    if !config.audiences.is_empty() || !config.strategies.is_empty() {
        return Ok(());
    }
    let mut audiences = Vec::new();
    for audience in store.audiences().await? {
        // A deleted audience never gets a snapshot. Sync reports an unreadable `CURRENT`.
        let is_deleted = |live: &Live| live.current.state == State::Deleted;
        let live = store.live(&audience).await;
        if !live.is_ok_and(|live| live.as_ref().is_some_and(is_deleted)) {
            audiences.push(audience);
        }
    }
    if audiences.is_empty() {
        return Err(StartError::NothingToServe {
            url: config.store.url.clone(),
        });
    }
    config.serve_all(audiences);
    Ok(())
}
