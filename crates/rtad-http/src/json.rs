//! JSON answers, and JSON parse errors without quoted values.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;

/// An answer with a JSON body.
///
/// # Panics
///
/// If the value has no JSON form, such as a map whose keys are not strings.
pub fn json_of<B: From<Bytes>>(status: StatusCode, value: &impl serde::Serialize) -> Response<B> {
    let body = Bytes::from(serde_json::to_vec(value).expect("plain values serialize"));
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// `serde_json`'s message without any text quoted from the body, field names included: it may be a
/// device id.
pub fn error_without_values(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let quoting =
        [("unknown field ", "unknown field, "), ("invalid type: ", ""), ("invalid value: ", "")];
    for (prefix, instead) in quoting {
        if let Some(rest) = message.strip_prefix(prefix) {
            // The last occurrence is serde's own; the quoted text may have others.
            let expected = rest.rsplit_once(", expected ");
            let expected = expected.map_or("something else", |(_, expected)| expected);
            return format!("{instead}expected {expected}");
        }
    }
    message
}
