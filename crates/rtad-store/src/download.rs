//! Downloads: the bytes of one object in blocks, resumed after failures, with stall detection.
//!
//! * No time-out covers a whole object. A read of less than 16 KiB within the stall time-out fails.
//! * All ranges are of one file: the entity tag of the first is the condition of the others.
//! * From a server without ranges the whole object is requested, and read up to its known size.

mod range;
mod stall;

#[cfg(test)]
pub use range::BLOCK_BYTES;
pub use range::RangeReader;
pub use stall::STALL_TIMEOUT;
pub use stall::StallTimer;
