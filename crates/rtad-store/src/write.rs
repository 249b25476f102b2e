//! Write side: publishing, appending, rolling back, collecting garbage and deleting.
//!
//! A [`StoreWriter`] is created from a [`crate::Store`], unless that is read-only. Buckets replace
//! `CURRENT` by a conditional put. Directories have no conditional puts, so writers hold lock files
//! (`write/lock.rs`).
//!
//! | file | job | uses, of this folder |
//! |---|---|---|
//! | `lock` | the locks of an audience in a directory | |
//! | `probe` | checking that the server honors conditional puts | |
//! | `put` | one object, conditionally or not | `probe` |
//! | `sign` | making signatures | |
//! | `writer` | [`StoreWriter`]; signed files | `put`, `sign` |
//! | `current` | updates of `CURRENT`, the last step of every change | `writer`, `put`, `lock` |
//! | `deltas` | signing and merging deltas | `sign`, `current` |
//! | `chunks` | writing chunks, also before a publication | `writer`, `put`, `lock` |
//! | `gc/plan` | finding unneeded files | |
//! | `gc/mark` | `{audience}/GC`: the files that a gc is removing | `probe`, `gc/plan` |
//! | `gc/guard` | checking that no gc removes a publication's files | `gc/mark`, `chunks` |
//! | `gc` | removing unneeded files | `writer`, `lock`, `gc/plan`, `gc/mark` |
//! | `base` | the `CURRENT` when the work began | `writer` |
//! | `live` | making a generation live, with the deltas it keeps | `writer`, `current`, `deltas`, `base` |
//! | `publish` | publications: chunks, manifest, `CURRENT` | `writer`, `lock`, `probe`, `base`, `chunks`, `current`, `deltas`, `live`, `gc/guard` |
//! | `keys` | publications of keys in memory | `publish` |
//! | `rollback` | an older generation, with later deltas | `publish`, `live`, `put`, `gc/guard` |
//! | `change` | members and tombstones that are added or removed | |
//! | `append` | exact changes | `writer`, `current`, `change` |
//! | `delete` | deleting an audience | `writer`, `lock`, `append`, `gc` |
//! | `window` | checkpoints of event windows | `writer`, `put`, `lock` |

mod append;
mod base;
mod change;
mod chunks;
mod current;
mod delete;
mod deltas;
mod gc;
mod keys;
mod live;
mod lock;
mod probe;
mod publish;
mod put;
mod rollback;
mod sign;
mod window;
mod writer;

pub use crate::layout::MAX_TOMBSTONES;
pub use append::{Appended, Ledger};
pub use base::Base;
pub use change::Change;
pub use delete::Deletion;
pub use gc::{Collected, Retention};
#[cfg(test)]
pub(crate) use lock::{Creates, lock_shared};
pub use publish::{Publication, Published};
pub use sign::{Sign, check_signer};
pub use window::{Expected, LocalCheckpoint, StoredCheckpoint, WindowCurrent, WindowFolder};
pub use writer::StoreWriter;
