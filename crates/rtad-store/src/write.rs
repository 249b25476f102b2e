//! Write side: publishing, appending, rolling back, collecting garbage and deleting.
//!
//! A [`StoreWriter`] is made from a [`crate::Store`] by an explicit call, and refuses a store that
//! is read-only. Stores differ in one point: how `CURRENT` is replaced without overwriting another
//! loader's publish. A bucket does it by a conditional put. A directory has no such put, so lock
//! files are held while files are written (`write/lock.rs`).
//!
//! | file | job | uses, of this folder |
//! |---|---|---|
//! | `lock` | the locks of an audience in a directory | |
//! | `put` | one object, conditionally or not; `CURRENT` | |
//! | `sign` | making signatures | |
//! | `writer` | [`StoreWriter`]; signed files | `put`, `sign` |
//! | `deltas` | writing and joining deltas | `writer` |
//! | `chunks` | writing chunks, also ahead of a publication | `writer`, `put`, `lock` |
//! | `gc/plan` | finding what no kept generation needs | |
//! | `gc/mark` | `{audience}/GC`: what a gc is about to remove | `gc/plan` |
//! | `gc/guard` | checking that no gc removes what a publication needs | `gc/mark` |
//! | `gc` | removing what no kept generation needs | `writer`, `lock`, `gc/plan`, `gc/mark` |
//! | `delete` | deleting an audience | `writer`, `lock`, `put`, `gc` |
//! | `base` | what was live when the work began | `writer` |
//! | `live` | making a generation live, with the deltas it keeps | `writer`, `put`, `lock`, `deltas`, `base` |
//! | `publish` | publications: chunks, manifest, `CURRENT` | `writer`, `lock`, `base`, `chunks`, `deltas`, `live`, `gc/guard` |
//! | `rollback` | an older generation, with later deltas | `publish`, `live`, `put`, `gc/guard` |
//! | `append` | exact changes | `writer`, `put`, `lock`, `deltas` |

mod append;
mod base;
mod chunks;
mod delete;
mod deltas;
mod gc;
mod live;
mod lock;
mod publish;
mod put;
mod rollback;
mod sign;
mod writer;

pub use append::{Appended, Change, Ledger};
pub use base::Base;
pub use delete::Deletion;
pub use gc::{Collected, Retention};
#[cfg(test)]
pub(crate) use lock::lock_shared;
pub use publish::Publication;
pub use sign::{Sign, check_signer};
pub use writer::StoreWriter;
