//! The window of an audience's live generation: only its writer may replace the audience.

use std::path::Path;

use rtad_core::snapshot::{AudienceName, Current, State};
use rtad_store::{Store, StoreError};

use super::config::{AudienceConfig, Config};

/// An audience that a window must not replace.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "audience {audience}: generation {generation} is not from a window, and window {window} \
         would replace its devices; give the [[audience]] another name, or delete the audience \
         first, by DELETE /v1/audiences/{audience} of a writer without this [[audience]]"
    )]
    Built {
        audience: AudienceName,
        generation: u64,
        window: AudienceName,
    },
    #[error(
        "audience {audience}: generation {generation} is from window {found}, and window {window} \
         was to write it; two writers follow different windows under this name: give one of the \
         [[audience]] another name, and restart the writer of the other"
    )]
    OtherWindow {
        audience: AudienceName,
        generation: u64,
        window: AudienceName,
        found: AudienceName,
    },
}

/// The window of the live generation; `None` without one: nothing was published, or the audience
/// was deleted.
///
/// # Errors
///
/// [`SourceError::Built`], or a store error. An unreadable manifest may be that of a built list.
pub async fn live_window(
    store: &Store,
    config: &AudienceConfig,
    current: Option<&Current>,
) -> Result<Option<AudienceName>, SourceError> {
    let audience = &config.name;
    let Some(current) = current.filter(|current| current.state != State::Deleted) else {
        return Ok(None);
    };
    let manifest = store.manifest(audience, &current.live_entry()).await?;
    match manifest.from_window() {
        Some(window) => Ok(Some(window.clone())),
        None => Err(SourceError::Built {
            audience: audience.clone(),
            generation: current.generation,
            window: config.from_window.clone(),
        }),
    }
}

/// Warns of windows in `state_dir` that the config lacks: their audiences stay as they are.
pub async fn warn_of_dropped(config: &Config, store: &Store) {
    let mut dropped = windows_in(&config.state_dir);
    dropped.retain(|name| config.windows.iter().all(|window| window.name != *name));
    if dropped.is_empty() {
        return;
    }

    let followed = live_windows(store).await.unwrap_or_default();
    for window in dropped {
        let audiences = followed.iter().filter(|(_, source)| *source == window);
        let audiences: Vec<&str> = audiences.map(|(audience, _)| audience.as_str()).collect();
        tracing::warn!(
            window = window.as_str(),
            audiences = audiences.join(", "),
            "state_dir has a window without a [[window]]: no event changes its audiences; \
             delete them and its folder, or restore the [[window]]"
        );
    }
}

/// The windows that have a folder.
fn windows_in(state_dir: &Path) -> Vec<AudienceName> {
    let mut windows = Vec::new();
    for entry in std::fs::read_dir(state_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(window) = name.to_str().and_then(|name| name.parse().ok())
            && entry.path().join("OWNERS").exists()
        {
            windows.push(window);
        }
    }
    windows.sort();
    windows
}

/// The audiences that follow a window, each with its window. Unreadable ones are left out.
async fn live_windows(store: &Store) -> Result<Vec<(AudienceName, AudienceName)>, StoreError> {
    let mut followed = Vec::new();
    for audience in store.audiences().await? {
        let Ok(Some(live)) = store.live(&audience).await else {
            continue;
        };
        if live.current.state == State::Deleted {
            continue;
        }
        let entry = live.current.live_entry();
        if let Ok(manifest) = store.manifest(&audience, &entry).await
            && let Some(window) = manifest.from_window()
        {
            followed.push((audience, window.clone()));
        }
    }
    Ok(followed)
}
