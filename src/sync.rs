//! Sync: polls the store, loads and verifies new generations, and swaps the catalog.
//!
//! | poll result | catalog afterwards | counted as |
//! |---|---|---|
//! | nothing new | unchanged | `unchanged` |
//! | a new generation, fully verified | the new one, at once or [chunk by chunk](SwapMode) | `ok` |
//! | a failure | the last good generation; at start, the cached one | the cause |
//!
//! Audiences are polled independently. While a generation is downloaded, `CURRENT` and the deltas
//! are still polled and applied to the served one.
//!
//! Chunks that the old generation also has are shared, not read again. The old catalog is freed on
//! the blocking pool once no request holds it. One [`Sync`] is the only writer of the catalog.
//!
//! | file | job | uses, of this folder |
//! |---|---|---|
//! | `error`, `memory`, `pace`, `progress`, `shared` | leaf types | `error`, `pace` |
//! | `cache` | verified chunks on the pod's disk | |
//! | `load` | reading and verifying a generation | `cache` and the leaves |
//! | `state` | [`Sync`] itself; the swap | `cache`, `load` and the leaves |
//! | `roll` | replacing a generation chunk by chunk | `state`, `load` |
//! | `plan` | the work that a `CURRENT` asks for | the leaves |
//! | `start` | the cache at the start of a pod | `state`, `load` |
//! | `poll` | one poll of one audience: read, plan, apply | `apply`, `start`, `plan` |
//! | `apply` | the work of a plan | `state`, `roll`, `load` |
//! | `run` | the loop: polls, commands, reload | `state`, `poll` |

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

pub use cache::cached_audiences;
pub use error::SyncError;
pub use poll::START_TIMEOUT;
pub use run::SyncCommand;
pub use shared::{LastSync, Readiness, Shared, SyncAlive, SyncHistory, SyncRun};
pub use state::{CatalogPlan, Sync};

pub use crate::config::SwapMode;
