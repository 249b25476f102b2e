//! Bare axum route: the base cost of any service on axum.

use std::hint::black_box;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::routing::get;

/// Answers GET requests, and POST requests after reading the body.
pub(crate) async fn serve(
    route: &str,
    content_type: Option<&str>,
    length: usize,
) -> crate::Outcome {
    let content_type = content_type.map(HeaderValue::from_str).transpose()?;
    // Static, so that no request copies it.
    let body: &'static [u8] = Vec::leak(vec![b'x'; length]);
    let answer = move || {
        let mut response = Response::new(Body::from(body));
        if let Some(content_type) = &content_type {
            response
                .headers_mut()
                .insert(CONTENT_TYPE, content_type.clone());
        }
        response
    };
    let constant = {
        let answer = answer.clone();
        async move || answer()
    };
    let reading = async move |body: Bytes| {
        black_box(body);
        answer()
    };
    crate::serve(Router::new().route(route, get(constant).post(reading))).await
}
