//! The bytes of a row between a worker and the log's thread.
//!
//! A record has the key of the device: the log's thread gives it its name in the files. Both belong
//! to one process, so the bytes have no version.

use postcard::{take_from_bytes, to_slice};
use rtad_core::device::DeviceKey;
use serde::{Deserialize, Serialize};

use crate::row::{LogRow, LoggedFacts, RowEnd, as_bytes};

/// A device that the log's thread has not named yet.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct UnnamedDevice<'a>(#[serde(serialize_with = "as_bytes")] &'a [u8]);

/// Hides the key.
impl std::fmt::Debug for UnnamedDevice<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnnamedDevice(hidden)")
    }
}

impl<'a> UnnamedDevice<'a> {
    /// The device of a key.
    pub const fn new(key: &'a DeviceKey) -> Self {
        Self(key.as_bytes())
    }

    /// Its key.
    pub fn key(self) -> DeviceKey {
        DeviceKey::from_bytes(self.0.try_into().expect("a worker wrote 16 bytes"))
    }
}

/// Facts of a row in memory.
pub type UnnamedFacts<'a> = LoggedFacts<'a, UnnamedDevice<'a>>;

/// A row that does not fit into the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the row is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Encodes the facts of a row, its first part, into a buffer. Returns their length.
///
/// # Errors
///
/// [`TooLarge`] if the buffer is too small.
pub fn encode_facts(
    facts: Option<&UnnamedFacts<'_>>,
    buffer: &mut [u8],
) -> Result<usize, TooLarge> {
    encode(&facts, buffer)
}

/// Encodes the rest of a row into a buffer. Returns its length.
///
/// # Errors
///
/// [`TooLarge`] if the buffer is too small.
pub fn encode_end(end: &RowEnd<'_>, buffer: &mut [u8]) -> Result<usize, TooLarge> {
    encode(end, buffer)
}

fn encode(part: &impl Serialize, buffer: &mut [u8]) -> Result<usize, TooLarge> {
    let size = buffer.len();
    // The parts of a row are serializable: a full buffer is the only error.
    let written = to_slice(part, buffer).map_err(|_| TooLarge(size))?;
    Ok(written.len())
}

/// The row of a record.
///
/// # Panics
///
/// At bytes that are no record.
pub(crate) fn decode(record: &[u8]) -> LogRow<'_, UnnamedDevice<'_>> {
    let (facts, rest) = take_from_bytes(record).expect("a worker wrote the facts");
    let (end, _) = take_from_bytes(rest).expect("a worker wrote the rest");
    LogRow { facts, end }
}
