//! Bearer tokens of writers: lines of a file, reloaded on SIGHUP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use parking_lot::RwLock;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_http::tokens::{MIN_TOKEN_BYTES, NotTokens, parse_tokens};
use subtle::ConstantTimeEq as _;

/// An invalid token file. Messages quote nothing from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TokenError {
    #[error("could not read --token-file {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "--token-file {path}: no token: expected one per line, of at least {MIN_TOKEN_BYTES} \
         visible ASCII characters"
    )]
    None { path: String },
    #[error(
        "--token-file {path}, line {line}: not a token: expected at least {MIN_TOKEN_BYTES} \
         visible ASCII characters"
    )]
    Line { path: String, line: usize },
}

impl CommandFailure for TokenError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

/// The accepted tokens. Shared by all threads.
pub(super) struct Tokens {
    /// `None` with `--no-token`.
    file: Option<PathBuf>,
    tokens: RwLock<Arc<[Vec<u8>]>>,
}

impl Tokens {
    pub(super) fn from_file(path: &Path) -> Result<Self, TokenError> {
        Ok(Self { file: Some(path.to_owned()), tokens: RwLock::new(read(path)?) })
    }

    /// Admits every request.
    pub(super) fn disabled() -> Self {
        Self { file: None, tokens: RwLock::new(Arc::new([])) }
    }

    /// Rereads the file. An error leaves the old tokens valid.
    pub(super) fn reload(&self) -> Result<(), TokenError> {
        if let Some(path) = &self.file {
            let tokens = read(path)?;
            *self.tokens.write() = tokens;
        }
        Ok(())
    }

    /// Whether every request is admitted.
    pub(super) const fn are_disabled(&self) -> bool {
        self.file.is_none()
    }

    /// Whether a request carries an accepted token. Constant time for tokens of the same length.
    pub(super) fn admit(&self, headers: &HeaderMap) -> bool {
        if self.file.is_none() {
            return true;
        }
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (Some(shown), None) = (shown.next(), shown.next()) else { return false };
        let Some((scheme, token)) = shown.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        let tokens = Arc::clone(&self.tokens.read());
        // Compares all tokens, even after a match.
        let matches = tokens
            .iter()
            .fold(0, |found, known| found | known.ct_eq(token.trim_ascii()).unwrap_u8());
        scheme.eq_ignore_ascii_case(b"Bearer ") && matches == 1
    }
}

fn read(path: &Path) -> Result<Arc<[Vec<u8>]>, TokenError> {
    let name = || path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| TokenError::Read { path: name(), source })?;
    parse_tokens(&bytes).map(Into::into).map_err(|found| match found {
        NotTokens::Empty => TokenError::None { path: name() },
        NotTokens::Line(line) => TokenError::Line { path: name(), line },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "an-old-token-0123456789";
    const NEW: &str = "a-new-token-0123456789";

    fn admits(tokens: &Tokens, value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        tokens.admit(&headers)
    }

    #[test]
    fn only_tokens_of_the_file_are_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("{OLD}\n\n  {NEW}\r\n")).unwrap();
        let tokens = Tokens::from_file(&path).unwrap();
        for value in [format!("Bearer {OLD}"), format!("bearer {NEW}")] {
            assert!(admits(&tokens, &value), "{value}");
        }
        for value in [
            OLD,
            "Bearer",
            "Bearer ",
            &format!("Basic {OLD}"),
            &format!("Bearer {OLD}x"),
            &format!("Bearer{OLD}"),
        ] {
            assert!(!admits(&tokens, value), "{value}");
        }
        assert!(!tokens.admit(&HeaderMap::new()));
        let mut twice = HeaderMap::new();
        twice.append(AUTHORIZATION, format!("Bearer {OLD}").parse().unwrap());
        twice.append(AUTHORIZATION, format!("Bearer {NEW}").parse().unwrap());
        assert!(!tokens.admit(&twice));

        std::fs::write(&path, NEW).unwrap();
        assert!(admits(&tokens, &format!("Bearer {OLD}")), "not reloaded yet");
        tokens.reload().unwrap();
        assert!(
            !admits(&tokens, &format!("Bearer {OLD}")) && admits(&tokens, &format!("Bearer {NEW}"))
        );
        for (text, message) in [
            ("\n \n", "no token"),
            ("short", "line 1: not a token"),
            ("\nwith a space in it", "line 2"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = tokens.reload().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert!(admits(&tokens, &format!("Bearer {NEW}")), "the old tokens stay valid");
        }
    }

    #[test]
    fn disabled_tokens_admit_all() {
        assert!(Tokens::disabled().admit(&HeaderMap::new()));
        assert!(Tokens::from_file(Path::new("/does/not/exist")).is_err());
    }
}
