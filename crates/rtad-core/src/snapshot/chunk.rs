//! Chunk: the filters of a run of adjacent shards in one file, named by its SHA-256.
//!
//! ```text
//! offset  size  field               little-endian
//!      0     8  magic               "RTADCHNK"
//!      8     4  version             1
//!     12     4  filter kind         2 block512, 3 ribbon
//!     16     4  hashes              probes per key
//!     20     4  millibits per key   sizes every shard
//!     24     4  first shard
//!     28     4  shard count         n
//!     32     8  keys                in all shards
//!     40     8  body bytes
//!     48     4  value bits          per key: 4, or 0 without values
//!     52    12  zero
//!     64   4·n  keys of each shard  u32
//!      …   4·n  diverted keys       u32, only of ribbon
//!      …   4·n  listed keys         u32, only of ribbon
//!      …        zero, up to a multiple of 64
//!      …  body  the shards' filters, back to back; of ribbon all first tiers, then all second
//!               tiers, then all lists
//! ```
//!
//! Reasons for this order:
//!
//! * Fixed fields first: a reader knows all sizes before it allocates memory.
//! * Counts together: all offsets are known before the first filter arrives.
//! * Body at a multiple of a cache line: the file can also be memory-mapped.
//!
//! Every field repeats a value of the manifest or of another field, so that a misplaced file is
//! rejected with the name of the field.

mod error;
mod reader;

use serde::{Deserialize, Serialize};

pub use error::ChunkError;
pub use reader::{ChunkDecoder, ChunkReader, ChunkVerifier};

use super::name::Digest;
use crate::device::DeviceKey;
use crate::filter::{FilterKind, FilterSpec, ProbeTarget, ShardCounts, ShardFilter};
use crate::memory::Region;

const MAGIC: [u8; 8] = *b"RTADCHNK";
const VERSION: u32 = 1;
pub const HEADER_BYTES: usize = 64;
const ALIGNMENT: u64 = 64;
/// A thousand times the size that a builder aims for; half the range of a filter's 32-bit offset.
const MAX_BODY_BYTES: u64 = 16 << 30;

/// A manifest's entry for one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkEntry {
    /// SHA-256 of the file, which is also its name.
    pub digest: Digest,
    /// First shard.
    pub first_shard: u32,
    /// Number of shards; at least 1.
    pub shard_count: u32,
    /// Distinct keys in all shards; at least 1.
    pub keys: u64,
    /// Size of the file.
    pub size_bytes: u64,
}

impl ChunkEntry {
    /// Size of the filters alone, in the file and in memory.
    pub fn filter_bytes(&self, kind: FilterKind) -> u64 {
        // Does not saturate for a checked manifest.
        self.size_bytes
            .saturating_sub(file_prefix_bytes(kind, self.shard_count))
    }
}

/// Arrays of counts: one number per shard each.
const fn count_arrays(kind: FilterKind) -> usize {
    match kind {
        FilterKind::Ribbon => 3,
        _ => 1,
    }
}

/// Bytes before the body: the header, the counts, and zeros up to a multiple of 64.
pub const fn file_prefix_bytes(kind: FilterKind, shard_count: u32) -> u64 {
    let counts = 4 * count_arrays(kind) as u64 * shard_count as u64;
    (HEADER_BYTES as u64 + counts).next_multiple_of(ALIGNMENT)
}

/// Bytes of the smallest body: a word of a Bloom filter, or an entry of a list.
pub const fn least_body_bytes(kind: FilterKind) -> u64 {
    match kind {
        FilterKind::Ribbon => 4,
        _ => 8,
    }
}

const fn kind_number(kind: FilterKind) -> u32 {
    match kind {
        FilterKind::Block512 => 2,
        FilterKind::Ribbon => 3,
    }
}

/// The counts of each shard in a chunk file, or in its part before the body.
pub fn counts_of(
    kind: FilterKind,
    shard_count: u32,
    file: &[u8],
) -> impl Iterator<Item = ShardCounts> {
    let shard_count = shard_count as usize;
    let numbers = file
        .get(HEADER_BYTES..)
        .unwrap_or_default()
        .as_chunks::<4>()
        .0;
    let number = move |array: usize, shard: usize| {
        if array >= count_arrays(kind) {
            return Some(0);
        }
        let bytes = numbers.get(array * shard_count + shard)?;
        Some(u32::from_le_bytes(*bytes))
    };

    (0..shard_count).map_while(move |shard| {
        Some(ShardCounts {
            keys: number(0, shard)?,
            diverted: number(1, shard)?,
            listed: number(2, shard)?,
        })
    })
}

