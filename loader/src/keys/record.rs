//! Records: keys with their values, in the 16 bytes of a key.
//!
//! A key's first byte is that of its partition, so in builds with values the value takes its place.
//! Of records with the same key the one with the largest byte is kept. A bit above the value puts
//! appended values before those of the input, whatever their size.

use rtad_core::device::DeviceKey;

use super::memory::KeyBytes;

const VALUE_SHIFT: u32 = 120;
const VALUE_MASK: u8 = 15;
const APPENDED: u8 = 16;

/// The record of a key with a value.
#[inline]
pub fn record(key: &DeviceKey, value: u8) -> KeyBytes {
    let mut bytes = *key.as_bytes();
    bytes[0] = value;
    bytes
}

/// The key of a partition's record, as a number.
pub const fn key_of(record: u128, partition: u8) -> u128 {
    record << 8 >> 8 | (partition as u128) << VALUE_SHIFT
}

/// The key and the value of a shard's record.
pub fn member(shard: u16, record: u128) -> (DeviceKey, u8) {
    let key = key_of(record, (shard >> 8) as u8);
    (
        DeviceKey::from_bytes(key.to_be_bytes()),
        (record >> VALUE_SHIFT) as u8 & VALUE_MASK,
    )
}

/// The values of appended keys in their records. One without a value has that of the input, or 0.
pub fn appended_values(values: &[Option<u8>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len());
    for value in values {
        bytes.push(match value {
            Some(value) => APPENDED | value,
            None => 0,
        });
    }
    bytes
}

/// Sorts records and moves those with the largest value of each key to the front. Returns their
/// number.
pub fn sort_and_keep_largest(records: &mut [u128]) -> usize {
    // The value behind the key: the largest is the last.
    for record in records.iter_mut() {
        *record = record.rotate_left(8);
    }
    records.sort_unstable();

    let mut len = 0;
    for index in 0..records.len() {
        let record = records[index];
        if records
            .get(index + 1)
            .is_none_or(|next| next >> 8 != record >> 8)
        {
            records[len] = record.rotate_right(8);
            len += 1;
        }
    }
    len
}
