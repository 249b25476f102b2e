//! Read side: `CURRENT`, manifests, chunks and deltas.
//!
//! Everything is verified as it is read: [`Store::chunk`] returns the published bytes or an error.
//!
//! * `CURRENT` is requested with `If-None-Match`, so an unchanged store costs a 304, once the tag
//!   is older than the coarsest time that a server puts in tags.
//! * A chunk or a delta is read in ranges (`download`); after a failure the read continues from the
//!   byte where it stopped. The number of resumes is bounded per object.
//! * With public keys, signatures are verified before anything is parsed (`read/signed.rs`).
//!
//! Later retries are up to the caller; [`crate::StoreError::retry_after`] may give the time.
//!
//! | file | job |
//! |---|---|
//! | `store` | opening, audiences, generations |
//! | `small` | whole small objects, of bounded size |
//! | `current` | `CURRENT` |
//! | `signed` | a file and its signature, verified |
//! | `manifests` | manifests |
//! | `chunks` | chunks |
//! | `deltas` | deltas, and the overlay of a `CURRENT` |

mod chunks;
mod current;
mod deltas;
mod manifests;
mod signed;
mod small;
mod store;

pub use chunks::ByteSink;
pub use current::Live;
pub use small::read_small;
pub(crate) use store::ListedManifests;
pub use store::Store;
