//! Ownership of a window: one process acknowledges its events, also after the loss of a disk or
//! without the store.
//!
//! | module | job |
//! |---|---|
//! | `lease` | how long an owner may acknowledge events without word from the store |
//! | `claim` | the start: files are read first, and the window is claimed last |
//! | `uploads` | the owner's checkpoints in the store, and its checks that it is still the owner |
//!
//! Each module uses only those above it in the table.

mod claim;
mod lease;
mod uploads;

pub(super) use claim::{Candidate, ClaimError, Claimed, Content};
pub(super) use uploads::{Begun, Stored, Uploads};
