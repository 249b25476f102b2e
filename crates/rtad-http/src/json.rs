//! JSON bodies, and parse errors without quoted values.

use std::borrow::Cow;

use serde::Deserialize;

use crate::body::is_compressed;
use crate::request_error::RequestError;

/// A string, borrowed from the body unless it has escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Text<'body>(#[serde(borrow)] pub Cow<'body, str>);

/// Parses an object. A derived `Deserialize` alone would also accept a list of the field values.
/// `fields` lists the fields, for the error.
///
/// # Errors
///
/// [`RequestError::BadBody`] or [`RequestError::BadEncoding`].
pub fn parse_object<'body, T: Deserialize<'body>>(
    body: &'body [u8],
    fields: &str,
) -> Result<T, RequestError> {
    if is_compressed(body) {
        return Err(RequestError::BadEncoding);
    }
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(RequestError::BadBody(format!(
            "expected an object with {fields}"
        )));
    }
    // One check of the whole body costs less than one per string.
    let parsed = match std::str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    parsed.map_err(|error| RequestError::BadBody(error_without_values(&error)))
}

/// `serde_json`'s message without any text quoted from the body, field names included: it may be a
/// device id.
fn error_without_values(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let quoting = [
        ("unknown field ", "unknown field, "),
        ("unknown variant ", ""),
        ("invalid type: ", ""),
        ("invalid value: ", ""),
    ];
    for (prefix, instead) in quoting {
        if let Some(rest) = message.strip_prefix(prefix) {
            // The last occurrence is serde's own; the quoted text may have others.
            let mut expected = "something else";
            if let Some((_, named)) = rest.rsplit_once(", expected ") {
                expected = named;
            }
            return format!("{instead}expected {expected}");
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    struct Body {
        #[serde(rename = "mode")]
        _mode: Mode,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Add,
        Remove,
    }

    #[test]
    fn errors_quote_nothing_of_the_body() {
        for (body, expected) in [
            (
                r#"{"mode":"hush, expected x"}"#,
                "expected `add` or `remove`",
            ),
            (r#"{"hush":1}"#, "unknown field, expected `mode`"),
        ] {
            let error = parse_object::<Body>(body.as_bytes(), "mode").unwrap_err();
            let RequestError::BadBody(message) = error else {
                panic!("{body}: {error:?}")
            };
            assert_eq!(message.split(" at line").next(), Some(expected));
        }
    }
}
