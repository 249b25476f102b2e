//! Explanation of a captured request without a pod: from the config and the store.
//!
//! It loads snapshots as a pod does, but only those of the platform's strategies.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::device::KeyMaker;

use crate::config::{ConfigError, ConfigUse, Flags};
use crate::explain::input;
use crate::explain::{Captured, Explainer, Explanation, Target};
use crate::explain::{audiences_of, explain, target_names};
use crate::log::LogKey;
use crate::platform::{IdReader, RequestHead};
use crate::serve::{Assembly, StartError, open_stores};
use crate::sync::{Shared, Syncer};

/// A request that cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// A wrong argument.
    #[error("{0}")]
    Usage(String),
    /// Mistakes in the config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store does not fit the config.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The runtime did not start.
    #[error("could not start")]
    Runtime(#[source] io::Error),
}

impl CommandFailure for OfflineError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Usage(_) | Self::Config(_) => ExitStatus::Usage,
            Self::Start(error) => error.exit(),
            Self::Runtime(_) => ExitStatus::Unexpected,
        }
    }

    fn mistakes(&self) -> &[String] {
        match self {
            Self::Config(error) => &error.mistakes,
            Self::Usage(_) | Self::Start(_) | Self::Runtime(_) => &[],
        }
    }
}

/// A captured request, as it was given.
pub struct OfflineRequest {
    /// The platform's name in the config.
    pub platform: String,
    /// The body: the bytes themselves, hex or base64.
    pub body: Vec<u8>,
    /// `NAME: VALUE` of each header; without any, headers are not checked.
    pub headers: Vec<String>,
    /// The query string.
    pub query: Option<String>,
    /// The time of the schedules; now without one.
    pub at: Option<SystemTime>,
}

/// Reads the config and builds its platforms: flags over environment over file over defaults.
///
/// # Errors
///
/// [`OfflineError::Usage`] for an unreadable file, [`OfflineError::Config`] for mistakes in it.
pub fn read_config(file: &Path, flags: &Flags) -> Result<Assembly, OfflineError> {
    read_config_for(ConfigUse::All, file, flags)
}

/// As [`read_config`], for some use.
///
/// # Errors
///
/// Those of [`read_config`].
pub fn read_config_for(
    uses: ConfigUse,
    file: &Path,
    flags: &Flags,
) -> Result<Assembly, OfflineError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| OfflineError::Usage(format!("{name}: {error}")))?;
    Ok(Assembly::read_for(
        uses,
        Some((&name, &text)),
        |name| std::env::var(name).ok(),
        flags,
    )?)
}

/// Explains the answer of a config's platform to a request.
///
/// # Errors
///
/// An argument that is wrong, or a store that does not fit the config.
pub fn explain_request(
    assembly: Assembly,
    request: OfflineRequest,
) -> Result<Explanation, OfflineError> {
    let OfflineRequest {
        platform,
        body,
        headers,
        query,
        at,
    } = request;
    let config = &assembly.config;

    let names = target_names(config.platforms.iter().map(|one| one.name.as_str()));
    if !names.contains(&platform) {
        let accepted = names.join(", ");
        return Err(OfflineError::Usage(format!(
            "--platform {platform:?}; accepted: {accepted}"
        )));
    }
    let (body, encoding) = input::read(body.into());
    let headers: HeaderMap = headers
        .iter()
        .map(|text| header(text))
        .collect::<Result<_, _>>()?;

    let captured = Captured {
        at,
        head: RequestHead {
            headers: &headers,
            query: query.as_deref(),
        },
        has_headers: !headers.is_empty(),
        body,
        encoding,
        max_body: usize::try_from(config.server.max_body).unwrap_or(usize::MAX),
    };

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(OfflineError::Runtime)?;
    runtime.block_on(explained(assembly, &platform, captured))
}

/// Parses a header. The error does not quote a malformed value, which may be a secret.
fn header(text: &str) -> Result<(HeaderName, HeaderValue), OfflineError> {
    name_and_value(text).ok_or_else(|| {
        OfflineError::Usage("--header; accepted: a name, a colon and a value".to_owned())
    })
}

fn name_and_value(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':')?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
    let value = HeaderValue::from_str(value.trim()).ok()?;
    Some((name, value))
}

async fn explained(
    assembly: Assembly,
    platform: &str,
    captured: Captured<'_>,
) -> Result<Explanation, OfflineError> {
    let stores = open_stores(&assembly.config).map_err(StartError::Store)?;
    let shared = Shared::default();
    let mut plan = assembly.plan();
    // Counts are in the pods.
    plan.caps.clear();
    for strategy in &mut plan.strategies {
        strategy.cap = None;
    }
    let sync = Syncer::new(stores, plan, shared.clone());
    let serving = sync.serving();
    let catalog = serving.load_full();
    let ids = IdReader::new(
        KeyMaker::with_extra_blanks(&assembly.config.ids.blank),
        &shared.telemetry,
    );
    let log = assembly.config.log.as_ref();
    let log_key = log.map(|log| LogKey::new(log.secret.expose()));
    let mut explainer = Explainer {
        catalog: &catalog,
        ids: &ids,
        history: &shared.polls,
        log_key: log_key.as_ref(),
    };
    let target = Target::named(&catalog, platform).expect("the config has it");

    let needed = audiences_of(&explainer, target, &captured);
    sync.poll_matching(|audience| needed.iter().any(|name| name == audience.as_str()))
        .await;
    let loaded = serving.load();
    explainer.catalog = &loaded;
    let explained = explain(&explainer, target, &captured);
    Ok(explained.without_caps(&assembly.config.strategies))
}
