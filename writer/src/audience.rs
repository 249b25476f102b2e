//! Writes of audiences: one task with a queue per audience is the only one of this process that
//! writes it.
//!
//! | module | job |
//! |---|---|
//! | `batch` | coalescing of requests into one change |
//! | `commands` | commands to the task that writes an audience |
//! | `session` | the audience's ledger at the store |
//! | `changes` | changes of an audience as a whole |
//! | `members` | filters of the live generation, for `add_if_absent` |
//! | `writer` | the task; waiting writes are coalesced |
//! | `writers` | the tasks of this process |
//!
//! Each module uses only those above it in the table.

mod batch;
mod changes;
mod commands;
mod members;
mod session;
mod writer;
mod writers;

pub use batch::WriteRequest;
pub use commands::{AudienceChange, Written};
pub use writer::WriteLimits;
pub use writers::Writers;

/// False-positive rate of an audience for which none was chosen.
pub const DEFAULT_FPR: f64 = 0.0001;
