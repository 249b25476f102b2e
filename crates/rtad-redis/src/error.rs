//! Errors of windows and leases. No message names a key or a token.

use redis::{ErrorKind, ServerError};

/// A failed operation on a window or a lease.
///
/// Messages contain the server's address and error code, but not its text: servers quote arguments
/// of refused commands, which are keys and tokens.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// The config is not accepted, or does not fit the server.
    #[error("Redis config: {0}")]
    Config(String),
    /// No connection, or none that stays: refused, reset, not resolved, TLS failure, still loading
    /// its data, or a cluster without an owner of the key's slot.
    #[error("Redis server {server}: unreachable: {cause}")]
    Unreachable {
        /// `host:port`.
        server: String,
        /// The cause, such as the error of the operating system.
        cause: String,
    },
    /// A limit of time passed. The server may have executed the commands, or may do so later.
    #[error("Redis server {server}: timed out {stage}")]
    Timeout {
        /// `host:port`.
        server: String,
        /// The wait that took too long.
        stage: &'static str,
    },
    /// Too many keys are in flight and wait: nothing was sent.
    #[error("Redis server {server}: overloaded; nothing was sent")]
    Overloaded {
        /// `host:port`.
        server: String,
    },
    /// Wrong or missing password, or an ACL without a command or the key prefix.
    #[error("Redis server {server}: access denied ({code})")]
    Denied {
        /// `host:port`.
        server: String,
        /// The server's error code: `NOAUTH`, `WRONGPASS`, `NOPERM`, `DENIED`.
        code: String,
    },
    /// The server is a replica. The URL may name the old primary after a failover.
    #[error("Redis server {server}: read-only replica: expected a primary")]
    ReadOnly {
        /// `host:port`.
        server: String,
    },
    /// The server reached `maxmemory` and evicts nothing: no key was added by this command.
    #[error("Redis server {server}: out of memory: raise maxmemory")]
    OutOfMemory {
        /// `host:port`.
        server: String,
    },
    /// Any other refusal, such as `MISCONF` (the server cannot persist) or `NOREPLICAS`.
    #[error("Redis server {server}: refused ({code})")]
    Other {
        /// `host:port`.
        server: String,
        /// The server's error code, or a description of an unexpected answer.
        code: String,
    },
}

impl RedisError {
    /// Whether a later repetition with the same token may succeed without another config.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Config(_) | Self::Denied { .. })
    }

    /// A word for metrics and logs: `config`, `unreachable`, `timeout`, `overloaded`, `denied`,
    /// `read_only`, `out_of_memory`, `other`.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Config(_) => "config",
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Overloaded { .. } => "overloaded",
            Self::Denied { .. } => "denied",
            Self::ReadOnly { .. } => "read_only",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::Other { .. } => "other",
        }
    }

    pub(crate) fn unreachable(server: &str, cause: impl ToString) -> Self {
        Self::Unreachable {
            server: server.to_owned(),
            cause: cause.to_string(),
        }
    }

    pub(crate) fn timeout(server: &str, stage: &'static str) -> Self {
        Self::Timeout {
            server: server.to_owned(),
            stage,
        }
    }

    pub(crate) fn other(server: &str, code: impl ToString) -> Self {
        Self::Other {
            server: server.to_owned(),
            code: code.to_string(),
        }
    }

    /// An answer that is an error.
    pub(crate) fn answered(server: &str, error: &ServerError) -> Self {
        let details = error.details().unwrap_or_default();
        // Servers before 6.0 answer a wrong password with `ERR invalid password`, and a password
        // where none is configured with `ERR Client sent AUTH, but no password is set`.
        let about_password = error.code() == "ERR"
            && (details.starts_with("invalid password") || details.contains("AUTH"));
        match error.code() {
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => Self::denied(server, error.code()),
            // Redis has used `ERR operation not permitted` for a missing AUTH.
            "ERR" if about_password || details.starts_with("operation not permitted") => {
                Self::denied(server, "ERR")
            }
            "READONLY" => Self::ReadOnly {
                server: server.to_owned(),
            },
            "OOM" => Self::OutOfMemory {
                server: server.to_owned(),
            },
            code @ ("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN") => {
                Self::unreachable(server, code)
            }
            "MOVED" | "ASK" => Self::Config(format!(
                "server {server} belongs to a cluster: expected a URL with cluster=true"
            )),
            "ERR" => Self::other(server, known_text(details)),
            code => Self::other(server, safe_code(code)),
        }
    }

    fn denied(server: &str, code: &str) -> Self {
        Self::Denied {
            server: server.to_owned(),
            code: code.to_owned(),
        }
    }

    /// A failed request: no answer, or none that can be read.
    pub(crate) fn failed(server: &str, error: &redis::RedisError) -> Self {
        match error.kind() {
            ErrorKind::Io => Self::unreachable(server, error),
            // Its text quotes the answer.
            ErrorKind::Parse => Self::other(server, "answer is not RESP"),
            _ => Self::other(server, error.category()),
        }
    }
}

/// `ERR`, with its text if that is a known one without arguments.
fn known_text(details: &str) -> String {
    const KNOWN: [&str; 6] = [
        "unknown command",
        "syntax error",
        "max number of clients reached",
        "invalid expire time",
        "This instance has cluster support disabled",
        "DB index is out of range",
    ];
    match KNOWN.iter().find(|known| details.starts_with(**known)) {
        Some(known) => format!("ERR {known}"),
        None => "ERR".to_owned(),
    }
}

/// The code, if it is one: capital letters, `_` and `-`, at most 32.
fn safe_code(code: &str) -> &str {
    let is_code = code.len() <= 32
        && code
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || b"_-".contains(&byte));
    if is_code { code } else { "unknown error" }
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;

    fn answered(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let Value::ServerError(error) = value else {
            panic!("{value:?}")
        };
        RedisError::answered("redis:6379", &error)
    }

    #[test]
    fn server_errors_are_typed_by_code() {
        for (line, cause) in [
            ("NOAUTH Authentication required.", "denied"),
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                "denied",
            ),
            ("ERR invalid password", "denied"),
            (
                "ERR AUTH <password> called without any password configured",
                "denied",
            ),
            ("NOPERM No permissions to access a key", "denied"),
            (
                "READONLY You can't write against a read only replica.",
                "read_only",
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                "out_of_memory",
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                "unreachable",
            ),
            ("CLUSTERDOWN Hash slot not served", "unreachable"),
            ("MOVED 1 127.0.0.1:7001", "config"),
            ("MISCONF Redis is configured to save RDB snapshots", "other"),
            ("ERR max number of clients reached", "other"),
        ] {
            assert_eq!(answered(line).cause(), cause, "{line}");
        }
    }

    #[test]
    fn messages_quote_no_argument_of_a_refused_command() {
        for line in [
            "ERR unknown command 'SET', with args beginning with: 'rtad:day:SECRET' '77'",
            "ERR no such key rtad:day:SECRET",
            "NOPERM User a has no permissions to access the 'rtad:day:SECRET' key",
            "rtad:day:SECRET failed",
        ] {
            let error = answered(line);
            assert!(
                !format!("{error} {error:?}").contains("SECRET"),
                "{error:?}"
            );
        }
        assert!(
            answered("ERR unknown command 'SET'")
                .to_string()
                .contains("unknown command")
        );
    }
}
