//! Decompression of pages, into exactly as many bytes as a page's header says.
//!
//! Done here and not by the `parquet` crate because its gzip, brotli and lz4 go on for as long as there is something to unpack, whatever the
//! header says: a page of some megabytes could fill any memory.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use parquet::basic::Compression;

/// What the pages of a column are compressed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
    Gzip,
    Brotli,
    /// In Hadoop's frames, or in those that older writers took for them.
    Lz4,
    Lz4Raw,
    Zstd,
}

impl Codec {
    /// What the file names; nothing for what nobody reads.
    pub(super) const fn of(compression: Compression) -> Option<Self> {
        Some(match compression {
            Compression::UNCOMPRESSED => Self::None,
            Compression::SNAPPY => Self::Snappy,
            Compression::GZIP(_) => Self::Gzip,
            Compression::BROTLI(_) => Self::Brotli,
            Compression::LZ4 => Self::Lz4,
            Compression::LZ4_RAW => Self::Lz4Raw,
            Compression::ZSTD(_) => Self::Zstd,
            Compression::LZO => return None,
        })
    }

    /// The text, if it has `size` bytes to the byte.
    pub(super) fn unpack(self, packed: &[u8], size: usize) -> Option<Vec<u8>> {
        let text = match self {
            Self::None => packed.to_vec(),
            Self::Snappy => {
                let stated = snap::raw::decompress_len(packed).ok()?;
                (stated == size).then(|| snap::raw::Decoder::new().decompress_vec(packed).ok())??
            }
            Self::Gzip => all(MultiGzDecoder::new(packed), size)?,
            Self::Brotli => all(brotli_decompressor::Decompressor::new(packed, 4096), size)?,
            Self::Lz4 => hadoop(packed, size)
                .or_else(|| all(lz4_flex::frame::FrameDecoder::new(packed), size))
                .or_else(|| block(packed, size))?,
            Self::Lz4Raw => block(packed, size)?,
            Self::Zstd => zstd::bulk::Decompressor::new().ok()?.decompress(packed, size).ok()?,
        };
        (text.len() == size).then_some(text)
    }
}

/// Reads to the end, but no further than a byte too many.
fn all(reader: impl Read, size: usize) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(size);
    reader.take(size as u64 + 1).read_to_end(&mut text).ok()?;
    Some(text)
}

fn block(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut text = vec![0; size];
    let written = lz4_flex::block::decompress_into(packed, &mut text).ok()?;
    (written == size).then_some(text)
}

/// Frames of two big-endian lengths, unpacked and packed, and a block.
fn hadoop(mut packed: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut text = vec![0; size];
    let mut rest = &mut text[..];
    while !packed.is_empty() {
        let (lengths, blocks) = packed.split_first_chunk::<8>()?;
        let length = |at: usize| {
            u32::from_be_bytes([lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]]) as usize
        };
        let (unpacked, after) = rest.split_at_mut_checked(length(0))?;
        let (frame, behind) = blocks.split_at_checked(length(4))?;
        if lz4_flex::block::decompress_into(frame, unpacked).ok()? != unpacked.len() {
            return None;
        }
        (rest, packed) = (after, behind);
    }
    rest.is_empty().then_some(text)
}
