//! The window of an audience's live generation: only its writer may replace the audience.

use rtad_core::snapshot::{AudienceName, Current, State};
use rtad_store::{Store, StoreError};

use super::config::{AudienceConfig};

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
    let manifest = store.manifest(audience, current).await?;
    match manifest.from_window() {
        Some(window) => Ok(Some(window.clone())),
        None => Err(SourceError::Built {
            audience: audience.clone(),
            generation: current.generation,
            window: config.from_window.clone(),
        }),
    }
}
