//! Snapshot store: loaders publish snapshots, pods read them.
//!
//! **Job.** Reading ([`Store`]) and writing ([`write::StoreWriter`]) the files that `layout.rs`
//! names: in a directory, a bucket, or read-only behind an HTTP server. All access goes through
//! [`object_store`]. Every file is verified when it is read.
//!
//! **May use.** `rtad-core` for the file formats; HTTP clients; tokio.
//!
//! **Does not do.** Building chunks of more keys than fit in memory, reading dumps (`rtad-loader`),
//! deciding what to load and when to poll (`rtad`), keeping secret keys (the caller implements
//! [`write::Sign`]).
//!
//! A pod uses [`Store`] alone, which cannot write. A loader creates a [`write::StoreWriter`] from
//! it.
//!
//! | module | job | uses, of this crate |
//! |---|---|---|
//! | [`layout`] | paths and names of files | |
//! | `blocking` | work off the runtime's threads | |
//! | `url` | URLs of stores and objects | |
//! | `trust` | public keys, and checking signatures | `layout` |
//! | `client` | the HTTP client under object_store: lists, error bodies | |
//! | `error` | [`StoreError`] | `layout`, `url`, `trust` |
//! | `remote` | clients of buckets and HTTP servers | `url`, `client` |
//! | `backend` | a directory or a client, its capabilities, and put-if-absent | `url`, `error`, `remote` |
//! | `download` | resuming reads of one object | `blocking`, `error` |
//! | [`object`] | remote objects that are not part of a store | `url`, `error`, `remote`, `download` |
//! | [`folder`] | whole files that are not part of a store | `url`, `error`, `backend` |
//! | `records`, `read` | for pods and loaders: records, manifests, chunks, deltas | all above but `object` and `folder` |
//! | [`mod@write`] | for loaders: publish, append, roll back, gc, delete | all above but `object` and `folder` |
//!
//! Each module uses only modules above it, and so does each file inside `read` and `write`.

mod backend;
mod blocking;
mod client;
mod download;
mod error;
pub mod folder;
pub mod layout;
pub mod object;
mod read;
mod records;
mod remote;
mod trust;
mod url;
pub mod write;

pub use download::STALL_TIMEOUT;
pub use error::StoreError;
pub use read::{ByteSink, Live, Store};
pub use records::MAX_OBJECT_BYTES as MAX_RECORD_OBJECT_BYTES;
pub use trust::{
    ACCEPTED_KEYS, MAX_SIGNATURE_BYTES, PublicKey, PublicKeyError, SignatureError, Trust,
};
pub use url::{ACCEPTED_URLS, UrlError, redacted};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
