//! Ad platforms' protocols: request bytes to ids, decisions to response bytes. One file per
//! platform.
//!
//! An [`Adapter`] passes ids to a [`Decider`] and gets decisions from it. The same code serves a
//! request, explains a captured one, and runs in a test. A new platform needs a file that
//! implements the trait, and an entry of [`KINDS`].
//!
//! Each file uses only those below it in the table.
//!
//! | file | job |
//! |---|---|
//! | `respond` | a configured platform, and an answer to every request |
//! | `tencent`, `ocean` | protocols of these platforms, from the files in `proto/` |
//! | `custom` | protocols that the config maps |
//! | `adapter` | the trait of all protocols, and shared parts |
//! | `decider` | the trait for ids in and decisions out, and failures |
//! | `describe` | answers as text |
//! | `ids` | ids to keys |
//! | `access` | access by secrets in headers |

pub mod access;
mod adapter;
pub mod custom;
mod decider;
mod describe;
pub mod ids;
pub mod ocean;
mod respond;
pub mod tencent;

pub use access::Access;
pub use adapter::{Adapter, Admission, CacheTimes, Head, Kind, StrategyIds};
pub use custom::Custom;
pub use decider::{Decider, Failure, Id, UNREADABLE};
pub use ids::{IdReader, Keys, MAX_IDS, MAX_READ_IDS};
pub use ocean::Ocean;
pub use respond::{Answered, Platform};
pub use tencent::Tencent;

pub use crate::config::{MAX_STRATEGIES, Secret};
pub use rtad_core::device::IdField;

/// All kinds of platforms, in the order of messages that list them.
pub const KINDS: [Kind; 3] = [tencent::KIND, ocean::KIND, custom::KIND];

#[cfg(test)]
mod testing;
