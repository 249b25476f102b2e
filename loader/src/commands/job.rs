//! Build on Spark: the two commands that the Spark job runs, and the JSON between them.
//!
//! ```text
//! publish (driver) ──▶ job: the filters and the newest record
//!    rtad.keys (tasks) ──▶ keys ══ one shuffle: partitioned and sorted ══▶ chunk (tasks) ──▶ store
//! publish (driver) ◀── report lines of all tasks ──▶ manifest, record
//! ```
//!
//! Spark may retry a task or run it twice:
//!
//! - A *part* is a range of shards, one of a power of two. `chunk` depends on the keys of its part
//!   and on the job only, and writes chunks under the digest of their content.
//! - `publish` runs once, in the driver, from before the first task until after the last. It alone
//!   changes the live generation, and rejects reports that do not add up.

mod chunk;
mod error;
mod key_stream;
mod lines;
mod part;
mod publish;
mod publish_report;
mod spec;

pub use chunk::{ChunkArgs, run as chunk};
pub use publish::{PublishArgs, run as publish};
