//! Request bodies: reading with a size limit and a timeout.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use crate::budget::OverBudget;
use crate::metered::SEND_PAUSE;

/// Reason why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// Larger than the limit, in bytes.
    TooLarge(usize),
    /// Timed out.
    Timeout,
    /// Truncated, or invalid HTTP.
    Broken,
    /// Not complete on arrival, and no permit or no memory to wait for the rest.
    Overloaded,
}

/// Limits of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Size in bytes.
    pub max_bytes: usize,
    /// Timeout for the whole body.
    pub timeout: Duration,
}

/// Reads a body. A body that arrived with its head, as nearly all do, costs no copy and no timer.
/// Waiting for the rest of any other needs a permit from `wait`.
///
/// A body with a length over the limit is not read at all, so a client that sends `Expect:
/// 100-continue` is not asked for it.
///
/// # Errors
///
/// [`BodyError`].
pub fn read<B, P>(
    body: B,
    limits: BodyLimits,
    wait: impl FnOnce() -> Option<P>,
) -> impl Future<Output = Result<Bytes, BodyError>>
where
    B: Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let BodyLimits {
        max_bytes,
        timeout: within,
    } = limits;
    let is_too_large = body.size_hint().lower() > max_bytes as u64;
    // The future of an `async fn` would have its arguments twice.
    let mut reading = BodyReader {
        body,
        max_bytes,
        first: Bytes::new(),
        all: BytesMut::new(),
    };
    async move {
        if is_too_large {
            return Err(BodyError::TooLarge(max_bytes));
        }
        if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(reading.poll(context))).await {
            return read;
        }
        // Boxed, as few requests wait for a timer.
        Box::pin(read_rest(reading, within, wait())).await
    }
}

/// Waits for the rest of a body if there is a permit. Else reads and drops the rest of the shed
/// request, so that its connection stays usable: under overload new connections are the largest
/// cost.
async fn read_rest<B, P>(
    mut reading: BodyReader<B>,
    within: Duration,
    permit: Option<P>,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    if permit.is_some() {
        let rest = poll_fn(|context| reading.poll(context));
        return timeout(within, rest)
            .await
            .unwrap_or(Err(BodyError::Timeout));
    }
    let rest = async {
        let mut dropped = 0;
        while dropped < reading.max_bytes
            && let Ok(Some(Ok(frame))) = timeout(SEND_PAUSE, reading.body.frame()).await
        {
            dropped += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    let _ = timeout(within, rest).await;
    Err(BodyError::Overloaded)
}

/// A body and its parts so far.
struct BodyReader<B> {
    body: B,
    max_bytes: usize,
    /// The first part: a body of one part is not copied.
    first: Bytes,
    /// All parts, if there are more.
    all: BytesMut,
}

impl<B: Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin> BodyReader<B> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        while let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) {
            // Trailers are ignored.
            let Ok(part) = frame.map_err(|error| error_of(&error))?.into_data() else {
                continue;
            };
            if part.len() > self.max_bytes - self.first.len().max(self.all.len()) {
                return Poll::Ready(Err(BodyError::TooLarge(self.max_bytes)));
            }
            if self.first.is_empty() {
                self.first = part;
            } else {
                if self.all.is_empty() {
                    self.all.extend_from_slice(&self.first);
                }
                self.all.extend_from_slice(&part);
            }
            if self.body.is_end_stream() {
                break;
            }
        }
        let all = std::mem::take(&mut self.all);
        Poll::Ready(Ok(if all.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            all.freeze()
        }))
    }
}

fn error_of(error: &(dyn std::error::Error + 'static)) -> BodyError {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let is_over_budget = |error: &(dyn std::error::Error + 'static)| {
        let io = error.downcast_ref::<std::io::Error>();
        io.and_then(std::io::Error::get_ref)
            .is_some_and(|inner| inner.is::<OverBudget>())
    };
    if causes.any(is_over_budget) {
        BodyError::Overloaded
    } else {
        BodyError::Broken
    }
}

/// Whether `Content-Encoding` names an encoding, such as gzip. No route decodes a body.
pub fn has_encoding(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let mut names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let is_none = |name: &[u8]| name.is_empty() || name.eq_ignore_ascii_case(b"identity");
    names.any(|name| !is_none(name.trim_ascii()))
}

/// Whether a body begins as gzip or Zstandard do. No JSON does, and no message of a platform.
pub fn is_compressed(body: &[u8]) -> bool {
    body.starts_with(b"\x1f\x8b") || body.starts_with(b"\x28\xb5\x2f\xfd")
}

/// Whether the body is `application/octet-stream`, by its `Content-Type`.
pub fn is_octet_stream(headers: &HeaderMap) -> bool {
    let content_type = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let essence = content_type
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default();
    essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/octet-stream")
}

/// Splits a body of 16-byte keys.
///
/// # Errors
///
/// The detail of the refusal, if it is not a whole number of keys, or text: the digits of an md5
/// would be read as two other keys.
pub fn split_keys(body: &[u8]) -> Result<&[[u8; 16]], String> {
    let (keys, rest) = body.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(format!(
            "{} bytes are not a whole number of 16-byte keys",
            body.len()
        ));
    }
    if is_text(body) {
        return Err(
            "the body is text: expected 16 bytes for each key, in place of its digits, or \
                    JSON without Content-Type: application/octet-stream"
                .to_owned(),
        );
    }
    Ok(keys)
}

/// One bit per flag, the first in the lowest bit of the first byte: the answer to a body of keys.
pub fn packed_bits(flags: impl ExactSizeIterator<Item = bool>) -> Vec<u8> {
    let mut bytes = vec![0; flags.len().div_ceil(8)];
    for (index, flag) in flags.enumerate() {
        bytes[index / 8] |= u8::from(flag) << (index % 8);
    }
    bytes
}

/// Whether a body is hexadecimal digits or JSON. Of 10^15 random keys, less than one looks so.
fn is_text(body: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit() || b" \t\r\n,".contains(byte);
    let is_json = || {
        matches!(body.trim_ascii_start(), [b'{' | b'[', ..])
            && serde_json::from_slice::<IgnoredAny>(body).is_ok()
    };
    !body.is_empty() && (body.iter().all(is_digit) || is_json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_packed_from_the_lowest() {
        let mut flags = [false; 10];
        flags[0] = true;
        flags[9] = true;
        assert_eq!(packed_bits(flags.into_iter()), [1, 2]);
        assert!(packed_bits([false; 0].into_iter()).is_empty());
    }

    #[test]
    fn text_is_not_read_as_keys() {
        let digits = "8d3ebd3654fb46a2832296669cf1b536";
        let json = format!("{{\"ids\":[\"{digits}\"]}}    ");
        let lines = format!("{digits}\n{digits}              \n");
        for text in [digits, &digits.to_uppercase(), &json, &lines] {
            assert_eq!(text.len() % 16, 0);
            assert!(
                split_keys(text.as_bytes())
                    .unwrap_err()
                    .starts_with("the body is text")
            );
        }
        assert!(split_keys(b"15 bytes in text").is_ok());
        assert_eq!(
            split_keys(&[0; 17]).unwrap_err(),
            "17 bytes are not a whole number of 16-byte keys"
        );
        assert_eq!(split_keys(b"").unwrap().len(), 0);
        assert_eq!(split_keys(&[0x7b; 32]).unwrap().len(), 2);
    }
}
