//! Answers: JSON, and the text of metrics.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

/// An answer with a JSON body.
///
/// # Panics
///
/// If the value has no JSON form, such as a map whose keys are not strings.
pub fn json_of(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("plain values serialize");
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// An answer with metrics in Prometheus' text format.
pub fn metrics_of(text: String) -> Response {
    let mut response = Response::new(text.into());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