/// Writes a chunk file up to its body.
pub fn encode_prefix(
    spec: &FilterSpec,
    first_shard: u32,
    counts: &[ShardCounts],
    body_bytes: u64,
    file: &mut Vec<u8>,
) {
    let shard_count = u32::try_from(counts.len()).expect("at most 65,536 shards");
    let keys: u64 = counts.iter().map(|counts| u64::from(counts.keys)).sum();
    file.extend_from_slice(&MAGIC);
    for field in [
        VERSION,
        kind_number(spec.kind()),
        spec.hashes(),
        spec.millibits_per_key(),
        first_shard,
        shard_count,
    ] {
        file.extend_from_slice(&field.to_le_bytes());
    }

    for field in [keys, body_bytes, spec.value_bits().into(), 0] {
        file.extend_from_slice(&field.to_le_bytes());
    }
    let arrays: [fn(&ShardCounts) -> u32; 3] = [
        |counts| counts.keys,
        |counts| counts.diverted,
        |counts| counts.listed,
    ];

    for number in &arrays[..count_arrays(spec.kind())] {
        file.extend(
            counts
                .iter()
                .flat_map(|counts| number(counts).to_le_bytes()),
        );
    }

    let prefix_bytes = file_prefix_bytes(spec.kind(), shard_count);
    file.resize(usize::try_from(prefix_bytes).expect("under 1 MB"), 0);
}

/// Where the parts of the shards' filters begin in a body, in shard order, and where the last ends:
/// first parts in words of 8 bytes, second ones and lists in words of 4 from the beginning of their
/// own section. Only a ribbon filter has those.
#[derive(Debug)]
#[repr(C)]
pub struct BodyLayout {
    first: Box<[u32]>,
    second: Box<[u32]>,
    list: Box<[u32]>,
}

impl BodyLayout {
    /// The layout and its size in bytes. Offsets are right for a size of at most
    /// [`MAX_BODY_BYTES`].
    pub fn new(
        spec: &FilterSpec,
        first_shard: u32,
        counts: impl Iterator<Item = ShardCounts>,
    ) -> (Self, u64) {
        let mut starts = [vec![0], vec![0], vec![0]];
        // Cannot overflow: 65,536 filters of 2³² keys at 1,000 bits are under 2⁵⁵ bytes.
        let mut ends = [0_u64; 3];
        for (shard, counts) in (first_shard as u16..=u16::MAX).zip(counts) {
            let parts = spec.part_bytes(shard, counts);
            let parts = [(parts.first, 8), (parts.second, 4), (parts.list, 4)];
            for ((starts, end), (bytes, word)) in starts.iter_mut().zip(&mut ends).zip(parts) {
                *end += bytes;
                // Does not truncate: the caller checks the size.
                starts.push((*end / word) as u32);
            }
        }

        let [first, mut second, mut list] = starts;
        if spec.kind() != FilterKind::Ribbon {
            (second, list) = (Vec::new(), Vec::new());
        }
        let layout = Self {
            first: first.into(),
            second: second.into(),
            list: list.into(),
        };

        (layout, ends.iter().sum())
    }

    /// The first part of a shard's filter.
    #[inline]
    fn first<'a>(&self, index: usize, body: &'a [u8]) -> &'a [u8] {
        &body[self.first[index] as usize * 8..self.first[index + 1] as usize * 8]
    }

    /// The other parts; none of a Bloom filter.
    #[cold]
    fn rest<'a>(&self, index: usize, body: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let end = |starts: &[u32], word: usize| starts.last().map_or(0, |end| *end as usize * word);
        let first_end = end(&self.first, 8);
        let second_end = first_end + end(&self.second, 4);
        let part = |starts: &[u32], section: usize| match starts.get(index..) {
            Some([start, end, ..]) => {
                &body[section + *start as usize * 4..section + *end as usize * 4]
            }
            _ => &[][..],
        };
        (part(&self.second, first_end), part(&self.list, second_end))
    }

    /// A shard's filter.
    pub fn filter<'a>(&self, index: usize, body: &'a [u8]) -> ShardFilter<'a> {
        let (second, list) = self.rest(index, body);
        ShardFilter {
            first: self.first(index, body),
            second,
            list,
        }
    }
}

