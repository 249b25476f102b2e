//! The decision log: facts of requests, from the workers to files.
//!
//! A worker decides whether it logs a request, and copies the facts into a ring of its own. One
//! thread takes them from the rings and writes files; another uploads and deletes files. Nothing of
//! it delays an answer: what does not fit is dropped and counted.
//!
//! | file | job | uses, of this folder |
//! |---|---|---|
//! | `key` | the secret: HMACs of devices, and the sample of devices | |
//! | `facts` | a request and its verdicts as a row | |
//! | `tap` | one worker's requests to its ring: sample, rows per second, bytes | `key`, `facts` |
//! | `upload` | files to a bucket, and their end | |
//! | `thread` | rings to files | `key`, `tap`, `upload` |

mod facts;
mod key;
mod tap;
mod thread;
mod upload;

pub use facts::{Decided, LoggedRequest};
pub use key::LogKey;
pub use tap::{DecidedRead, LogTap, LoggedAnswer, PendingRow};
pub use thread::DecisionLog;

pub use crate::platform::API;
