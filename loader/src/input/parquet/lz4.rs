//! LZ4 pages of the older codec: Hadoop frames, LZ4 frames, or a bare block.
//!
//! Hadoop and Spark write a page over 256 KiB as several frames. The `parquet` crate (59.3) fails
//! if a later frame is smaller than the previous one. It therefore reads these columns as
//! uncompressed, which still verifies checksums, and this module decompresses their pages.

use std::io::Read as _;

use lz4_flex::block::decompress_into;
use lz4_flex::frame::FrameDecoder;
use parquet::column::page::Page;

/// Largest compression ratio of an LZ4 block.
const MAX_RATIO: usize = 255;

/// The page with its buffer decompressed, if it is valid.
pub fn unpack(mut page: Page) -> Option<Page> {
    match &mut page {
        Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = text(buf)?.into(),
        Page::DataPageV2 {
            is_compressed: false,
            ..
        } => {}
        // Levels precede the compressed values.
        Page::DataPageV2 {
            buf,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
            let (levels, packed) = buf.split_at_checked(usize::try_from(levels).ok()?)?;
            *buf = [levels, &text(packed)?].concat().into();
        }
    }
    Some(page)
}

fn text(packed: &[u8]) -> Option<Vec<u8>> {
    hadoop(packed)
        .or_else(|| frames(packed))
        .or_else(|| block(packed))
}

/// Frames of two big-endian lengths, decompressed and compressed, and a block.
fn hadoop(mut packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    while !packed.is_empty() {
        let unpacked_bytes = length(&mut packed)?;
        let packed_bytes = length(&mut packed)?;
        let frame = packed.split_off(..packed_bytes)?;
        if unpacked_bytes / MAX_RATIO > frame.len() {
            return None;
        }
        let start = text.len();
        text.resize(start + unpacked_bytes, 0);
        if decompress_into(frame, &mut text[start..]).ok()? != unpacked_bytes {
            return None;
        }
    }
    Some(text)
}

fn length(bytes: &mut &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    usize::try_from(u32::from_be_bytes(*length)).ok()
}

fn frames(packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    FrameDecoder::new(packed).read_to_end(&mut text).ok()?;
    Some(text)
}

/// A block does not hold its decompressed size, and the crate does not pass on the page header's.
fn block(packed: &[u8]) -> Option<Vec<u8>> {
    [4, 32, MAX_RATIO].into_iter().find_map(|ratio| {
        let mut text = vec![0; packed.len() * ratio];
        let written = decompress_into(packed, &mut text).ok()?;
        text.truncate(written);
        Some(text)
    })
}

#[cfg(test)]
mod tests {
    use parquet::basic::Encoding;

    use super::*;

    fn frame(text: &[u8]) -> Vec<u8> {
        let packed = lz4_flex::block::compress(text);
        let lengths = [text.len(), packed.len()].map(|length| (length as u32).to_be_bytes());
        [lengths.concat(), packed].concat()
    }

    fn data_v2(buf: Vec<u8>, levels: u32, is_compressed: bool) -> Page {
        Page::DataPageV2 {
            buf: buf.into(),
            num_values: 1,
            encoding: Encoding::PLAIN,
            num_nulls: 0,
            num_rows: 1,
            def_levels_byte_len: levels,
            rep_levels_byte_len: 0,
            is_compressed,
            statistics: None,
        }
    }

    fn dictionary(buf: Vec<u8>) -> Option<Vec<u8>> {
        let encoding = Encoding::PLAIN;
        let page = Page::DictionaryPage {
            buf: buf.into(),
            num_values: 1,
            encoding,
            is_sorted: false,
        };
        unpack(page).map(|page| page.buffer().to_vec())
    }

    #[test]
    fn page_of_several_hadoop_frames_is_unpacked() {
        let text: Vec<u8> = (0..3000_u32)
            .flat_map(|number| (number * 7919).to_le_bytes())
            .collect();
        for cuts in [[0, 0], [6000, 12_000], [9000, 11_000], [100, 200]] {
            let parts = [&text[..cuts[0]], &text[cuts[0]..cuts[1]], &text[cuts[1]..]];
            let packed = parts.map(frame).concat();
            assert_eq!(dictionary(packed.clone()).as_ref(), Some(&text), "{cuts:?}");
            assert_eq!(
                dictionary(packed[..packed.len() - 1].to_vec()),
                None,
                "{cuts:?}"
            );
        }
    }

    #[test]
    fn page_of_an_lz4_frame_or_a_bare_block_is_unpacked() {
        use std::io::Write as _;
        let text = b"0123456789abcdef".repeat(1000);
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(&text).unwrap();
        assert_eq!(dictionary(encoder.finish().unwrap()), Some(text.clone()));
        assert_eq!(dictionary(lz4_flex::block::compress(&text)), Some(text));
    }

    #[test]
    fn levels_and_uncompressed_pages_stay_as_they_are() {
        let buf = [b"levels".to_vec(), frame(b"values")].concat();
        assert_eq!(
            &unpack(data_v2(buf.clone(), 6, true)).unwrap().buffer()[..],
            b"levelsvalues"
        );
        assert_eq!(
            unpack(data_v2(buf.clone(), 6, false)).unwrap().buffer()[..],
            buf
        );
        assert!(unpack(data_v2(buf, 99, true)).is_none());
    }

    #[test]
    fn frame_that_claims_more_than_it_can_hold_is_refused() {
        let lengths = [u32::MAX, 4].map(u32::to_be_bytes).concat();
        assert_eq!(dictionary([lengths, vec![0; 4]].concat()), None);
    }
}
