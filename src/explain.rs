//! Explanations of answers: the ids of one captured request, the result for each, and the reasons.
//!
//! An explanation shows the membership of every id in every audience, every strategy's decision and
//! the bytes of the answer. A single id gets the same explanation without the bytes.
//!
//! The body passes through [`crate::platform::Platform::respond`], which also answers the platform:
//! an explanation shows what is served. Nothing is counted or logged. Only the caller sees the ids,
//! and no explanation contains a secret.
//!
//! Each file uses only those below it in the table.
//!
//! | file | job |
//! |---|---|
//! | `text`, `words` | an explanation for a terminal: tables, and reasons as sentences |
//! | `request` | explains a captured request |
//! | `platform`, `api` | the decisions about a request of a platform or to `/v1/decide` |
//! | `id` | explains a single id |
//! | `capture` | a captured request, its decisions and its answer |
//! | `parts` | audiences and strategies of an explanation |
//! | `explainer` | what explanations read |
//! | `report` | the explanation, as data |
//! | `trace` | a request's ids with their results, and its other fields |
//! | `input` | hex and base64 to bytes |
//!
//! This module does *not* load snapshots or read sockets.

mod api;
mod capture;
mod explainer;
mod id;
pub mod input;
mod parts;
mod platform;
mod report;
mod request;
mod text;
mod trace;
mod words;

pub use capture::Captured;
pub use explainer::Explainer;
pub use id::{AskedId, IdExplanation, explain_id};
pub use report::Explanation;
pub use request::{Target, audiences_of, explain, target_names};

#[cfg(test)]
mod tests;
