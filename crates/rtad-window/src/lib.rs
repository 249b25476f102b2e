//! Event windows: "was this key seen within the last N ticks, and how often?", decided exactly
//! once per event under any concurrency.
//!
//! | module | job |
//! |---|---|
//! | `sync` | locks and atomics, replaced by loom's for model checking |
//! | `spec` | slot formats and sizes |
//! | `position` | keyed hash of a key: region, two buckets, fingerprint |
//! | `table` | regions of buckets: find, insert, count, clear, sweep |
//! | `window` | batches of events on a table; statistics |
//! | `answers` | answers kept for retries |
//! | `log` | write-ahead log: groups of slot contents |
//! | `checkpoint` | image of a table |
//! | `durable` | window, log and checkpoints together |
//!
//! Each module uses only those above it in the table. Time is a *tick* that the caller sets;
//! nothing here reads a clock to decide about an event.

mod answers;
mod checkpoint;
mod durable;
mod log;
mod position;
mod spec;
mod sync;
mod table;
mod window;

pub use answers::Token;
pub use checkpoint::CheckpointError;
pub use durable::{
    Durability, Durable, DurableStats, Failure, Loaded, Observed, OpenError, SavedCheckpoint,
    StateDir, Ticket,
};
pub use log::LogError;
pub use spec::{Format, LOAD, SpecError, WindowSpec};
pub use window::{Seen, Window, WindowStats};

/// Device key, or md5 of any other text.
pub type Key = [u8; 16];
