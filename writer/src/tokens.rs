//! Bearer tokens with scopes: lines of files, reloaded on SIGHUP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use parking_lot::RwLock;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::files::{SETTLING, may_be_unfinished};
use rtad_http::tokens::{MIN_TOKEN_BYTES, NotTokens, bearer_token, parse_tokens};
use subtle::{Choice, ConstantTimeEq as _};

use super::scopes::Scope;

/// Invalid token files, a message each. Messages quote nothing from them.
#[derive(Debug, thiserror::Error)]
#[error("{}", mistakes.join("; "))]
pub struct TokenError {
    mistakes: Vec<String>,
}

impl CommandFailure for TokenError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }

    fn mistakes(&self) -> &[String] {
        &self.mistakes
    }
}

/// A file of tokens with the same scopes.
#[derive(Debug, Clone)]
pub struct TokenFile {
    /// Location of its name, for messages.
    pub(super) origin: String,
    pub(super) path: PathBuf,
    pub(super) scopes: Vec<Scope>,
}

/// Reason why a request is not admitted.
#[derive(Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// No accepted token.
    Unknown,
    /// An accepted token without the scope.
    MissingScope,
}

#[derive(PartialEq, Eq)]
struct Token {
    token: Vec<u8>,
    /// Index of its file.
    file: usize,
}

/// The accepted tokens. Shared by all threads.
pub struct Tokens {
    /// Empty with `--no-token`.
    files: Vec<TokenFile>,
    tokens: RwLock<Arc<[Token]>>,
}

impl Tokens {
    /// Reads the files; twice if one was changed lately. Blocks.
    pub fn from_files(files: Vec<TokenFile>) -> Result<Self, TokenError> {
        let mut tokens = read(&files)?;
        if files.iter().any(|file| may_be_unfinished(&file.path)) {
            tokens = read_settled(&files)?;
        }
        let tokens = RwLock::new(tokens);
        Ok(Self { files, tokens })
    }

    /// Admits every request.
    pub fn disabled() -> Self {
        Self {
            files: Vec::new(),
            tokens: RwLock::new(Arc::new([])),
        }
    }

    /// Rereads the files, twice, as one may be being written. Returns the number of old tokens that
    /// are not accepted any more. An error leaves the old tokens valid. Blocks.
    pub fn reload(&self) -> Result<usize, TokenError> {
        let tokens = read_settled(&self.files)?;
        let old = std::mem::replace(&mut *self.tokens.write(), Arc::clone(&tokens));
        Ok(old.iter().filter(|token| !tokens.contains(token)).count())
    }

    /// Whether every request is admitted.
    pub const fn are_disabled(&self) -> bool {
        self.files.is_empty()
    }

    /// Checks that a request carries an accepted token with a scope, if one is needed. Constant
    /// time for tokens of the same length.
    pub fn admit(&self, headers: &HeaderMap, needed: Option<&Scope>) -> Result<(), NotAdmitted> {
        if self.are_disabled() {
            return Ok(());
        }
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (Some(shown), None) = (shown.next(), shown.next()) else {
            return Err(NotAdmitted::Unknown);
        };
        let Some(token) = bearer_token(shown.as_bytes()) else {
            return Err(NotAdmitted::Unknown);
        };
        self.check(token, |scopes| {
            needed.is_none_or(|needed| scopes.iter().any(|scope| scope.includes(needed)))
        })
    }

    /// As [`Self::admit`], for a token in a URL, which others may see: `admin` does not include the
    /// scope.
    pub fn admit_url(&self, token: &[u8], needed: &Scope) -> Result<(), NotAdmitted> {
        if self.are_disabled() {
            return Ok(());
        }
        let includes = |scope: &Scope| *scope != Scope::Admin && scope.includes(needed);
        self.check(token, |scopes| scopes.iter().any(includes))
    }

    fn check(&self, shown: &[u8], includes: impl Fn(&[Scope]) -> bool) -> Result<(), NotAdmitted> {
        let permits = |file: &TokenFile| Choice::from(u8::from(includes(&file.scopes)));
        let files: Vec<Choice> = self.files.iter().map(permits).collect();
        let tokens = Arc::clone(&self.tokens.read());
        let (mut is_known, mut is_permitted) = (Choice::from(0), Choice::from(0));
        // Compares all tokens, even after a match.
        for Token { token, file } in tokens.iter() {
            let is_equal = token.ct_eq(shown);
            is_known |= is_equal;
            is_permitted |= is_equal & files[*file];
        }
        match (bool::from(is_known), bool::from(is_permitted)) {
            (_, true) => Ok(()),
            (true, false) => Err(NotAdmitted::MissingScope),
            (false, false) => Err(NotAdmitted::Unknown),
        }
    }
}

