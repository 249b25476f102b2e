//! Bearer tokens: in a header, and in files of one token per line.

/// Minimum length of a token in bytes; shorter ones can be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;

/// Reason why a text is not a token file. Quotes nothing from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTokens {
    /// It has no token.
    Empty,
    /// This line, counted from 1, is not a token.
    Line(usize),
}

/// The token of an `Authorization` header; `None` for another scheme. Schemes have no case, and one
/// or more spaces before the token (RFC 9110, section 11).
pub fn bearer_token(header: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"Bearer ";
    let (scheme, token) = header.split_at_checked(SCHEME.len())?;
    scheme
        .eq_ignore_ascii_case(SCHEME)
        .then_some(token.trim_ascii())
}

/// The tokens of a file: at least [`MIN_TOKEN_BYTES`] visible ASCII characters each, one per line.
/// Empty lines and spaces around a token are ignored.
///
/// # Errors
///
/// [`NotTokens`], for the first invalid line, or for no token at all.
pub fn parse_tokens(text: &[u8]) -> Result<Vec<Vec<u8>>, NotTokens> {
    let mut tokens = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let token = line.trim_ascii();
        if token.is_empty() {
            continue;
        }
        if token.len() < MIN_TOKEN_BYTES || !token.iter().all(u8::is_ascii_graphic) {
            return Err(NotTokens::Line(index + 1));
        }
        tokens.push(token.to_vec());
    }
    if tokens.is_empty() {
        Err(NotTokens::Empty)
    } else {
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_follows_the_scheme_and_any_spaces() {
        for header in ["Bearer a-token", "bearer  a-token", "BEARER    a-token "] {
            assert_eq!(bearer_token(header.as_bytes()), Some(&b"a-token"[..]));
        }
        for header in ["Bearera-token", "Basic a-token", "Bearer", "a-token", ""] {
            assert_eq!(bearer_token(header.as_bytes()), None, "{header}");
        }
    }

    #[test]
    fn a_token_is_a_line_of_sixteen_visible_characters() {
        let two = parse_tokens(b"\n 0123456789abcdef \r\n\nanother-token-of-20b\n");
        assert_eq!(
            two,
            Ok(vec![
                b"0123456789abcdef".to_vec(),
                b"another-token-of-20b".to_vec()
            ])
        );
        assert_eq!(parse_tokens(b" \n\n"), Err(NotTokens::Empty));
        assert_eq!(
            parse_tokens(b"0123456789abcdef\ntoo short\n"),
            Err(NotTokens::Line(2))
        );
        assert_eq!(parse_tokens(b"0123456789 abcdef"), Err(NotTokens::Line(1)));
    }
}
