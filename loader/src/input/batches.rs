//! Batches of rows from the program around the loader: Arrow tables.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arrow_array::StructArray;
use parking_lot::Mutex;

/// Batches that may wait to be read.
const WAITING_BATCHES: usize = 2;

/// The receiving side of a stream of batches, which can be read once.
#[derive(Clone)]
pub struct Batches {
    header: Arc<[String]>,
    receiver: Arc<Mutex<Receiver<StructArray>>>,
}

impl Batches {
    /// A stream of batches with the columns of `header`. It ends when the sender is dropped.
    pub fn new(header: Vec<String>) -> (SyncSender<StructArray>, Self) {
        let (sender, receiver) = sync_channel(WAITING_BATCHES);
        let receiver = Arc::new(Mutex::new(receiver));
        let header = header.into();
        (sender, Self { header, receiver })
    }

    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&self) -> Option<StructArray> {
        self.receiver.lock().recv().ok()
    }
}

impl PartialEq for Batches {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.receiver, &other.receiver)
    }
}

impl Eq for Batches {}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
