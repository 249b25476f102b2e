//! Downloads: the bytes of one object in blocks, resumed after failures, given up when they stall.
//!
//! * No time-out covers a whole object. A read that brings less than 16 KiB in the stall time-out
//!   is given up: a byte a second is no progress either.
//! * All ranges are of one file: the entity tag of the first is the condition of the others.
//! * From a server without ranges the whole is requested, and read no further than the known size.
//!
//! The bytes have no meaning here; only their number is checked.

mod range;
mod stall;

#[cfg(test)]
pub(crate) use range::BLOCK_BYTES;
pub(crate) use range::RangeReader;
pub use stall::STALL_TIMEOUT;
pub(crate) use stall::StallTimer;
