//! Construction of a shard's ribbon filter by elimination, line by line.
//!
//! Keys come sorted, so rows come by start line. A line's slots are the columns of a linear system;
//! elimination takes four of them at a time (the method of the Four Russians: after four pivots are
//! known, every other row is reduced by one entry of a table of their sums). A row without bits
//! left in the line goes on to the next with its bits there; one without any bits is redundant if
//! its fingerprint is 0 too, and is diverted if not. Then slots are solved from the last line to
//! the first.
//!
//! The result is unique, whatever the order of elimination: pivots are the leading slots of the
//! system, other slots are 0, and of linearly dependent rows the last in the order of keys is the
//! one that is diverted.

use super::shape::{RowBits, Shape, Tier, ValueShape, Word, with_any_shape, with_shape};
use super::value::{self, list_entry, list_entry_value};
use super::{
    Hash, LINE_BYTES, Line, MIN_SECOND_KEYS, ShardCounts, first_lines, fraction, second_bits,
    second_lines,
};
use crate::device::DeviceKey;
use crate::filter::FilterSpec;

/// Columns eliminated at a time.
const STEP: usize = 4;

/// A row in the course of elimination. Word 0: its bits in the current line. Word 1: its bits in
/// the next line, and the sum above them: the fingerprint, then the value. The index of its key is
/// in the bits left, the low ones in word 0; a pivot has none.
type Row = [u64; 2];

#[inline]
const fn sum(a: Row, b: Row) -> Row {
    [a[0] ^ b[0], a[1] ^ b[1]]
}

/// The row if `condition` is 1, zeros if 0.
#[inline]
const fn masked(row: Row, condition: u64) -> Row {
    let mask = 0_u64.wrapping_sub(condition);
    [row[0] & mask, row[1] & mask]
}

