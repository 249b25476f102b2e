//! Error chain: the messages of an error and its causes in one line.

use std::error::Error;

/// The error's message and those of its causes, joined by `: `.
///
/// Omits a cause that its parent's message already has: some libraries repeat their source.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::io;

    use super::*;

    #[derive(Debug)]
    struct Outer(&'static str, io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }

    #[test]
    fn each_cause_is_printed_once() {
        let cause = || io::Error::other("connection refused");
        let plain = error_chain(&Outer("request failed", cause()));
        assert_eq!(plain, "request failed: connection refused");
        let repeating = Outer("request failed: connection refused", cause());
        assert_eq!(
            error_chain(&repeating),
            "request failed: connection refused"
        );
    }
}
