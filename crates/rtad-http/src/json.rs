//! JSON answers, and JSON parse errors without quoted values.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;

/// A 200 with an encoded JSON body.
pub fn json(body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// An answer with a JSON body.
///
/// # Panics
///
/// If the value has no JSON form, such as a map whose keys are not strings.
pub fn json_of(status: StatusCode, value: &impl serde::Serialize) -> Response {
    let mut response = json(serde_json::to_vec(value).expect("plain values serialize"));
    *response.status_mut() = status;
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
