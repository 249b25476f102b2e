//! Properties of readers of chunk files.

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    Chunk, ChunkDecoder, ChunkEntry, ChunkError, ChunkReader, ChunkVerifier, Digest, shards_of,
};

use super::super::memory::bounded;
use super::{CHUNK_HEADER_BYTES, accepted, u32_at, u64_at};

/// Repairs of a chunk file, and contradictions to its manifest entry: bits of the first byte.
mod chunk_mode {
    /// Magic, version, reserved bytes, sums and the length follow from the other fields.
    pub(super) const REPAIR: u8 = 1;
    pub(super) const WRONG_KEYS: u8 = 2;
    pub(super) const WRONG_SHARD: u8 = 4;
    pub(super) const WRONG_DIGEST: u8 = 8;
    pub(super) const WRONG_SPEC: u8 = 16;
    pub(super) const WRONG: u8 = WRONG_KEYS | WRONG_SHARD | WRONG_DIGEST | WRONG_SPEC;
}

/// The filter spec in a chunk's header.
fn spec_of(file: &[u8]) -> Option<FilterSpec> {
    let kind = match u32_at(file, 12) {
        2 => FilterKind::Block512,
        3 => FilterKind::Ribbon,
        _ => return None,
    };
    let spec = FilterSpec::new(kind, u32_at(file, 16), u32_at(file, 20)).ok()?;
    match u32_at(file, 48) {
        0 => Some(spec),
        bits => spec.with_value_bits(bits).ok(),
    }
}

/// The manifest entry of a chunk file by its own header, if a manifest may have it.
fn entry_of(file: &[u8]) -> Option<ChunkEntry> {
    let (first_shard, shard_count) = (u32_at(file, 24), u32_at(file, 28));
    let (keys, size_bytes) = (u64_at(file, 32), file.len() as u64);
    let entry = ChunkEntry {
        digest: Digest::of(file),
        first_shard,
        shard_count,
        keys,
        size_bytes,
    };
    let kind = spec_of(file)?.kind();
    let least = if kind == FilterKind::Ribbon { 4 } else { 8 };
    let is_valid = first_shard < 1 << 16
        && (1..=(1 << 16) - first_shard).contains(&shard_count)
        && keys > 0
        && entry.filter_bytes(kind) >= least;
    is_valid.then_some(entry)
}

/// Size of a shard of a ribbon chunk by the documented rules.
fn ribbon_bytes(spec: &FilterSpec, shard: u32, keys: u32, diverted: u32, listed: u32) -> u64 {
    let lines = |keys: u32, load: u64, slots: u64| match keys {
        0..32 => 0,
        _ => ((200 * u64::from(keys) + load * slots) / (2 * load * slots)).max(2),
    };
    let (bits, part) = (
        spec.millibits_per_key() / 1000,
        spec.millibits_per_key() % 1000,
    );
    let longer = (shard & 0xffff).wrapping_mul(40_503) & 0xffff < part * 65_536 / 1000;
    let has_values = spec.value_bits() > 0;
    // Of 12 to 16 bits; those of the second tier have 15.
    let slots = if has_values {
        [31, 30, 28, 26, 25]
    } else {
        [42, 39, 36, 34, 31]
    };
    let second = match lines(diverted, 94, slots[3]) {
        0 => 0,
        lines => lines + 1,
    };
    let slots = slots[(bits - 12) as usize + usize::from(longer)];
    let first = lines(keys, if keys < 3000 { 98 } else { 100 }, slots);
    64 * (first + second) + if has_values { 8 } else { 4 } * u64::from(listed)
}

/// Makes the fields of a chunk file agree with its filter spec, shard count and key counts.
pub(super) fn repair_chunk(file: &mut Vec<u8>) {
    /// Filters of longer files are not repaired.
    const MAX_BODY_BYTES: u64 = 64 << 10;
    file[..8].copy_from_slice(b"RTADCHNK");
    file[8..12].copy_from_slice(&1_u32.to_le_bytes());
    file[52..64].fill(0);
    let Some(spec) = spec_of(file) else { return };
    let is_ribbon = spec.kind() == FilterKind::Ribbon;
    let shards = (u32_at(file, 28) as usize).min(1 << 16);
    let arrays = if is_ribbon { 3 } else { 1 };
    let counts_end = CHUNK_HEADER_BYTES + 4 * arrays * shards;
    let body = counts_end.next_multiple_of(64);
    let Some(padding) = file.get_mut(counts_end..body) else {
        return;
    };
    padding.fill(0);
    let (mut keys, mut bytes) = (0, 0);
    for shard in 0..shards {
        let at = |array: usize| CHUNK_HEADER_BYTES + 4 * (array * shards + shard);
        let count = u32_at(file, at(0));
        keys += u64::from(count);
        if !is_ribbon {
            bytes += spec.filter_bytes(count);
            continue;
        }
        let most = [count, if count < 3000 { 0 } else { count }, count];
        let [_, diverted, listed] = [0, 1, 2].map(|array| u32_at(file, at(array)).min(most[array]));
        file[at(1)..at(1) + 4].copy_from_slice(&diverted.to_le_bytes());
        file[at(2)..at(2) + 4].copy_from_slice(&listed.to_le_bytes());
        let shard = u32_at(file, 24).wrapping_add(shard as u32);
        bytes += ribbon_bytes(&spec, shard, count, diverted, listed);
    }
    if bytes <= MAX_BODY_BYTES {
        file.resize(body + bytes as usize, 0x55);
    }
    file[32..40].copy_from_slice(&keys.to_le_bytes());
    let bytes = (file.len() - body) as u64;
    file[40..48].copy_from_slice(&bytes.to_le_bytes());
}

