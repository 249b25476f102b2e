//! `[server.api]`: access to `/v1/check` and `/v1/decide`.

use rtad_config::{Document, Secret};
use rtad_http::tokens::{MIN_TOKEN_BYTES, NotTokens, parse_tokens};
use serde::{Deserialize, Serialize};

/// Access to rtad's own routes, which tell members from others. Without this table they are open
/// on the decision port, unless a `[[platform]]` is configured: then they answer 404 there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
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
        if self.public && !self.token_files.is_empty() {
            let accepted = "public = true alone, or token_files without it";
            d.mistake("server.api.public", "contradicts token_files", accepted);
        }
        if d.has("server.api") && self.token_files.is_empty() && !self.public {
            let accepted = "token_files, or public = true";
            d.mistake("server.api", "opens rtad's own routes to nobody", accepted);
        }

        for (index, file) in self.token_files.iter().enumerate() {
            let key = format!("server.api.token_files[{index}]");
            self.tokens.extend(read_tokens(d, &key, file));
        }
    }
}

fn read_tokens(d: &mut Document<'_>, key: &str, file: &str) -> Vec<Secret> {
    let Some(text) = d.read_file(key, file) else {
        return Vec::new();
    };
    let found = match parse_tokens(&text) {
        Ok(tokens) => {
            return tokens
                .iter()
                .map(|token| Secret::new([b"Bearer ", &token[..]].concat()))
                .collect();
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