/// Reads the files twice, as one may be being written.
fn read_settled(files: &[TokenFile]) -> Result<Arc<[Token]>, TokenError> {
    let first = read(files)?;
    std::thread::sleep(SETTLING);
    let second = read(files)?;
    if first != second {
        let mistake = "found token files that are being written, expected whole ones";
        return Err(TokenError {
            mistakes: vec![mistake.to_owned()],
        });
    }
    Ok(second)
}

fn read(files: &[TokenFile]) -> Result<Arc<[Token]>, TokenError> {
    let (mut tokens, mut mistakes) = (Vec::new(), Vec::new());
    for (file, TokenFile { origin, path, .. }) in files.iter().enumerate() {
        match read_file(path) {
            Ok(read) => tokens.extend(read.into_iter().map(|token| Token { token, file })),
            Err(mistake) => mistakes.push(format!("{origin}: {}{mistake}", path.display())),
        }
    }
    if mistakes.is_empty() {
        Ok(tokens.into())
    } else {
        Err(TokenError { mistakes })
    }
}

/// The tokens, or the end of a message that begins with the path.
fn read_file(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!(": could not read it: {error}"))?;
    let accepted = format!("expected at least {MIN_TOKEN_BYTES} visible ASCII characters");
    parse_tokens(&bytes).map_err(|found| match found {
        NotTokens::Empty => format!(": no token: {accepted}, one token per line"),
        NotTokens::Line(line) => format!(", line {line}: not a token: {accepted}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "an-old-token-0123456789";
    const NEW: &str = "a-new-token-0123456789";

    fn admit(tokens: &Tokens, value: &str, needed: &str) -> Result<(), NotAdmitted> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        tokens.admit(&headers, Some(&needed.parse().unwrap()))
    }

    fn admits(tokens: &Tokens, value: &str) -> bool {
        admit(tokens, value, "admin").is_ok()
    }

    fn file(path: &Path, scopes: &[&str]) -> TokenFile {
        let scopes = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
        TokenFile {
            origin: "writer.toml:1: [[token]]".to_owned(),
            path: path.to_owned(),
            scopes,
        }
    }

    #[test]
    fn only_tokens_of_the_file_are_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("{OLD}\n\n  {NEW}\r\n")).unwrap();
        let tokens = Tokens::from_files(vec![file(&path, &["admin"])]).unwrap();
        for value in [format!("Bearer {OLD}"), format!("bearer  {NEW}")] {
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
            assert_eq!(
                admit(&tokens, value, "admin"),
                Err(NotAdmitted::Unknown),
                "{value}"
            );
        }
        let mut headers = HeaderMap::new();
        assert!(tokens.admit(&headers, None).is_err());
        headers.append(AUTHORIZATION, format!("Bearer {OLD}").parse().unwrap());
        assert!(tokens.admit(&headers, None).is_ok());
        headers.append(AUTHORIZATION, format!("Bearer {NEW}").parse().unwrap());
        assert!(tokens.admit(&headers, None).is_err(), "two tokens");

        std::fs::write(&path, NEW).unwrap();
        assert!(
            admits(&tokens, &format!("Bearer {OLD}")),
            "not reloaded yet"
        );
        assert_eq!(tokens.reload().unwrap(), 1, "the old token is gone");
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
            assert!(
                admits(&tokens, &format!("Bearer {NEW}")),
                "the old tokens stay valid"
            );
        }
    }

    #[test]
    fn token_file_that_is_being_written_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, OLD).unwrap();
        let tokens = Tokens::from_files(vec![file(&path, &["admin"])]).unwrap();
        std::fs::write(&path, &NEW[..MIN_TOKEN_BYTES]).unwrap();
        std::thread::scope(|scope| {
            let reloading = scope.spawn(|| tokens.reload());
            std::thread::sleep(SETTLING / 2);
            std::fs::write(&path, NEW).unwrap();
            let error = reloading.join().unwrap().unwrap_err().to_string();
            assert!(error.contains("being written"), "{error}");
        });
        assert!(admits(&tokens, &format!("Bearer {OLD}")));
    }

    #[test]
    fn token_of_two_files_has_the_scopes_of_both() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        std::fs::write(&first, format!("{OLD}\n{NEW}\n")).unwrap();
        std::fs::write(&second, NEW).unwrap();
        let files = vec![
            file(&first, &["events:clicks", "devices:*"]),
            file(&second, &["events:*"]),
        ];
        let tokens = Tokens::from_files(files).unwrap();
        let (old, new) = (format!("Bearer {OLD}"), format!("Bearer {NEW}"));
        for (token, needed, expected) in [
            (&old, "events:clicks", Ok(())),
            (&old, "devices:a", Ok(())),
            (&old, "events:views", Err(NotAdmitted::MissingScope)),
            (&new, "events:views", Ok(())),
            (&new, "admin", Err(NotAdmitted::MissingScope)),
        ] {
            assert_eq!(admit(&tokens, token, needed), expected, "{needed}");
        }
    }
}
