//! Write side: publishing, appending, rolling back, collecting garbage and deleting.
//!
//! A [`StoreWriter`] is created from a [`crate::Store`], unless that is read-only. Every change
//! ends with the creation of the next record (`records.rs`).
//!
//! | file | job | uses, of this folder |
//! |---|---|---|
//! | `sign` | making signatures | |
//! | `writer` | [`StoreWriter`] | `sign` |
//! | `update` | the next record, the last step of every change | `writer`, `sign` |
//! | `folder` | folders of a directory | `writer` |
//! | `deltas` | merging deltas | `update` |
//! | `gc` | removing unneeded files | `update`, `folder` |
//! | `chunks` | writing chunks, also before a publication | `writer`, `folder`, `gc` |
//! | `base` | the state when the work began | `writer` |
//! | `live` | making a generation live, with the deltas it keeps | `update`, `deltas`, `base` |
//! | `publish` | publications: chunks, manifest, record | `base`, `chunks`, `folder`, `deltas`, `live` |
//! | `keys` | publications of keys in memory | `publish` |
//! | `rollback` | an older generation, with later deltas | `publish`, `live` |
//! | `stage` | a generation for a share of the pods | `rollback`, `live` |
//! | `mirror` | the state of an audience from another store | `chunks`, `folder` |
//! | `change` | members and tombstones that are added or removed | |
//! | `append` | exact changes | `update`, `change` |
//! | `delete` | deleting an audience | `append`, `gc` |
//! | `window` | segments and tables of event windows | `writer`, `folder` |
//! | `quota` | grants of caps | `writer`, `folder` |

mod append;
mod base;
mod change;
mod chunks;
mod delete;
mod deltas;
mod folder;
mod gc;
mod keys;
mod live;
mod mirror;
mod publish;
mod quota;
mod rollback;
mod sign;
mod stage;
mod update;
mod window;
mod writer;

pub use crate::layout::MAX_TOMBSTONES;
pub use append::{Appended, Ledger};
pub use base::Base;
pub use change::Change;
pub use chunks::ChunkPut;
pub use delete::Deletion;
pub use gc::{Collected, MIN_AGE, Retention};
pub use mirror::Mirrored;
pub use publish::{Publication, Published};
pub use quota::Quota;
pub use sign::{Sign, check_signer};
pub use window::{MIN_AGE as MIN_SEGMENT_AGE, TableReader, WindowFolder};
pub use writer::StoreWriter;
