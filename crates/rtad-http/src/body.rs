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

use crate::request_error::RequestError;
use crate::room::BodyPermit;
use crate::stream::SEND_PAUSE;

/// Limits of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Size in bytes.
    pub max_bytes: usize,
    /// Timeout for the whole body.
    pub timeout: Duration,
}

/// A body, with its part of the port's room for as long as the body is in use.
#[derive(Debug)]
pub struct ReadBody<'a> {
    /// The whole body.
    pub bytes: Bytes,
    /// `None` if the body arrived with its head.
    pub permit: Option<BodyPermit<'a>>,
}

/// Reads a body. A body that arrived with its head, as nearly all do, costs no copy and no timer.
/// Waiting for the rest of any other needs a permit from `wait`, which gets the body's length, or
/// the limit if the length is unknown.
///
/// A body with a length over the limit is not read at all, so a client that sends `Expect:
/// 100-continue` is not asked for it.
///
/// # Errors
///
/// [`RequestError::TooLarge`], [`RequestError::BodyTimeout`], [`RequestError::BadBody`] of a
/// truncated body, or [`RequestError::Overloaded`]: it was not complete on arrival, and there is no
/// permit to wait for the rest.
pub fn read<'a, B>(
    body: B,
    limits: BodyLimits,
    wait: impl FnOnce(usize) -> Option<BodyPermit<'a>>,
) -> impl Future<Output = Result<ReadBody<'a>, RequestError>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let BodyLimits {
        max_bytes,
        timeout: within,
    } = limits;
    let size = body.size_hint();
    let is_too_large = size.lower() > max_bytes as u64;
    let length = size.exact().map_or(max_bytes, |length| length as usize);
    // The future of an `async fn` would have its arguments twice.
    let mut reading = BodyReader {
        body,
        max_bytes,
        first: Bytes::new(),
        all: BytesMut::new(),
    };
    async move {
        if is_too_large {
            return Err(too_large(max_bytes));
        }
        if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(reading.poll(context))).await {
            return read.map(|bytes| ReadBody {
                bytes,
                permit: None,
            });
        }

        // Boxed, as few requests wait for a timer.
        match wait(length) {
            Some(permit) => Box::pin(read_rest(reading, within, length, permit)).await,
            None => Box::pin(drop_rest(reading, within)).await,
        }
    }
}

/// Waits for the rest of a body.
async fn read_rest<B>(
    mut reading: BodyReader<B>,
    within: Duration,
    length: usize,
    permit: BodyPermit<'_>,
) -> Result<ReadBody<'_>, RequestError>
where
    B: Body<Data = Bytes> + Unpin,
{
    if reading.body.size_hint().exact().is_some() {
        // A buffer that grows would take up to three times the length that the permit is for.
        let received = reading.all.len();
        reading.all.reserve(length - received);
    }

    let rest = poll_fn(|context| reading.poll(context));
    let bytes = timeout(within, rest)
        .await
        .unwrap_or(Err(RequestError::BodyTimeout(within)))?;
    Ok(ReadBody {
        bytes,
        permit: Some(permit),
    })
}

/// Reads and drops the rest of a shed request, so that its connection stays usable: under overload
/// new connections are the largest cost.
async fn drop_rest<B>(
    mut reading: BodyReader<B>,
    within: Duration,
) -> Result<ReadBody<'static>, RequestError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let rest = async {
        let mut dropped = 0;
        while dropped < reading.max_bytes
            && let Ok(Some(Ok(frame))) = timeout(SEND_PAUSE, reading.body.frame()).await
        {
            dropped += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    let _ = timeout(within, rest).await;
    Err(RequestError::Overloaded)
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

impl<B: Body<Data = Bytes> + Unpin> BodyReader<B> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, RequestError>> {
        while let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) {
            // Trailers are ignored.
            let Ok(part) = frame.map_err(|_| incomplete())?.into_data() else {
                continue;
            };
            if part.len() > self.max_bytes - self.first.len().max(self.all.len()) {
                return Poll::Ready(Err(too_large(self.max_bytes)));
            }
            if self.first.is_empty() && self.all.is_empty() {
                self.first = part;
            } else {
                self.all.extend_from_slice(&std::mem::take(&mut self.first));
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

fn too_large(max_bytes: usize) -> RequestError {
    RequestError::TooLarge(format!("the body is over {max_bytes} bytes"))
}

fn incomplete() -> RequestError {
    RequestError::BadBody("the body is incomplete or is not valid HTTP".to_owned())
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
/// [`RequestError::BadBody`], if it is not a whole number of keys, or text: the digits of an md5
/// would be read as two other keys.
pub fn split_keys(body: &[u8]) -> Result<&[[u8; 16]], RequestError> {
    let (keys, rest) = body.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(RequestError::BadBody(format!(
            "{} bytes are not a whole number of 16-byte keys",
            body.len()
        )));
    }
    if is_text(body) {
        return Err(RequestError::BadBody(
            "the body is text: expected 16 bytes for each key, in place of its digits, or JSON \
             without Content-Type: application/octet-stream"
                .to_owned(),
        ));
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
            let refusal = split_keys(text.as_bytes());
            assert!(
                matches!(&refusal, Err(RequestError::BadBody(detail)) if detail.starts_with("the body is text")),
                "{refusal:?}"
            );
        }
        assert!(split_keys(b"15 bytes in text").is_ok());
        assert_eq!(
            split_keys(&[0; 17]).unwrap_err(),
            RequestError::BadBody("17 bytes are not a whole number of 16-byte keys".to_owned())
        );
        assert_eq!(split_keys(b"").unwrap().len(), 0);
        assert_eq!(split_keys(&[0x7b; 32]).unwrap().len(), 2);
    }
}
