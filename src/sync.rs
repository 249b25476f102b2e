//! Sync: polls the store, loads and verifies new generations, and swaps the catalog.
//!
//! Each file uses only those above it:
//!
//! | file | job |
//! |---|---|
//! | `stores` | one store after the other |
//! | `cache` | verified chunks on the pod's disk |
//! | `error` | causes of a failed poll |
//! | `memory` | free memory, checked before a load |
//! | `pace` | delays between polls |
//! | `progress` | the newest, the served and the refused record of an audience |
//! | `shared` | results of polls and readiness, for other threads |
//! | `plan` | the work that a record asks for |
//! | `load` | reading and verifying a generation |
//! | `state` | [`Syncer`] itself; the swap |
//! | `roll` | replacing a generation chunk by chunk |
//! | `start` | the cache at the start of a pod |
//! | `apply` | the work of a plan |
//! | `poll` | one poll of one audience: read, plan, apply |
//! | `run` | the loop: polls, commands, reload |
//!
//! | poll result | catalog afterwards | counted as |
//! |---|---|---|
//! | nothing new | unchanged | `unchanged` |
//! | a new generation, fully verified | the new one, at once or [chunk by chunk](SwapMode) | `ok` |
//! | a failure | the last good generation; at start, the cached one | the cause |
//!
//! Audiences are polled independently. While a generation is downloaded, the record and the deltas
//! are still polled and applied to the served one.
//!
//! Chunks that the old generation also has are shared, not read again. The old catalog is freed on
//! the blocking pool once no request holds it. One [`Syncer`] is the only writer of the catalog.

mod apply;
mod cache;
mod error;
mod load;
mod memory;
mod pace;
mod plan;
mod poll;
mod progress;
mod roll;
mod run;
mod shared;
mod start;
mod state;
mod stores;

pub use error::SyncError;
pub use run::SyncCommand;
pub use shared::{LastSync, Readiness, Shared, SyncAlive, SyncHistory, SyncRun};
pub use state::{CatalogPlan, Syncer};
pub use stores::Stores;

pub use crate::config::SwapMode;
