//! What an error's body says, fit for a log: one short line, without what may be secret.
//!
//! S3 and Azure answer a wrong signature with all that was signed, the session token among it, so of their XML the code and the
//! message are taken and nothing else. Whatever else comes loses the queries of URLs, as a presigned one is a credential, and
//! whatever looks like a token.

/// Characters that are kept.
const MAX_CHARS: usize = 200;
/// A run of so many letters and digits, digits among them, is taken for a token.
const TOKEN_CHARS: usize = 25;

/// The line; empty if nothing is left.
pub(super) fn of(body: &str) -> String {
    let said: Vec<&str> =
        ["Code", "Message"].into_iter().filter_map(|name| element(body, name)).collect();
    let is_xml = body.trim_start().starts_with("<?xml") || body.contains("<Error>");
    let said = if is_xml || !said.is_empty() { said.join(": ") } else { body.to_owned() };
    let words: Vec<String> =
        said.split_whitespace().map(|word| without_tokens(without_query(word))).collect();
    words.join(" ").chars().filter(|char| !char.is_control()).take(MAX_CHARS).collect()
}

/// What stands in the first XML element of that name; all there is, if the body was cut off inside it.
fn element<'b>(body: &'b str, name: &str) -> Option<&'b str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    Some(rest.split('<').next().unwrap_or(rest))
}

/// A word up to its question mark, and that.
fn without_query(word: &str) -> &str {
    word.find('?').map_or(word, |at| &word[..=at])
}

fn without_tokens(word: &str) -> String {
    let in_token = |char: char| char.is_ascii_alphanumeric() || "+/=_-%".contains(char);
    let mut kept = String::with_capacity(word.len());
    let mut rest = word;
    while !rest.is_empty() {
        let run = rest.find(|char| !in_token(char)).unwrap_or(rest.len());
        let (token, after) = rest.split_at(run);
        let is_token = run >= TOKEN_CHARS && token.bytes().any(|byte| byte.is_ascii_digit());
        kept.push_str(if is_token { "…" } else { token });
        let between = after.find(in_token).unwrap_or(after.len());
        kept.push_str(&after[..between]);
        rest = &after[between..];
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_xml_the_code_and_the_message_are_told_and_nothing_that_was_signed() {
        let body = "<?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature we\n \
            calculated does not match.</Message><AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId><StringToSign>AWS4-HMAC\
            </StringToSign><CanonicalRequest>GET x-amz-security-token:FwoGZXIvYXdz</CanonicalRequest></Error>";
        assert_eq!(
            of(body),
            "SignatureDoesNotMatch: The request signature we calculated does not match."
        );
        assert_eq!(of("<?xml version=\"1.0\"?><Error><Secret>abc</Secret></Error>"), "");
        assert_eq!(of("<Error><Code>SlowDown</Code><Message>Please red"), "SlowDown: Please red");
    }

    #[test]
    fn queries_and_tokens_are_left_out_of_anything_else() {
        for (body, line) in [
            ("try https://h/x?X-Amz-Signature=0a1b&y=2 again", "try https://h/x? again"),
            ("token eyJhbGciOiJSUzI1NiIsImtpZCI6IjAifQ.e30 is old", "token ….e30 is old"),
            ("Signature wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY!", "Signature …!"),
            (
                "AuthorizationHeaderMalformedByTheProxyInBetween",
                "AuthorizationHeaderMalformedByTheProxyInBetween",
            ),
            (
                "<html>\r\n<body>502\u{1b}[31m Bad Gateway</body>",
                "<html> <body>502[31m Bad Gateway</body>",
            ),
            ("", ""),
        ] {
            assert_eq!(of(body), line);
        }
        let long = of(&"ä\n".repeat(1000));
        assert_eq!((long.chars().count(), long.lines().count()), (MAX_CHARS, 1));
    }
}
