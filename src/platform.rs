//! Ad platforms' protocols: request bytes to data, decisions to response bytes. One file per
//! platform.
//!
//! An [`Adapter`] reads a body into a [`Read`], and writes an answer from it and the [`Verdict`]s
//! about it. The same code serves a request, explains a captured one, and runs in a test. A new
//! platform needs a file that implements the trait, and an entry of [`KINDS`].
//!
//! Each file uses only those below it in the table.
//!
//! | file | job |
//! |---|---|
//! | `respond` | a configured platform, and an answer to every request |
//! | `tencent`, `ocean` | protocols of these platforms, from the files in `proto/` |
//! | `custom` | protocols that the config maps |
//! | `adapter` | the trait of all protocols |
//! | `describe` | answers as text |
//! | `bid_values` | values of bids in the form of a protocol |
//! | `verdict` | decisions about a request, and the cache time of its answer |
//! | `read` | a request as data |
//! | `failure` | causes of answers without decisions |
//! | `fields` | fields of a protobuf message |
//! | `value` | a value of a request |
//! | `ids` | ids to keys |
//! | `access` | access by secrets in headers |

pub mod access;
mod adapter;
mod bid_values;
pub mod custom;
mod describe;
mod failure;
mod fields;
pub mod ids;
pub mod ocean;
mod read;
mod respond;
pub mod tencent;
mod value;
mod verdict;

pub use access::Access;
pub use adapter::{Adapter, Admission, Kind, Request, RequestHead};
pub use bid_values::StrategyValues;
pub use custom::Custom;
pub use failure::{Failure, ReadError};
pub use ids::{IdReader, Keys, MAX_IDS, MAX_READ_IDS};
pub use ocean::Ocean;
pub use read::{Asked, AskedList, Id, IdIndex, Known, Note, Purpose, Read, SkippedId, StrategyIds};
pub use respond::{Answered, Platform};
pub use tencent::Tencent;
pub use value::{Digits, Value};
pub use verdict::{CacheTimes, Verdict, Verdicts};

pub use crate::config::{MAX_STRATEGIES, Secret};
pub use rtad_core::device::IdField;

/// All kinds of platforms, in the order of messages that list them.
pub const KINDS: [Kind; 3] = [tencent::KIND, ocean::KIND, custom::KIND];

#[cfg(test)]
mod testing;
