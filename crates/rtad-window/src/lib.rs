//! Event windows: "was this key seen within the last N ticks, and how often?", decided exactly
//! once per event. One engine per window does it.
//!
//! | module | job |
//! |---|---|
//! | `spec` | slot formats and sizes |
//! | `position` | keyed hash of a key: region, two buckets, fingerprint |
//! | `table` | regions of buckets: find, insert, count, clear, sweep |
//! | `window` | batches of events on a table; statistics |
//! | `answers` | answers kept for retries |
//! | `log` | groups of slot contents and answers |
//! | `error` | errors of what a window is read from |
//! | `head` | heads of segments and tables |
//! | `segment` | segments of the log |
//! | `image` | images of a table |
//! | `replica` | a window as it is in the store |
//! | `disk` | writes and syncs of files |
//! | `state_dir` | the directory of an owner, locked |
//! | `local_log` | groups that the store does not have yet |
//! | `uptime` | the clocks of staleness |
//! | `take_over` | the segment that makes a process the owner |
//! | `table_copy` | a copy of the table beside traffic |
//! | `queue` | requests that wait for the engine |
//! | `outbox` | segments on their way to the store |
//! | `journal` | the log while it is written: durability |
//! | `settings` | how a window is run, and its state |
//! | `engine` | the work of a window |
//! | `handle` | requests to the engine from any task |
//!
//! Each module uses only those above it in the table. Time is a *tick* of the caller's clock. The store is the caller's: it creates segments, uploads
//! tables, and reads both.

mod answers;
mod disk;
mod engine;
mod error;
mod handle;
mod head;
mod image;
mod journal;
mod local_log;
mod log;
mod outbox;
mod position;
mod queue;
mod replica;
mod segment;
mod settings;
mod spec;
mod state_dir;
mod table;
mod table_copy;
mod take_over;
mod uptime;
mod window;

pub use answers::{AnswerLimits, RequestKey, Retry};
pub use engine::Engine;
pub use error::OpenError;
pub use handle::{StartedWindow, WindowHandle};
pub use head::Shape;
pub use outbox::{
    MAX_UNSHIPPED_TIME, MIN_REMOVED_AGE, Outbox, Outgoing, TAKE_OVER_AFTER, max_unshipped_bytes,
};
pub use queue::{Failure, Observed};
pub use replica::{Replica, SegmentInfo};
pub use settings::{ChangeListener, Changed, Now, Settings, WindowState};
pub use spec::{Format, LOAD, SpecError, WindowSpec};
pub use state_dir::StateDir;
pub use table_copy::{TableCopy, TableError};
pub use take_over::{Durability, TakeOver};
pub use uptime::MachineTime;
pub use window::{Seen, Window, WindowStats};

/// Device key, or md5 of any other text.
pub type Key = [u8; 16];

/// A key of a list. It has the alignment of a word, as the keys of audiences have, so the list
/// becomes theirs in its place: otherwise both are in memory at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(align(8))]
pub struct ListedKey(pub Key);
