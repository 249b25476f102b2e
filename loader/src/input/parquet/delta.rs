//! How many numbers a run in DELTA_BINARY_PACKED has, and where it ends.
//!
//! Lengths and prefixes of texts are written so. The `parquet` crate takes memory for as many as a run says before it reads one, so they are
//! counted here first, in no memory.

use super::thrift::{Broken, Compact};

/// Larger blocks are of no use to anybody.
const MAX_BLOCK: u64 = 1 << 20;

/// The length of the run at the beginning of `bytes`, if it has `most` numbers at most.
pub(super) fn run_bytes(bytes: &[u8], most: u64) -> Result<usize, Broken> {
    let mut compact = Compact::new(bytes);
    let (block, mini_blocks, numbers) = (compact.varint()?, compact.varint()?, compact.varint()?);
    compact.varint()?; // the first number
    let is_sound = block > 0
        && block <= MAX_BLOCK
        && mini_blocks > 0
        && block % mini_blocks == 0
        && (block / mini_blocks) % 32 == 0
        && numbers <= most;
    if !is_sound {
        return Err(Broken::Bad);
    }
    let per_mini_block = block / mini_blocks;
    let (mut at, mut left) = (compact.position(), numbers.saturating_sub(1));
    while left > 0 {
        let mut compact = Compact::new(bytes.get(at..).ok_or(Broken::End)?);
        compact.varint()?; // the smallest difference
        at += compact.position();
        let widths = bytes.get(at..at + mini_blocks as usize).ok_or(Broken::End)?;
        at += widths.len();
        for width in widths {
            // Behind the last number there are widths, but no bits.
            if left > 0 {
                at += usize::from(*width) * per_mini_block as usize / 8;
                left = left.saturating_sub(per_mini_block);
            }
        }
    }
    if at <= bytes.len() { Ok(at) } else { Err(Broken::End) }
}
