//! Read side: records, manifests, chunks and deltas.
//!
//! Everything is verified as it is read: [`Store::chunk`] returns the published bytes or an error.
//!
//! * With public keys, a record's signature is verified before it is parsed. All other files are
//!   named by it, or by each other, by SHA-256.
//! * A chunk or a delta is read with one request (`download`); after a failure the read continues
//!   from the byte where it stopped.
//!
//! Later retries are up to the caller.
//!
//! | file | job |
//! |---|---|
//! | `store` | opening, audiences |
//! | `small` | whole small objects, of bounded size |
//! | `record` | records of audiences |
//! | `manifests` | manifests |
//! | `chunks` | chunks |
//! | `deltas` | deltas, and the overlay of a record |

mod chunks;
mod deltas;
mod manifests;
mod record;
mod small;
mod store;

pub use chunks::ByteSink;
pub use record::{Live, has_signature, record_object};
pub use small::read_small;
pub use store::Store;
