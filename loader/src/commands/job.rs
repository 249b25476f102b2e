//! Distributed build: the commands that an engine such as Spark runs, and the data between them.
//!
//! ```text
//! begin ──▶ job, and the keys that deltas changed
//!   ids ──▶ keys ──▶ frames ══ shuffled by bucket ══▶ distinct ──▶ frames, and a key count
//!                    frames ══ shuffled by chunk ═══▶ chunk ─────▶ the store, and a line for
//!                                                                  publish ──▶ manifest, CURRENT
//! ```
//!
//! Any engine may run the steps, and may retry them:
//!
//! - `keys` and `distinct` depend on their input only.
//! - `chunk` writes under the digest of its content.
//! - `publish` alone, run once by one process, changes the live generation. It rejects reports
//!   that do not add up.
//!
//! Each step reports one line per input. Only one line of a retried step may be used.

mod begin;
mod chunk;
mod distinct;
pub mod error;
mod keys;
mod lines;
mod publish;
mod publish_report;
mod spec;

pub use begin::{BeginArgs, run as begin};
pub use chunk::{ChunkArgs, run as chunk};
pub use distinct::{DistinctArgs, run as distinct};
pub use keys::{KeysArgs, run as keys};
pub use publish::{PublishArgs, run as publish};
