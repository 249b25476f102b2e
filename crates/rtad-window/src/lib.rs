//! Event windows: "was this key seen within the last N ticks, and how often?", decided exactly
//! once per event. One thread per window does it.
//!
//! | module | job |
//! |---|---|
//! | `spec` | slot formats and sizes |
//! | `position` | keyed hash of a key: region, two buckets, fingerprint |
//! | `table` | regions of buckets: find, insert, count, clear, sweep |
//! | `window` | batches of events on a table; statistics |
//! | `answers` | answers kept for retries |
//! | `disk` | writes and syncs of files |
//! | `log` | write-ahead log: groups of slot contents |
//! | `checkpoint` | image of a table |
//! | `load` | checkpoint and log of a directory, read |
//! | `state_dir` | the directory, locked |
//! | `queue` | requests that wait for the thread |
//! | `journal` | the log while it is written |
//! | `settings` | how a window is run, and its state |
//! | `engine` | the thread |
//! | `handle` | requests to it from any thread |
//!
//! Each module uses only those above it in the table. Time is a *tick* of the caller's clock.

mod answers;
mod checkpoint;
mod disk;
mod engine;
mod handle;
mod journal;
mod load;
mod log;
mod position;
mod queue;
mod settings;
mod spec;
mod state_dir;
mod table;
mod window;

pub use answers::{AnswerLimits, RequestKey, Retry};
pub use checkpoint::CheckpointError;
pub use handle::WindowHandle;
pub use journal::Durability;
pub use load::{Loaded, OpenError, Shape};
pub use log::LogError;
pub use queue::{Failure, Observed, SavedCheckpoint};
pub use settings::{ChangeListener, Changed, Now, Settings, WindowState};
pub use spec::{Format, LOAD, SpecError, WindowSpec};
pub use state_dir::StateDir;
pub use window::{Seen, Window, WindowStats};

/// Device key, or md5 of any other text.
pub type Key = [u8; 16];

/// A key of a list. It has the alignment of a word, as the keys of audiences have, so the list
/// becomes theirs in its place: otherwise both are in memory at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(align(8))]
pub struct ListedKey(pub Key);
