//! `[server.api]`: access to `/v1/check` and `/v1/decide`.

use std::net::SocketAddr;

use rtad_http::tokens::{MIN_TOKEN_BYTES, NotTokens, parse_tokens};
use serde::Serialize;

use super::reader::{Document, Section, not_empty};
use super::secret::Secret;

/// Access to rtad's own routes, which tell members from others. Without this table they are open
/// on the decision port, unless a `[[platform]]` is configured: then they answer 404 there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct ApiConfig {
    /// Address of a port for rtad's own routes alone; the decision port then answers platforms
    /// only. Changing it takes a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Files of bearer tokens, one token per line. A request to rtad's own routes then needs the
    /// header `Authorization: Bearer TOKEN`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub token_files: Vec<String>,
    /// Opens rtad's own routes to every client of the decision port even if platforms are
    /// configured.
    pub public: bool,
    /// The tokens of `token_files`, as values of the `Authorization` header.
    #[serde(skip)]
    pub tokens: Vec<Secret>,
}

impl ApiConfig {
    /// Whether the table is absent.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

const EXAMPLE: &str = "a table such as { listen = \"127.0.0.1:8081\" }";
const TABLE: &str = "server.api";

pub(super) fn read(d: &mut Document<'_>, server: &mut Section, address: &str) -> ApiConfig {
    let Some(mut section) = server.section(d, "api", EXAMPLE) else { return ApiConfig::default() };
    let line = section.line();
    let listen = section.read(d, "listen", address, |text| text.parse().ok());
    let accepted = "a list of paths";
    let token_files = section.read_list(d, "token_files", accepted, not_empty);
    let public = section.read(d, "public", "true or false", |text| text.parse().ok());
    let public = public.unwrap_or(false);
    if public && (listen.is_some() || !token_files.is_empty()) {
        let accepted = "public = true alone, or listen and token_files without it";
        d.mistake(line, &format!("{TABLE}.public"), "contradicts the other keys", accepted);
    }
    if listen.is_none() && token_files.is_empty() && !public {
        let accepted = "at least one of listen, token_files and public = true";
        d.mistake(line, TABLE, "opens rtad's own routes to nobody", accepted);
    }
    let tokens = token_files.iter().flat_map(|file| read_tokens(d, line, file)).collect();
    section.finish(d);
    ApiConfig { listen, token_files, public, tokens }
}

fn read_tokens(d: &mut Document<'_>, line: Option<usize>, file: &str) -> Vec<Secret> {
    let path = d.beside(file);
    let found = match std::fs::read(&path) {
        Ok(text) => {
            d.saw(&text);
            match parse_tokens(&text) {
                Ok(tokens) => {
                    let header = |token: &Vec<u8>| Secret::new([b"Bearer ", &token[..]].concat());
                    return tokens.iter().map(header).collect();
                }
                Err(NotTokens::Empty) => "has no token".to_owned(),
                Err(NotTokens::Line(line)) => format!("has no token on line {line}"),
            }
        }
        Err(error) => error.to_string(),
    };
    let found = format!("is {:?}: {found}", path.display().to_string());
    let accepted = format!(
        "files with one token per line, each of {MIN_TOKEN_BYTES} visible ASCII characters"
    );
    d.mistake(line, &format!("{TABLE}.token_files"), &found, &accepted);
    Vec::new()
}
