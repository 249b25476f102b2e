//! `rtad explain`: explains the answer to a platform's captured request, from config and store.
//!
//! It loads snapshots as `rtad serve` does, but only those of the platform's strategies. It prints
//! the explanation alone: no log and no progress.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use clap::Args;
use rtad::explain::input::{self, Encoding};
use rtad::explain::{Captured, Explanation, audiences_of, explain};
use rtad::platform::{IdReader, RequestHead};
use rtad::serve::{Assembly, find_audiences};
use rtad::sync::{Shared, Syncer};
use rtad_core::device::KeyMaker;

use super::config::read_config;
use super::failure::CommandFailure;

#[derive(Args)]
pub(super) struct Explain {
    /// The config file of the platform
    #[arg(long, value_name = "FILE", env = "RTAD_CONFIG")]
    config: PathBuf,
    /// The platform's name in the config
    #[arg(long, value_name = "NAME")]
    platform: String,
    /// The body's encoding
    #[arg(
        long,
        value_name = "auto|binary|hex|base64",
        default_value = "auto",
        value_parser = encoding
    )]
    input: Input,
    /// A header of the captured request, repeatable; without any, headers are not checked
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The query string of the captured request
    #[arg(long, value_name = "STRING")]
    query: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The request's body; - = stdin
    #[arg(value_name = "FILE")]
    body: PathBuf,
}

#[derive(Debug, Clone, Copy)]
struct Input(Option<Encoding>);

fn encoding(word: &str) -> Result<Input, String> {
    if word == "auto" {
        return Ok(Input(None));
    }
    word.parse().map(|encoding| Input(Some(encoding))).map_err(|error| format!("{error}, auto"))
}

/// Parses a header. clap would quote a malformed value, which may be a secret.
fn header(text: &str) -> Result<(HeaderName, HeaderValue), CommandFailure> {
    let read = || {
        let (name, value) = text.split_once(':')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value.trim()).ok()?))
    };
    read().ok_or_else(|| {
        CommandFailure::Usage("--header; accepted: a name, a colon and a value".to_owned())
    })
}

pub(super) fn run(arguments: Explain) -> Result<(), CommandFailure> {
    let assembly = read_config(Some(&arguments.config), &Vec::new())?;
    let config = &assembly.config;
    if !config.platforms.iter().any(|platform| platform.name == arguments.platform) {
        let names: Vec<&str> =
            config.platforms.iter().map(|platform| platform.name.as_str()).collect();
        let accepted = if names.is_empty() {
            "none: the config has no [[platform]]".to_owned()
        } else {
            names.join(", ")
        };
        return Err(CommandFailure::Usage(format!(
            "--platform {:?}; accepted: {accepted}",
            arguments.platform
        )));
    }
    let file = arguments.body.display().to_string();
    let text = read_body(&arguments.body)
        .map_err(|error| CommandFailure::Usage(format!("{file}: {error}")))?;
    let read = input::read(text.into(), arguments.input.0);
    let (body, encoding) =
        read.map_err(|error| CommandFailure::Usage(format!("{file}: {error}")))?;
    let headers: HeaderMap =
        arguments.headers.iter().map(|text| header(text)).collect::<Result<_, _>>()?;
    let captured = Captured {
        head: RequestHead { headers: &headers, query: arguments.query.as_deref() },
        has_headers: !headers.is_empty(),
        body,
        encoding,
        max_body: usize::try_from(config.server.max_body).unwrap_or(usize::MAX),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let explanation = runtime.block_on(explained(assembly, &arguments.platform, captured))?;
    let text = if arguments.json {
        serde_json::to_string(&explanation).expect("plain values serialize") + "\n"
    } else {
        explanation.to_string()
    };
    // A closed pipe is not an error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn read_body(file: &PathBuf) -> std::io::Result<Vec<u8>> {
    if file.as_os_str() != "-" {
        return std::fs::read(file);
    }
    let mut body = Vec::new();
    std::io::stdin().lock().read_to_end(&mut body)?;
    Ok(body)
}

async fn explained(
    mut assembly: Assembly,
    platform: &str,
    captured: Captured<'_>,
) -> Result<Explanation, CommandFailure> {
    let store = find_audiences(&mut assembly.config).await?;
    let shared = Shared::default();
    let mut plan = assembly.plan();
    // Counts are in the pods.
    plan.caps.clear();
    let strategies = &assembly.config.strategies;
    let capped = strategies.iter().filter(|strategy| strategy.cap.is_some());
    let capped: Vec<String> = capped.map(|strategy| strategy.name.clone()).collect();
    let sync = Syncer::new(store, plan, shared.clone());
    let serving = sync.serving();
    let catalog = serving.load_full();
    let served = catalog.platform_named(platform).expect("the config has it");
    let platform = Arc::clone(&served.platform);
    let needed: Vec<String> =
        audiences_of(&catalog, &platform).into_iter().map(str::to_owned).collect();
    sync.poll_matching(|audience| needed.iter().any(|name| name == audience.as_str())).await;
    let ids =
        IdReader::new(KeyMaker::with_extra_blanks(&assembly.config.ids.blank), &shared.telemetry);
    let explained = explain(&serving.load(), &platform, &ids, &shared.history, captured);
    Ok(explained.without_caps(&capped))
}