/// Builder of filters, with memory that it reuses from shard to shard: 32 bytes per key of a shard.
#[derive(Debug, Default)]
pub(crate) struct RibbonBuilder {
    keys: Vec<Hash>,
    /// The values of `keys`; empty if the filter has none.
    values: Vec<u8>,
    diverted: Vec<Hash>,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Scratch {
    /// Rows without a pivot so far.
    work: Vec<Row>,
    /// The pivot of each slot; zeros if it has none.
    pivots: Vec<Row>,
    /// Indices of the keys that cannot be placed.
    diverted: Vec<u32>,
    /// Those of them that the tier answers with another value. No tier may answer for them.
    ambiguous: Vec<u32>,
}

impl RibbonBuilder {
    /// Appends a shard's filter to `parts`: first tier, second tier and list. `members` are keys,
    /// sorted and distinct, and their values, which a filter without values ignores. Costs about
    /// 45 ns per key.
    pub(crate) fn build(
        &mut self,
        spec: &FilterSpec,
        shard: u16,
        members: impl Iterator<Item = (DeviceKey, u8)>,
        parts: [&mut Vec<u8>; 3],
    ) -> ShardCounts {
        let bits = spec.row_bits(shard);
        let Self {
            keys: hashes,
            values,
            diverted,
            scratch,
        } = self;

        let [first, second, list] = parts;
        hashes.clear();
        values.clear();
        for (key, value) in members {
            hashes.push(Hash::of(&key));
            if bits.value > 0 {
                values.push(value & value::MASK);
            }
        }

        let mut counts = ShardCounts {
            keys: hashes.len() as u32,
            diverted: 0,
            listed: 0,
        };

        let lines = first_lines(counts.keys, bits) as usize;
        let (keys, values, work): (&[Hash], &[u8], _) = (hashes, values, scratch);
        with_any_shape!(bits, solve(work, keys, values, lines, first));
        let entry = |key: &u32| {
            let key = *key as usize;
            list_entry(keys[key], values.get(key).copied())
        };

        let mut left: Vec<u64> = work
            .diverted
            .iter()
            .chain(&work.ambiguous)
            .map(entry)
            .collect();
        if counts.keys >= MIN_SECOND_KEYS {
            counts.diverted = work.diverted.len() as u32;
            let lines = second_lines(counts.diverted, bits) as usize;
            if lines > 0 {
                // Sorted by the hashes of the second tier, with the list's entry.
                let mut again: Vec<(Hash, u64)> = work
                    .diverted
                    .iter()
                    .map(|key| (keys[*key as usize].again(), entry(key)))
                    .collect();
                left.drain(..again.len());
                again.sort_unstable();
                diverted.clear();
                diverted.extend(again.iter().map(|(hash, _)| *hash));
                let values: Vec<u8> = match bits.value {
                    0 => Vec::new(),
                    _ => again
                        .iter()
                        .map(|(_, entry)| list_entry_value(*entry))
                        .collect(),
                };
                let (keys, values): (&[Hash], &[u8]) = (diverted, &values);
                with_any_shape!(second_bits(bits), solve(work, keys, values, lines, second));
                let missing = work.diverted.iter().chain(&work.ambiguous);
                left.extend(missing.map(|key| again[*key as usize].1));
            }
        }

        left.sort_unstable();
        counts.listed = value::write_list(bits, &left, list);
        counts
    }
}

/// Appends `lines` lines with the rows of `keys` to `out`, and leaves in `scratch` the indices of
/// the keys that could not be placed: all without lines.
fn solve<T: Tier>(
    scratch: &mut Scratch,
    keys: &[Hash],
    values: &[u8],
    lines: usize,
    out: &mut Vec<u8>,
) {
    let Scratch {
        work,
        pivots,
        diverted,
        ambiguous,
    } = scratch;

    diverted.clear();
    ambiguous.clear();
    if lines == 0 {
        diverted.extend(0..keys.len() as u32);
        return;
    }

    let starts = lines - 1;
    work.clear();
    pivots.clear();
    pivots.resize(lines * T::SLOTS, [0; 2]);
    let mut next = 0;
    for (line, pivots) in pivots.chunks_exact_mut(T::SLOTS).enumerate() {
        while next < keys.len() && keys[next].start(starts).0 == line {
            let (c0, mut rest) = keys[next].row::<T>();
            if T::VALUE_BITS > 0 {
                let c1 = rest & T::MASK;
                let fingerprint = rest >> T::SLOTS;
                let sum = fingerprint << T::VALUE_BITS | u64::from(values[next]);
                rest = c1 | sum << T::SLOTS;
            }
            let index = next as u64;
            work.push([
                c0 | index << T::SLOTS,
                rest | index >> (64 - T::SLOTS) << (T::SLOTS + T::COLUMNS),
            ]);
            next += 1;
        }
        for slot in (0..T::SLOTS).step_by(STEP) {
            if work.is_empty() {
                break;
            }
            let end = T::SLOTS.min(slot + STEP);
            eliminate::<T>(work, slot, &mut pivots[slot..end]);
        }
        // No row has bits left in this line.
        work.retain_mut(|row| {
            let index_low = row[0] >> T::SLOTS;
            let index_high = row[1] >> (T::SLOTS + T::COLUMNS);
            let c1 = row[1] & T::MASK;
            let sum = row[1] >> T::SLOTS & ((1 << T::COLUMNS) - 1);
            *row = [
                c1 | index_low << T::SLOTS,
                sum << T::SLOTS | index_high << (T::SLOTS + T::COLUMNS),
            ];
            if c1 == 0 && sum != 0 {
                let index = (index_low | index_high << (64 - T::SLOTS)) as u32;
                // The sum that is left is the difference to what a lookup will find.
                let is_found = sum >> T::VALUE_BITS == 0;
                if is_found {
                    ambiguous.push(index)
                } else {
                    diverted.push(index)
                }
            }
            c1 != 0
        });
    }

    let from = out.len();
    out.resize(from + lines * LINE_BYTES, 0);
    let out: &mut [Line] = out[from..].as_chunks_mut().0;
    substitute::<T>(pivots, out);
    for key in diverted.iter().chain(&*ambiguous) {
        let (line, offset) = keys[*key as usize].start(starts);
        raise_threshold::<T>(&mut out[line], T::THRESHOLD_END - fraction::<T>(offset));
    }
}

/// Finds the pivots of up to four slots, from `slot` on, among the rows of `work`, and clears these
/// slots in the rows that remain. A pivot is the first row, in order, that has the slot.
fn eliminate<T: Tier>(work: &mut Vec<Row>, slot: usize, found: &mut [Row]) {
    let all = (1_u64 << found.len()) - 1;
    // Mutually reduced: each has one of the slots, so a row's own bits name the pivots to add.
    let mut pivots = [[0; 2]; STEP];
    let mut complete = 0;
    let mut read = 0;
    let mut kept = 0;
    while read < work.len() && complete != all {
        let mut row = work[read];
        read += 1;
        let bits = row[0] >> slot;
        for (p, pivot) in pivots.iter().enumerate() {
            row = sum(row, masked(*pivot, bits >> p & 1));
        }
        let bits = row[0] >> slot & all;
        if bits == 0 {
            work[kept] = row;
            kept += 1;
            continue;
        }
        let p = bits.trailing_zeros() as usize % STEP;
        let new = [
            row[0] & T::MASK,
            row[1] & ((1 << (T::SLOTS + T::COLUMNS)) - 1),
        ];
        for pivot in &mut pivots {
            *pivot = sum(*pivot, masked(new, pivot[0] >> (slot + p) & 1));
        }
        pivots[p] = new;
        complete |= 1 << p;
    }

    if kept < read {
        let mut sums = [[0; 2]; 1 << STEP];
        for (p, pivot) in pivots.iter().enumerate() {
            let (known, new) = sums.split_at_mut(1 << p);
            for (known, new) in known.iter().zip(new) {
                *new = sum(*known, *pivot);
            }
        }
        let rest = work.len() - read;
        // One slice for both ends: no bounds checks in the loop.
        let rows = &mut work[kept..];
        let gap = read - kept;
        for i in 0..rows.len() - gap {
            let row = rows[i + gap];
            let bits = row[0] >> slot & all;
            rows[i] = sum(row, sums[bits as usize % (1 << STEP)]);
        }
        work.truncate(kept + rest);
    }

    found.copy_from_slice(&pivots[..found.len()]);
}

/// Slots whose sums are tabulated together.
const GROUP: usize = 4;
/// Groups of the longest line.
const GROUPS: usize = 42_usize.div_ceil(GROUP);
/// Whether the entries of a table have the slot, for each slot of a group.
const ENTRIES: [[bool; 1 << GROUP]; GROUP] = {
    let mut masks = [[false; 1 << GROUP]; GROUP];
    let mut i = 0;
    while i < GROUP << GROUP {
        let slot = i >> GROUP;
        let entry = i % (1 << GROUP);
        masks[slot][entry] = entry >> slot & 1 == 1;
        i += 1;
    }
    masks
};

/// The sums of the values of every set of slots of each group of a line.
type Sums<W> = [[W; 1 << GROUP]; GROUPS];

/// Solves the slots from the last to the first, and writes the lines. The sum of the slots under a
/// row is looked up group by group.
fn substitute<T: Tier>(pivots: &[Row], out: &mut [Line]) {
    let mut next: Sums<T::Word> = [[T::Word::ZERO; 1 << GROUP]; GROUPS];
    for (line, pivots) in out.iter_mut().zip(pivots.chunks_exact(T::SLOTS)).rev() {
        let mut sums: Sums<T::Word> = [[T::Word::ZERO; 1 << GROUP]; GROUPS];
        let mut values = [T::Word::ZERO; 48];
        for (slot, [c0, rest]) in pivots.iter().enumerate().rev() {
            if *c0 == 0 {
                continue;
            }
            let mut value = T::Word::truncated(rest >> T::SLOTS);
            for (group, next) in next[..T::SLOTS.div_ceil(GROUP)].iter().enumerate() {
                value ^= next[(rest & T::MASK) as usize >> (GROUP * group) & 15];
            }
            // Slots below this one are not under the row.
            for (group, sums) in sums.iter().enumerate().skip(slot / GROUP) {
                value ^= sums[*c0 as usize >> (GROUP * group) & 15];
            }
            values[slot] = value;
            for (sum, has_slot) in sums[slot / GROUP].iter_mut().zip(ENTRIES[slot % GROUP]) {
                *sum ^= value
                    & if has_slot {
                        T::Word::ONES
                    } else {
                        T::Word::ZERO
                    };
            }
        }
        write_line::<T>(&values, line);
        next = sums;
    }
}

/// Packs the values of a line's slots, column by column.
fn write_line<T: Tier>(values: &[T::Word; 48], line: &mut Line) {
    // Bit j of a value belongs to the column that is number j from the end.
    let mut columns = [0_u64; 24];
    for (group, values) in values.as_chunks::<8>().0.iter().enumerate() {
        for (byte, columns) in columns
            .chunks_exact_mut(8)
            .take(T::COLUMNS.div_ceil(8))
            .enumerate()
        {
            let bits = values.map(|value| (value.into() >> (8 * byte)) as u8);
            let bits = transposed(u64::from_le_bytes(bits)).to_le_bytes();
            for (column, bits) in columns.iter_mut().zip(bits) {
                *column |= u64::from(bits) << (8 * group);
            }
        }
    }

    let mut words = [0_u64; LINE_BYTES / 8 + 1];
    for (j, column) in columns[..T::COLUMNS].iter().rev().enumerate() {
        let word = j * T::SLOTS / 64;
        let shift = j * T::SLOTS % 64;
        words[word] |= column << shift;
        if shift + T::SLOTS > 64 {
            words[word + 1] |= column >> (64 - shift);
        }
    }

    for (bytes, word) in line.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
}

/// The transpose of a matrix of 8 by 8 bits, a byte per row: Warren, *Hacker's Delight*, 7-3.
const fn transposed(rows: u64) -> u64 {
    const fn swap(rows: u64, distance: u32, mask: u64) -> u64 {
        let differing = (rows ^ rows >> distance) & mask;
        rows ^ differing ^ differing << distance
    }
    let rows = swap(rows, 7, 0x00aa_00aa_00aa_00aa);
    let rows = swap(rows, 14, 0x0000_cccc_0000_cccc);
    swap(rows, 28, 0x0000_0000_f0f0_f0f0)
}

fn raise_threshold<T: Tier>(line: &mut Line, threshold: u64) {
    if threshold > super::threshold::<T>(line) {
        let shift = 64 - T::THRESHOLD_BITS;
        let word = super::word(line, LINE_BYTES - 8) & ((1 << shift) - 1) | threshold << shift;
        line[LINE_BYTES - 8..].copy_from_slice(&word.to_le_bytes());
    }
}
