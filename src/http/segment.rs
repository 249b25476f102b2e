//! Path segments, percent-decoded once.
//!
//! axum's `Path` rejects a segment that is not UTF-8, before any metric is counted. Device ids are
//! bytes, so these functions accept such a segment.

use std::borrow::Cow;

use axum::http::Uri;
use percent_encoding::percent_decode_str;

/// Segment `index` of the path, undecoded; empty if there is none.
pub fn raw(uri: &Uri, index: usize) -> &str {
    uri.path().split('/').nth(index + 1).unwrap_or_default()
}

/// A segment or query value as text, with replacement characters for invalid UTF-8.
pub fn decoded(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        text.into()
    } else {
        percent_decode_str(text).decode_utf8_lossy()
    }
}

/// A segment as bytes.
pub fn decoded_bytes(text: &str) -> Cow<'_, [u8]> {
    if is_plain(text) {
        text.as_bytes().into()
    } else {
        percent_decode_str(text).into()
    }
}

/// Whether the text needs no decoding, as nearly all do.
fn is_plain(text: &str) -> bool {
    !text.as_bytes().contains(&b'%')
}
