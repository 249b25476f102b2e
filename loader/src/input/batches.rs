//! Batches of rows from the program around the loader: Arrow tables.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arrow_array::StructArray;
use arrow_schema::Fields;
use parking_lot::Mutex;

/// Batches that may wait to be read.
const WAITING_BATCHES: usize = 2;

/// The receiving side of a stream of batches, which can be read once.
#[derive(Clone)]
pub struct Batches {
    fields: Fields,
    receiver: Arc<Mutex<Receiver<StructArray>>>,
}

impl Batches {
    /// A stream of batches with these columns. It ends when the sender is dropped.
    pub fn new(fields: Fields) -> (SyncSender<StructArray>, Self) {
        let (sender, receiver) = sync_channel(WAITING_BATCHES);
        let receiver = Arc::new(Mutex::new(receiver));
        (sender, Self { fields, receiver })
    }

    /// Columns of the first batch. Later ones have columns of the same names.
    pub(crate) const fn fields(&self) -> &Fields {
        &self.fields
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
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}
