//! Wire formats: bytes to ids and questions, decisions to bytes. One file per platform.
//!
//! As a strategy asks for memberships, an [`Adapter`] asks for decisions. So the same code serves a
//! request, explains a captured one, and runs in a test. A new platform is a file that implements
//! the trait, and a line of [`KINDS`].
//!
//! Each file uses only those below it in the table.
//!
//! | file | job |
//! |---|---|
//! | `respond` | a configured platform, and an answer whatever happens |
//! | `tencent`, `ocean` | the platforms' protocols, from the files in `proto/` |
//! | `custom` | any other's, mapped by the config |
//! | `adapter` | the trait of all protocols, and the parts that they share |
//! | `decider` | the trait of whoever decides, and failures |
//! | `describe` | answers in words |
//! | `ids` | ids to keys |
//! | `access` | secrets in headers |

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
pub use ids::{IdReader, Keys, MAX_IDS};
pub use ocean::Ocean;
pub use respond::{Answered, Platform};
pub use tencent::Tencent;

pub use crate::config::{MAX_STRATEGIES, Secret};
pub use rtad_core::device::IdField;

/// All kinds of platforms, in the order of the messages that list them.
pub const KINDS: [Kind; 3] = [tencent::KIND, ocean::KIND, custom::KIND];

#[cfg(test)]
mod testing;
