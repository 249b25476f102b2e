//! Values: a number from 0 to 15 per member of a ribbon filter.
//!
//! The last four columns of a line are no fingerprint: their sums under a member's row are its
//! value. Under a non-member's row they are noise, which counts only if the fingerprint matches by
//! chance.
//!
//! Values are exact. A key that cannot be placed differs from a sum of others in its fingerprint or
//! in its value only; in the second case the tier would answer with a wrong value. Such keys are in
//! the list, which a lookup therefore reads before it believes a tier whose threshold says that the
//! key may have been diverted. An entry of the list has 60 bits of the hash and the value. Of keys
//! of one shard that share the 60 bits the largest value is kept.

use super::shape::{RowBits, Shape, Tier, ValueShape, with_any_shape, with_shape};
use super::{Hash, LINE_BYTES, Line, column, fraction, parities, second_bits, threshold};
use crate::device::DeviceKey;

pub const MASK: u8 = 15;
pub const LIST_ENTRY_BYTES: usize = 8;

/// The list's entry of a key, with its value or without.
pub fn list_entry(hash: Hash, value: Option<u8>) -> u64 {
    match value {
        None => hash.list_entry().into(),
        Some(value) => hash.high & !u64::from(MASK) | u64::from(value),
    }
}

pub const fn list_entry_value(entry: u64) -> u8 {
    entry as u8 & MASK
}

/// Appends sorted entries to a list, one for each hash. Returns their number.
pub fn write_list(bits: RowBits, entries: &[u64], list: &mut Vec<u8>) -> u32 {
    let mut written = 0;
    for same in entries.chunk_by(|a, b| a >> bits.value == b >> bits.value) {
        let largest = same.last().expect("no chunk is empty").to_le_bytes();
        list.extend_from_slice(&largest[..super::list_entry_bytes(bits)]);
        written += 1;
    }
    written
}

/// The value of a key in a filter with values; `None` if it is not a member. Safe for any bytes.
/// `lines` are the two of its row in the first tier, or none.
pub fn value_of<'a>(
    bits: RowBits,
    lines: &[u8],
    offset: u64,
    key: &DeviceKey,
    rest: impl FnOnce() -> (&'a [u8], &'a [u8]),
) -> Option<u8> {
    let hash = Hash::of(key);
    let lines: Option<&[Line; 2]> = lines.as_chunks().0.first_chunk();
    let (found, is_final) = lines.map_or((None, false), |lines| {
        with_any_shape!(bits, retrieve(lines, hash, offset))
    });
    if is_final {
        return found;
    }
    let (second, list) = rest();
    listed(list, hash)
        .or(found)
        .or_else(|| in_second(bits, second, hash))
}

fn listed(list: &[u8], hash: Hash) -> Option<u8> {
    let entries: &[[u8; LIST_ENTRY_BYTES]] = list.as_chunks().0;
    let bits = |entry: u64| entry >> 4;
    let index = entries
        .binary_search_by_key(&bits(hash.high), |entry| bits(u64::from_le_bytes(*entry)))
        .ok()?;
    Some(list_entry_value(u64::from_le_bytes(entries[index])))
}

/// The value in the second tier. The list has been read, so its thresholds do not matter.
#[cold]
fn in_second(first_bits: RowBits, second: &[u8], hash: Hash) -> Option<u8> {
    let again = hash.again();
    let starts = (second.len() / LINE_BYTES).checked_sub(1)?;
    let lines: &[Line] = second.as_chunks().0;
    let (line, offset) = again.start(starts);
    let lines = lines.get(line..)?.first_chunk()?;
    with_any_shape!(second_bits(first_bits), retrieve(lines, again, offset)).0
}

/// The value under a row if its fingerprint matches, and whether the key cannot have been diverted.
#[inline]
fn retrieve<T: Tier>(lines: &[Line; 2], hash: Hash, offset: u64) -> (Option<u8>, bool) {
    let [first, second] = lines;
    let (c0, rest) = hash.row::<T>();
    let c1 = rest & T::MASK;
    let fingerprint = rest >> T::SLOTS;
    let under = |j: usize| {
        if j < T::COLUMNS {
            column::<T>(first, j) & c0 ^ column::<T>(second, j) & c1
        } else {
            0
        }
    };
    let sums = |from: usize| parities(std::array::from_fn(|j| under(from + j)));
    // The first eight columns reject most non-members.
    let value = (sums(0) == fingerprint >> (T::BITS - 8))
        .then(|| (sums(8) << 8 | sums(16)) >> (24 - T::COLUMNS))
        .filter(|rest| rest >> T::VALUE_BITS == fingerprint & ((1 << (T::BITS - 8)) - 1))
        .map(|rest| rest as u8 & MASK);
    (
        value,
        threshold::<T>(first) + fraction::<T>(offset) < T::THRESHOLD_END,
    )
}

#[cfg(test)]
mod tests;
