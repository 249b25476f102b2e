//! A captured request, and the decisions and the answer that it gets.

use std::collections::BTreeSet;
use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderMap;

use super::input::Encoding;
use super::report::{AccessChecked, ExplainedAnswer, FailureExplained, StrategyExplained};
use super::trace::Trace;
use crate::platform::{Access, RequestHead};

/// A captured request.
#[derive(Clone)]
pub struct Captured<'a> {
    /// Headers and query string.
    pub head: RequestHead<'a>,
    /// The time of the schedules; now without one.
    pub at: Option<SystemTime>,
    /// Whether the headers are complete; if not, the caller's access is not checked.
    pub has_headers: bool,
    /// The body's bytes.
    pub body: Bytes,
    /// The encoding in which the body was given.
    pub encoding: Encoding,
    /// `server.max_body`.
    pub max_body: usize,
}

/// Hides the body: it holds ids.
impl fmt::Debug for Captured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured")
            .field("encoding", &self.encoding)
            .finish_non_exhaustive()
    }
}

/// The decisions about a captured request, and its answer.
pub struct Outcome {
    pub access: AccessChecked,
    pub trace: Trace,
    /// Whether each id is a device of its own.
    pub is_batch: bool,
    /// Indexes of the audiences that its strategies read.
    pub audiences: BTreeSet<usize>,
    pub strategies: Vec<StrategyExplained>,
    pub failure: Option<FailureExplained>,
    pub answer: ExplainedAnswer,
}

/// Access by headers, which are complete or absent.
pub fn access_by_headers(access: &Access, headers: &HeaderMap, has_headers: bool) -> AccessChecked {
    if access.is_open() {
        AccessChecked::Open
    } else if !has_headers {
        AccessChecked::NotChecked
    } else if access.admits(headers) {
        AccessChecked::Admitted
    } else {
        AccessChecked::Refused
    }
}
