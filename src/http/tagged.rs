//! Responses with an entity tag: a client with a current copy gets 304.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;

/// A 200 with `body`, or a 304 if `If-None-Match` names the tag. Clients revalidate each time.
pub fn tagged<B: Into<Bytes>>(
    headers: &HeaderMap,
    tag: Option<String>,
    kind: &'static str,
    body: impl FnOnce() -> B,
) -> Response {
    let is_current = tag.as_deref().is_some_and(|tag| names(headers, tag));
    let mut response = Response::default();
    if is_current {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        *response.body_mut() = Body::from(body().into());
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }

    let headers = response.headers_mut();
    let cache_control = if tag.is_some() {
        "no-cache"
    } else {
        "no-store"
    };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));

    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(tag) = tag {
        headers.insert(ETAG, tag.parse().expect("a tag is visible ASCII"));
    }
    response
}

/// Whether `If-None-Match` names the tag. The comparison is weak, as proxies weaken tags.
fn names(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|named| named == "*" || named.strip_prefix("W/").unwrap_or(named) == tag)
}