pub(super) fn feed<R: ChunkReader>(
    mut reader: R,
    file: &[u8],
    piece_bytes: usize,
) -> Result<R::Verified, ChunkError> {
    for piece in file.chunks(piece_bytes) {
        reader.feed(piece)?;
    }
    reader.finish()
}

/// Checks the readers of chunks: a byte of the mode, a byte of the length of pieces, and the file.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_chunk(input: &[u8]) {
    let Some(([mode, pieces], file)) = input.split_first_chunk::<2>() else {
        return;
    };
    let mut file = file.to_vec();
    if file.len() < CHUNK_HEADER_BYTES {
        return;
    }
    if mode & chunk_mode::REPAIR != 0 {
        repair_chunk(&mut file);
    }
    let (Some(mut spec), Some(mut entry)) = (spec_of(&file), entry_of(&file)) else {
        return;
    };
    if mode & chunk_mode::WRONG_KEYS != 0 {
        entry.keys = entry.keys.wrapping_add(1).max(1);
    }
    if mode & chunk_mode::WRONG_SHARD != 0 && entry.shard_count < 1 << 15 {
        entry.first_shard ^= 1 << 15;
    }
    if mode & chunk_mode::WRONG_DIGEST != 0 {
        entry.digest = Digest::of(b"another file");
    }
    if mode & chunk_mode::WRONG_SPEC != 0 {
        let millibits = spec.millibits_per_key() ^ 1;
        let values = spec.value_bits();
        spec = FilterSpec::new(spec.kind(), spec.hashes(), millibits).unwrap_or(spec);
        spec = spec.with_value_bits(values).unwrap_or(spec);
    }
    let piece_bytes = usize::from(*pieces) + 1;
    let read = bounded("chunk", file.len(), 4, || {
        feed(ChunkDecoder::new(&spec, &entry), &file, piece_bytes)
    });
    let whole = feed(ChunkVerifier::new(&spec, &entry), &file, usize::MAX);
    assert_eq!(
        read.is_ok(),
        whole.is_ok(),
        "pieces and filters change nothing"
    );
    let Some(chunk) = accepted(read) else { return };
    let is_wrong = mode & chunk_mode::WRONG != 0;
    assert!(!is_wrong || (spec_of(&file), entry_of(&file)) == (Some(spec), Some(entry.clone())));
    check_accepted_chunk(&spec, &entry, &file, &chunk);
}

pub(super) fn check_accepted_chunk(
    spec: &FilterSpec,
    entry: &ChunkEntry,
    file: &[u8],
    chunk: &Chunk,
) {
    assert!(chunk.matches(spec, entry));
    assert_eq!(
        chunk.filters().len() as u64,
        entry.filter_bytes(spec.kind())
    );
    let is_block512 = spec.kind() == FilterKind::Block512;
    let (mut keys, mut bytes) = (0, 0);
    for (shard, read) in chunk.shards().zip(shards_of(spec, entry, file)) {
        let (held, filter) = (chunk.shard(shard), read.filter);
        assert!(held.filter == filter && held.shard == read.shard && held.keys == read.keys);
        assert!(!is_block512 || filter.is_empty() == (held.keys == 0));
        assert!((0.0..=1.0).contains(&spec.expected_fpr(shard, filter)));
        keys += u64::from(held.keys);
        bytes += filter.len();
    }
    assert_eq!(bytes, chunk.filters().len());
    assert_eq!(
        (chunk.shards().count(), keys),
        (entry.shard_count as usize, entry.keys)
    );
    // Keys of its shards, with the bytes of the file as hashes.
    for bytes in file[CHUNK_HEADER_BYTES..].chunks_exact(16).take(8) {
        let mut key: [u8; 16] = bytes.try_into().expect("16 bytes");
        let offset = u32::from(u16::from_be_bytes([key[0], key[1]])) % entry.shard_count;
        let shard = u16::try_from(entry.first_shard + offset).expect("a shard of the chunk");
        key[..2].copy_from_slice(&shard.to_be_bytes());
        let key = DeviceKey::from_bytes(key);
        let is_member = spec.contains(chunk.filter(shard), &key);
        let value = spec.value(chunk.filter(shard), &key);
        assert!(value.is_some() == (is_member && spec.value_bits() > 0));
    }
}
