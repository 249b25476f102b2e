//! The pages of one column in one row group, each checked before the `parquet` crate sees it.
//!
//! Whatever a file says of itself, no more memory is taken than these bounds allow, and nothing is unpacked beyond what a header states. What
//! the crate would take memory for by a number of the file is held against what the page can hold.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;

use super::PageFault;
use super::access::Access;
use super::codec::Codec;
use super::header::{self, DataV1, DataV2, Header, encoding};
use super::thrift::Broken;
use super::{delta, levels};

/// Of a page, packed or not. Writers aim at 1 MiB; some write a whole column of a row group as one page.
const MAX_PAGE_BYTES: u64 = 128 << 20;
/// A header holds the least and the greatest value of its page, which may be long.
const MAX_HEADER_BYTES: u64 = 4 << 20;
const HEADER_BYTES: u64 = 4 << 10;
/// The crate takes some 32 bytes for each.
const MAX_DICTIONARY_VALUES: u64 = 4 << 20;
/// Of a page whose texts have their lengths in front: the crate takes 4 or 8 bytes for each.
const MAX_LENGTHS: u64 = 16 << 20;
/// Of texts that are written as what differs from the one before: what they have in common with it, on average. No id is so long, and copying
/// that costs about as much as whatever else is done with a row.
const MAX_PREFIX_BYTES: u64 = 4 << 10;
/// Values that are taken from the crate at once.
const BATCH: usize = 1024;
/// Of texts that are written as what differs from the one before: each is as long as its page at most.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// What the one who reads a column knows of the page that was opened last.
#[derive(Debug, Default)]
pub(super) struct Current {
    pub(super) values: AtomicU64,
    pub(super) batch: AtomicUsize,
}

/// What does not change from page to page.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) codec: Codec,
    pub(super) physical: Type,
    /// Of values of fixed length.
    pub(super) width: i32,
    /// 0 if no value can be missing.
    pub(super) max_level: i16,
}

/// The pages, one after another.
pub(super) struct Pages {
    access: Arc<Access>,
    part: Range<u64>,
    shape: Shape,
    rows_left: u64,
    is_first: bool,
    current: Arc<Current>,
}

impl Pages {
    pub(super) fn new(access: Arc<Access>, part: Range<u64>, shape: Shape, rows: u64) -> Self {
        Self { access, part, shape, rows_left: rows, is_first: true, current: Arc::default() }
    }

