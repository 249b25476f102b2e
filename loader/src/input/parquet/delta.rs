//! How many numbers a run in DELTA_BINARY_PACKED has, where it ends, and what they add up to.
//!
//! Lengths and prefixes of texts are written so. The `parquet` crate takes memory for as many as a run says before it reads one, so they are
//! counted here first, in no memory. It also copies each prefix, which may be long in a run that is short, so they are added up.

use super::thrift::{Broken, Compact};

/// Larger blocks are of no use to anybody.
const MAX_BLOCK: u64 = 1 << 20;

/// What a run has at its beginning.
struct Head {
    block: u64,
    mini_blocks: u64,
    numbers: u64,
    first: i64,
    bytes: usize,
}

impl Head {
    fn read(bytes: &[u8], most: u64) -> Result<Self, Broken> {
        let mut compact = Compact::new(bytes);
        let (block, mini_blocks, numbers) = (compact.varint()?, compact.varint()?, compact.varint()?);
        let first = compact.zigzag()?;
        let is_sound = block > 0
            && block <= MAX_BLOCK
            && mini_blocks > 0
            && block % mini_blocks == 0
            && (block / mini_blocks) % 32 == 0
            && numbers <= most;
        match is_sound {
            true => Ok(Self { block, mini_blocks, numbers, first, bytes: compact.position() }),
            false => Err(Broken::Bad),
        }
    }
}

/// The length of the run at the beginning of `bytes`, if it has `most` numbers at most.
pub(super) fn run_bytes(bytes: &[u8], most: u64) -> Result<usize, Broken> {
    walk(bytes, &Head::read(bytes, most)?, |_, _, _, _| Ok(()))
}

/// The same, and the sum of its numbers: of 32 bits, and none below 0.
pub(super) fn run_sum(bytes: &[u8], most: u64) -> Result<(usize, u64), Broken> {
    let head = Head::read(bytes, most)?;
    let small = |number: i64| i32::try_from(number).map_err(|_| Broken::Bad);
    let size = |number: i32| u64::try_from(number).map_err(|_| Broken::Bad);
    let mut number = small(head.first)?;
    let mut sum = if head.numbers > 0 { size(number)? } else { 0 };
    let end = walk(bytes, &head, |least, width, bits, count| {
        let least = small(least)?;
        if width > 32 {
            return Err(Broken::Bad);
        }
        let (mut buffer, mut held, mut bits) = (0_u64, 0, bits.iter());
        for _ in 0..count {
            while held < width {
                buffer |= u64::from(*bits.next().ok_or(Broken::End)?) << held;
                held += 8;
            }
            let packed = (buffer & ((1 << width) - 1)) as u32;
            buffer >>= width;
            held -= width;
            number = number.wrapping_add(least).wrapping_add(packed as i32);
            sum += size(number)?;
        }
        Ok(())
    })?;
    Ok((end, sum))
}

/// Gives `each` mini block's smallest difference, width, bits and count of numbers, and returns where the run ends.
fn walk(
    bytes: &[u8],
    head: &Head,
    mut each: impl FnMut(i64, u32, &[u8], u64) -> Result<(), Broken>,
) -> Result<usize, Broken> {
    let per_mini_block = head.block / head.mini_blocks;
    let (mut at, mut left) = (head.bytes, head.numbers.saturating_sub(1));
    while left > 0 {
        let mut compact = Compact::new(bytes.get(at..).ok_or(Broken::End)?);
        let least = compact.zigzag()?;
        at += compact.position();
        let widths = bytes.get(at..at + head.mini_blocks as usize).ok_or(Broken::End)?;
        at += widths.len();
        for width in widths {
            // Behind the last number there are widths, but no bits.
            if left > 0 {
                let end = at + usize::from(*width) * per_mini_block as usize / 8;
                let count = left.min(per_mini_block);
                each(least, u32::from(*width), bytes.get(at..end).ok_or(Broken::End)?, count)?;
                (at, left) = (end, left - count);
            }
        }
    }
    Ok(at)
}
