//! Excerpt of an error's body for logs: one short line without secrets.
//!
//! S3 and Azure answer a wrong signature with everything that was signed, including the session
//! token, and messages may repeat parts of a request. So only the code of their XML is taken, and
//! the message of a code that says nothing. It and other bodies lose the queries of URLs, as
//! presigned URLs are credentials, and all token-like words.

/// Longest excerpt, in characters.
const MAX_CHARS: usize = 200;
/// Shortest run of letters and digits that counts as a token, if it has a digit.
const TOKEN_CHARS: usize = 25;

/// S3's code for requests that lack something, such as a checksum: only the message names it.
const VAGUE_CODE: &str = "InvalidRequest";

/// The excerpt; may be empty.
pub fn of(body: &str) -> String {
    let code = element(body, "Code");
    let is_xml = body.trim_start().starts_with("<?xml") || body.contains("<Error>");
    let text = match (code, element(body, "Message")) {
        (Some(VAGUE_CODE), Some(message)) => format!("{VAGUE_CODE}: {message}"),
        (Some(code), _) => code.to_owned(),
        (None, _) if is_xml => String::new(),
        (None, _) => body.to_owned(),
    };

    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| without_tokens(without_query(word)))
        .collect();
    words
        .join(" ")
        .chars()
        .filter(|char| !char.is_control())
        .take(MAX_CHARS)
        .collect()
}

/// The text of the first XML element of that name, up to the end of a truncated body.
pub fn element<'b>(body: &'b str, name: &str) -> Option<&'b str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    Some(rest.split('<').next().unwrap_or(rest))
}

/// A word up to and including its question mark.
fn without_query(word: &str) -> &str {
    word.find('?').map_or(word, |at| &word[..=at])
}

fn is_of_token(char: char) -> bool {
    char.is_ascii_alphanumeric() || "+/=_-%".contains(char)
}

fn without_tokens(word: &str) -> String {
    let mut kept = String::with_capacity(word.len());
    let mut rest = word;
    while !rest.is_empty() {
        let run = rest.find(|char| !is_of_token(char)).unwrap_or(rest.len());
        let (token, after) = rest.split_at(run);
        let is_token = run >= TOKEN_CHARS && token.bytes().any(|byte| byte.is_ascii_digit());
        kept.push_str(if is_token { "…" } else { token });
        let between = after.find(is_of_token).unwrap_or(after.len());
        kept.push_str(&after[..between]);
        rest = &after[between..];
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_xml_is_kept() {
        let body = "<?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code>\
            <Message>The request signature we\n calculated does not match.</Message>\
            <AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId><StringToSign>AWS4-HMAC</StringToSign>\
            <CanonicalRequest>GET x-amz-security-token:FwoGZXIvYXdz</CanonicalRequest></Error>";
        assert_eq!(of(body), "SignatureDoesNotMatch");
        assert_eq!(
            of("<?xml version=\"1.0\"?><Error><Secret>abc</Secret></Error>"),
            ""
        );
        assert_eq!(
            of(
                "<Error><Code>InvalidRequest</Code><Message>Content-MD5 OR x-amz-checksum- HTTP \
                 header is required for Put Object requests with Object Lock parameters</Message>\
                 <RequestId>FwoGZXIvYXdz</RequestId></Error>"
            ),
            "InvalidRequest: Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object \
             requests with Object Lock parameters"
        );
        assert_eq!(
            of("<Error><Code>SlowDown</Code><Message>Please red"),
            "SlowDown"
        );
    }

    #[test]
    fn queries_and_tokens_are_removed_from_other_bodies() {
        for (body, line) in [
            (
                "try https://h/x?X-Amz-Signature=0a1b&y=2 again",
                "try https://h/x? again",
            ),
            (
                "token eyJhbGciOiJSUzI1NiIsImtpZCI6IjAifQ.e30 is old",
                "token ….e30 is old",
            ),
            (
                "Signature wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY!",
                "Signature …!",
            ),
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