    pub(super) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current)
    }

    fn next_page(&mut self) -> Result<Option<Page>, PageFault> {
        loop {
            if self.part.is_empty() || self.rows_left == 0 {
                return Ok(None);
            }
            let header = self.header()?;
            let (stored, text) = (size(header.stored_bytes)?, size(header.text_bytes)?);
            if stored > self.part.end - self.part.start {
                return corrupt("has a page that goes on beyond its column");
            }
            if stored.max(text) > MAX_PAGE_BYTES {
                let bytes = stored.max(text);
                return Err(PageFault::Corrupt(format!(
                    "has a page of {bytes} bytes, the limit is {MAX_PAGE_BYTES}; write it with smaller pages"
                )));
            }
            let at = self.part.start..self.part.start + stored;
            self.part.start = at.end;
            if !matches!(header.kind, header::DATA | header::DICTIONARY | header::DATA_V2) {
                continue;
            }
            let bytes = self.access.read(at, self.part.end).map_err(PageFault::Read)?;
            if let Some(expected) = header.crc {
                let mut crc = flate2::Crc::new();
                crc.update(&bytes);
                if crc.sum() != expected as u32 {
                    return corrupt("has a page whose checksum is wrong");
                }
            }
            let is_first = std::mem::replace(&mut self.is_first, false);
            return match (&header.dictionary, &header.data, &header.data_v2) {
                (Some(page), _, _) if header.kind == header::DICTIONARY && is_first => {
                    self.dictionary(page, self.unpacked(bytes, text)?)
                }
                (_, Some(page), _) if header.kind == header::DATA => {
                    self.data_v1(page, self.unpacked(bytes, text)?)
                }
                (_, _, Some(page)) if header.kind == header::DATA_V2 => self.data_v2(page, bytes, text),
                _ => corrupt("has a page out of place"),
            }
            .map(Some);
        }
    }

    /// Reads the next page's header, and goes on to what is behind it.
    fn header(&mut self) -> Result<Header, PageFault> {
        let left = self.part.end - self.part.start;
        let mut len = HEADER_BYTES.min(left);
        loop {
            let bytes = self
                .access
                .read(self.part.start..self.part.start + len, self.part.end)
                .map_err(PageFault::Read)?;
            match Header::read(&bytes) {
                Ok((header, length)) => {
                    self.part.start += length as u64;
                    return Ok(header);
                }
                Err(Broken::End) if len < left && len < MAX_HEADER_BYTES => {
                    len = (len * 16).min(left).min(MAX_HEADER_BYTES);
                }
                Err(_) => return corrupt("has a page without a sound header"),
            }
        }
    }

    fn unpacked(&self, bytes: Vec<u8>, text: u64) -> Result<Vec<u8>, PageFault> {
        match self.shape.codec {
            Codec::None if bytes.len() as u64 == text => Ok(bytes),
            Codec::None => corrupt("has a page of another size than it says"),
            codec => codec
                .unpack(&bytes, text as usize)
                .map_or_else(|| corrupt("has a page that cannot be decompressed to the size it says"), Ok),
        }
    }

    fn dictionary(&self, page: &header::Dictionary, text: Vec<u8>) -> Result<Page, PageFault> {
        let values = size(page.values)?;
        let least_bytes = match self.shape.physical {
            Type::BYTE_ARRAY | Type::INT32 => 4,
            Type::INT64 => 8,
            _ => self.shape.width.max(1) as u64,
        };
        if values.saturating_mul(least_bytes) > text.len() as u64 {
            return corrupt("has a dictionary with more values than it holds");
        }
        if values > MAX_DICTIONARY_VALUES {
            return Err(PageFault::Corrupt(format!(
                "has a dictionary of {values} values, the limit is {MAX_DICTIONARY_VALUES}"
            )));
        }
        let encoding = encoding(page.encoding)
            .filter(|encoding| matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY));
        let Some(encoding) = encoding else { return corrupt("has a dictionary in an unknown encoding") };
        Ok(Page::DictionaryPage { buf: text.into(), num_values: values as u32, encoding, is_sorted: false })
    }

    fn data_v1(&mut self, page: &DataV1, text: Vec<u8>) -> Result<Page, PageFault> {
        let text = Bytes::from(text);
        let of = |number| encoding(number).map_or_else(|| corrupt("has a page in an unknown encoding"), Ok);
        let (encoding, definition_levels) = (of(page.encoding)?, of(page.definition_levels)?);
        let values = size(page.values)?;
        let levels = match self.shape.max_level {
            0 => 0,
            most => levels::v1_bytes(&text, definition_levels, values, most)
                .map_or_else(|| corrupt("has a page that ends within its levels"), Ok)?,
        };
        self.opened(values, encoding, &text[levels..])?;
        Ok(Page::DataPage {
            buf: text,
            num_values: values as u32,
            encoding,
            def_level_encoding: definition_levels,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })
    }

    /// Its levels stand before what is compressed.
    fn data_v2(&mut self, page: &DataV2, mut bytes: Vec<u8>, text: u64) -> Result<Page, PageFault> {
        let (values, nulls) = (size(page.values)?, size(page.nulls)?);
        let (definitions, repetitions) = (size(page.definition_bytes)?, size(page.repetition_bytes)?);
        let levels = definitions + repetitions;
        let is_sound = levels <= bytes.len() as u64 && levels <= text && nulls <= values && repetitions == 0;
        if !is_sound {
            return corrupt("has a page whose header contradicts itself");
        }
        if page.is_compressed && self.shape.codec != Codec::None && text > levels {
            let packed = bytes.split_off(levels as usize);
            bytes.extend(self.unpacked(packed, text - levels)?);
        }
        if bytes.len() as u64 != text {
            return corrupt("has a page of another size than it says");
        }
        let Some(encoding) = encoding(page.encoding) else {
            return corrupt("has a page in an unknown encoding");
        };
        self.opened(values, encoding, &bytes[levels as usize..])?;
        Ok(Page::DataPageV2 {
            buf: bytes.into(),
            num_values: values as u32,
            encoding,
            num_nulls: nulls as u32,
            num_rows: size(page.rows)? as u32,
            def_levels_byte_len: definitions as u32,
            rep_levels_byte_len: 0,
            is_compressed: false,
            statistics: None,
        })
    }

    /// Checks what a page holds, and tells whoever reads the column.
    fn opened(&mut self, values: u64, encoding: Encoding, text: &[u8]) -> Result<(), PageFault> {
        self.rows_left = match self.rows_left.checked_sub(values) {
            Some(left) => left,
            None => return corrupt("has more values than its row group has rows"),
        };
        let (most, unsound) =
            (values.min(MAX_LENGTHS), "has a page whose lengths are not sound, or too many");
        let mut batch = BATCH;
        match encoding {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => {
                delta::run_bytes(text, most).or_else(|_| corrupt(unsound))?;
            }
            Encoding::DELTA_BYTE_ARRAY => {
                let (prefixes, repeated) = delta::run_sum(text, most).or_else(|_| corrupt(unsound))?;
                delta::run_bytes(&text[prefixes..], most).or_else(|_| corrupt(unsound))?;
                if repeated > most * MAX_PREFIX_BYTES + text.len() as u64 {
                    return Err(PageFault::Corrupt(format!(
                        "has a page whose {values} texts repeat {repeated} bytes of one another, the limit is {MAX_PREFIX_BYTES} for \
                         each; write it in another encoding"
                    )));
                }
                batch = (MAX_BATCH_BYTES / text.len().max(1)).clamp(1, BATCH);
            }
            _ => {}
        }
        self.current.values.store(values, Ordering::Relaxed);
        self.current.batch.store(batch, Ordering::Relaxed);
        Ok(())
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.next_page().map_err(|fault| ParquetError::External(Box::new(fault)))
    }

    // Neither is asked for by who reads a column that repeats nothing from its beginning to its end.
    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(ParquetError::General("pages are read in order".to_owned()))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Err(ParquetError::General("pages are read in order".to_owned()))
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

fn size(number: i32) -> Result<u64, PageFault> {
    u64::try_from(number).or_else(|_| corrupt("has a page with a size below nothing"))
}

fn corrupt<T>(reason: &str) -> Result<T, PageFault> {
    Err(PageFault::Corrupt(reason.to_owned()))
}
