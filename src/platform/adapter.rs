//! The trait of a platform's protocol: a body to data, and data to an answer.

use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use prost_reflect::MessageDescriptor;

use super::bid_values::StrategyValues;
use super::failure::ReadError;
use super::read::{Read, StrategyIds};
use super::verdict::Verdict;
use crate::config::{KindRules, Mistake, PlatformConfig};
use crate::strategy::Tag;

/// A platform's protocol, with its configuration.
///
/// An adapter reads a body into data, and writes an answer from the data and the verdicts about it.
/// It has no access to audiences or sockets. Many threads call it.
pub trait Adapter: fmt::Debug + Send + Sync {
    /// The protocol's `kind` in the config.
    fn kind(&self) -> &'static str;

    /// Its strategy ids.
    fn strategies(&self) -> &StrategyIds;

    /// Whether it rejects requests without a valid signature.
    fn requires_signature(&self) -> bool {
        false
    }

    /// Reads a request of an admitted caller. Costs one pass over the body without copying it.
    /// `read` is empty before.
    ///
    /// # Errors
    ///
    /// The reason why the ids are not used.
    fn read<'a>(&'a self, request: &Request<'a>, read: &mut Read<'a>) -> Result<(), ReadError>;

    /// Writes the answer to a request. Costs the answer's bytes.
    fn write(&self, read: &Read<'_>, verdicts: &[Verdict]) -> Bytes;

    /// The answer to an unauthorized caller, and after a second failure: no bid.
    fn refusal(&self) -> Bytes;

    /// The answers' media type, if the platform requires one.
    fn content_type(&self) -> Option<&'static str>;

    /// The message of its answers, to show one as text; `None` if they are text already.
    fn answer_message(&self) -> Option<MessageDescriptor>;

    /// Hash of the schema that the config names; 0 if it names none.
    fn schema_fingerprint(&self) -> u64 {
        0
    }
}

/// A request of an admitted caller.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The way the caller was admitted.
    pub admission: Admission,
    /// Headers and query string.
    pub head: RequestHead<'a>,
    /// The body.
    pub body: &'a Bytes,
}

/// Hides the body: it holds ids.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}

/// A kind of platform: its config rules and its builder.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its word in the config, and its strategy ids.
    pub rules: KindRules,
    /// Builds an adapter for the config's strategy ids, the values of all strategies, and the tags
    /// of all buckets. A tag has no content if no strategy of the platform reads its experiment.
    ///
    /// # Errors
    ///
    /// Mistakes that only the build finds; empty if mistakes while reading left too little to
    /// build.
    pub build: Build,
    /// A `[[platform]]` table with comments, whose strategy is `new-users`, for a new config.
    pub example: &'static str,
}

/// Builds an adapter from its config table, and its strategy ids with their strategies' indexes.
type Build = fn(
    &PlatformConfig,
    Vec<(String, usize)>,
    &StrategyValues,
    &[Tag],
) -> Result<Box<dyn Adapter>, Vec<Mistake>>;

/// The way a caller is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The headers that the platform sends admit it.
    ByHeaders,
    /// It has access to the config: a captured body is explained. Headers are not checked. A
    /// signature is, if the captured parts of the request suffice. Its time is reported only: a
    /// captured request is old.
    Granted,
}

/// Headers and query string of a request.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The query string, without `?`.
    pub query: Option<&'a str>,
}

/// Hides the values: a header may be a secret.
impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead").finish_non_exhaustive()
    }
}

/// The bytes of a response.
#[inline]
pub fn encode(response: &impl Message) -> Bytes {
    response.encode_to_vec().into()
}

/// Whether a text has 1 to `longest` characters, all visible ASCII.
pub fn is_visible(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