/// One shard of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct ChunkShard<'a> {
    /// Its number.
    pub shard: u16,
    /// Distinct keys.
    pub keys: u32,
    /// Keys of the second tier of a ribbon filter, or of its list if they are few.
    pub diverted_keys: u32,
    /// Entries of the list of a ribbon filter.
    pub listed_keys: u32,
    /// The filter; empty if the shard has no keys.
    pub filter: ShardFilter<'a>,
}

impl<'a> ChunkShard<'a> {
    pub(super) const fn new(shard: u16, counts: ShardCounts, filter: ShardFilter<'a>) -> Self {
        let ShardCounts {
            keys,
            diverted: diverted_keys,
            listed: listed_keys,
        } = counts;
        Self {
            shard,
            keys,
            diverted_keys,
            listed_keys,
            filter,
        }
    }

    /// Keys that the first tier of a ribbon filter does not hold. A small shard has all of them in
    /// the list.
    pub fn outside_first_tier(&self) -> u32 {
        self.diverted_keys.max(self.listed_keys)
    }
}

/// A verified chunk in memory, in large pages if the kernel grants them. Shared between
/// generations. The fields that a lookup reads, up to the first offsets of the layout, are in one
/// cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Chunk {
    filters: Region,
    spec: FilterSpec,
    first_shard: u32,
    layout: BodyLayout,
    entry: ChunkEntry,
    /// Counts of each shard, for reports only.
    counts: Box<[ShardCounts]>,
}

impl Chunk {
    /// SHA-256 of the file.
    pub const fn digest(&self) -> &Digest {
        &self.entry.digest
    }

    /// Whether it was verified against this entry and spec, so that another generation that has the
    /// same entry may share it. The digest alone is not enough: the rest of the entry could differ.
    pub fn matches(&self, spec: &FilterSpec, entry: &ChunkEntry) -> bool {
        self.spec == *spec && self.entry == *entry
    }

    /// The spec of the filters.
    #[inline]
    pub const fn spec(&self) -> &FilterSpec {
        &self.spec
    }

    /// The filters, back to back.
    #[inline]
    pub fn filters(&self) -> &[u8] {
        &self.filters
    }

    #[inline]
    const fn index(&self, shard: u16) -> usize {
        (shard as u32 - self.first_shard) as usize
    }

    /// The filter of a shard; empty if the shard has no keys.
    ///
    /// # Panics
    ///
    /// If the shard is not in the chunk.
    pub fn filter(&self, shard: u16) -> ShardFilter<'_> {
        self.layout.filter(self.index(shard), &self.filters)
    }

    /// The bytes that the lookup of a key of its shards reads first.
    #[inline]
    pub(super) fn probe_target(&self, key: &DeviceKey) -> ProbeTarget<'_> {
        let first = self.layout.first(self.index(key.shard()), &self.filters);
        self.spec.probe_target(first, key)
    }

    /// Looks up a key at the target computed for it.
    #[inline]
    pub(super) fn contains_at(&self, target: &ProbeTarget<'_>, key: &DeviceKey) -> bool {
        let rest = || self.layout.rest(self.index(key.shard()), &self.filters);
        self.spec.contains_at(target, key, rest)
    }

    /// The value of a key at the target computed for it: see [`FilterSpec::value`].
    #[inline]
    pub(super) fn value_at(&self, target: &ProbeTarget<'_>, key: &DeviceKey) -> Option<u8> {
        let rest = || self.layout.rest(self.index(key.shard()), &self.filters);
        self.spec.value_at(target, key, rest)
    }

    /// A shard with its numbers.
    ///
    /// # Panics
    ///
    /// If the shard is not in the chunk.
    pub fn shard(&self, shard: u16) -> ChunkShard<'_> {
        ChunkShard::new(shard, self.counts[self.index(shard)], self.filter(shard))
    }

    /// Its shards, in order.
    pub fn shards(&self) -> impl Iterator<Item = u16> {
        let first_shard =
            u16::try_from(self.first_shard).expect("a checked manifest's shards fit 16 bits");
        (first_shard..=u16::MAX).take(self.counts.len())
    }
}
