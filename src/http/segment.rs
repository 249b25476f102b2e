//! Segments of a request's path, percent-decoded once.
//!
//! axum's `Path` decodes too, but answers a segment that is no UTF-8 in its own words and before any
//! metric is counted. Device ids are bytes, so here such a segment is an id like any other.

use std::borrow::Cow;

use axum::http::Uri;
use percent_encoding::percent_decode_str;

/// Segment `index` of the path, as it was sent; empty if there is none. The route has matched, so the
/// path has all segments that its handler reads.
pub(super) fn raw(uri: &Uri, index: usize) -> &str {
    uri.path().split('/').nth(index + 1).unwrap_or_default()
}

/// A segment or query value as text, with replacement characters for what is no UTF-8.
pub(super) fn decoded(text: &str) -> Cow<'_, str> {
    if is_plain(text) { text.into() } else { percent_decode_str(text).decode_utf8_lossy() }
}

/// A segment as bytes.
pub(super) fn decoded_bytes(text: &str) -> Cow<'_, [u8]> {
    if is_plain(text) { text.as_bytes().into() } else { percent_decode_str(text).into() }
}

/// Nearly every segment is.
fn is_plain(text: &str) -> bool {
    !text.as_bytes().contains(&b'%')
}
