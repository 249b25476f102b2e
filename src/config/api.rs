//! `[server.api]`: access to `/v1/check` and `/v1/decide`.

use std::net::SocketAddr;

use rtad_config::values::address;
use rtad_config::{Document, Secret};
use rtad_http::tokens::{MIN_TOKEN_BYTES, NotTokens, parse_tokens};
use serde::{Deserialize, Serialize};

/// Access to rtad's own routes, which tell members from others. Without this table they are open
/// on the decision port, unless a `[[platform]]` is configured: then they answer 404 there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default)]
pub struct ApiConfig {
    /// Address of a port for rtad's own routes alone; the decision port then answers platforms
    /// only. Changing it takes a restart.
    #[serde(deserialize_with = "address")]
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

    pub(super) fn check(&mut self, d: &mut Document<'_>) {
        let Self {
            listen,
            token_files,
            public,
            tokens,
        } = self;
        if *public && (listen.is_some() || !token_files.is_empty()) {
            let accepted = "public = true alone, or listen and token_files without it";
            d.mistake("server.api.public", "contradicts the other keys", accepted);
        }
        let is_closed = listen.is_none() && token_files.is_empty() && !*public;
        if d.has("server.api") && is_closed {
            let accepted = "at least one of listen, token_files and public = true";
            d.mistake("server.api", "opens rtad's own routes to nobody", accepted);
        }
        for (index, file) in token_files.iter().enumerate() {
            tokens.extend(read_tokens(
                d,
                &format!("server.api.token_files[{index}]"),
                file,
            ));
        }
    }
}

fn read_tokens(d: &mut Document<'_>, key: &str, file: &str) -> Vec<Secret> {
    let Some(text) = d.read_file(key, file) else {
        return Vec::new();
    };
    let found = match parse_tokens(&text) {
        Ok(tokens) => {
            let header = |token: &Vec<u8>| Secret::new([b"Bearer ", &token[..]].concat());
            return tokens.iter().map(header).collect();
        }
        Err(NotTokens::Empty) => "has no token".to_owned(),
        Err(NotTokens::Line(line)) => format!("has no token on line {line}"),
    };
    let found = format!("is {:?}: {found}", d.beside(file).display().to_string());
    let accepted = format!(
        "files with one token per line, each of at least {MIN_TOKEN_BYTES} visible ASCII characters"
    );
    d.mistake(key, &found, &accepted);
    Vec::new()
}
