//! `rtad explain`: explains the answer to a platform's captured request, from config and store.
//!
//! It prints the explanation alone: no log and no progress.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use rtad::offline::{OfflineRequest, explain_request, read_config};
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::UsageMistake;
use rtad_core::schedule::Moment;

#[derive(Args)]
pub struct Explain {
    /// The config file of the platform
    #[arg(long, value_name = "FILE", env = "RTAD_CONFIG")]
    config: PathBuf,
    /// The platform's name in the config; api = a request to /v1/decide
    #[arg(long, value_name = "NAME")]
    platform: String,
    /// A header of the captured request, repeatable; without any, headers are not checked
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The query string of the captured request
    #[arg(long, value_name = "STRING")]
    query: Option<String>,
    /// Decide by the schedules of this time, such as 2026-12-01T15:00:00+08:00
    #[arg(long, value_name = "TIME")]
    at: Option<Moment>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The request's body, also as hex or base64; - = stdin
    #[arg(value_name = "FILE")]
    body: PathBuf,
}

pub fn run(arguments: Explain) -> Result<(), CommandError> {
    let assembly = read_config(&arguments.config, &Vec::new())?;
    let body_name = arguments.body.display().to_string();
    let body = read_body(&arguments.body)
        .map_err(|error| UsageMistake::new(format!("{body_name}: {error}")))?;

    let request = OfflineRequest {
        platform: arguments.platform,
        body,
        headers: arguments.headers,
        query: arguments.query,
        at: arguments.at.map(SystemTime::from),
    };
    let explanation = explain_request(assembly, request)?;

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
