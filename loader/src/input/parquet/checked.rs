//! Page checks: counts in a page that the `parquet` crate does not verify.
//!
//! The crate allocates memory for as many dictionary values and delta-encoded lengths as a page
//! claims to have. A failed allocation would abort the process, so a claim of more values than the
//! page can hold is an error here. Rows are counted too: a page with more values than its row group
//! has rows is corrupt.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;

use super::fault::PageFault;
use super::lz4;

/// No writer uses larger blocks of deltas. The product of the sizes cannot overflow.
const MAX_DELTA_BLOCK: u64 = 1 << 20;

/// Pages of one column chunk without repetition, checked.
pub struct Checked<P> {
    pages: P,
    /// Whether its pages are still compressed with the older LZ4.
    is_lz4: bool,
    /// 0 if no value can be missing.
    max_level: i16,
    rows_left: u64,
}

impl<P: PageReader> Checked<P> {
    pub fn new(pages: P, is_lz4: bool, max_level: i16, rows: u64) -> Self {
        Self {
            pages,
            is_lz4,
            max_level,
            rows_left: rows,
        }
    }

    fn next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        // Padding behind the last page is not read.
        if self.rows_left == 0 {
            return Ok(None);
        }
        let Some(page) = self.pages.get_next_page()? else {
            return Ok(None);
        };
        self.checked(page)
            .map(Some)
            .map_err(|fault| ParquetError::External(Box::new(fault)))
    }

    fn checked(&mut self, page: Page) -> Result<Page, PageFault> {
        let page = match self.is_lz4 {
            true => lz4::unpack(page).map_or_else(|| corrupt("has a page of invalid LZ4"), Ok)?,
            false => page,
        };
        self.check(&page)?;
        Ok(page)
    }

    fn check(&mut self, page: &Page) -> Result<(), PageFault> {
        let (values, bytes) = (u64::from(page.num_values()), page.buffer());
        let levels = match page {
            Page::DictionaryPage { .. } if values > bytes.len() as u64 => {
                return corrupt("has a dictionary with more values than it holds");
            }
            Page::DictionaryPage { .. } => return Ok(()),
            Page::DataPageV2 {
                rep_levels_byte_len,
                ..
            } if *rep_levels_byte_len > 0 => {
                return corrupt("has a page with repetition levels, but no lists");
            }
            Page::DataPageV2 {
                def_levels_byte_len,
                ..
            } => u64::from(*def_levels_byte_len),
            Page::DataPage { .. } if self.max_level == 0 => 0,
            Page::DataPage {
                def_level_encoding: Encoding::RLE,
                ..
            } => {
                let length = bytes
                    .first_chunk()
                    .map_or(u32::MAX, |length| u32::from_le_bytes(*length));
                u64::from(length) + 4
            }
            // Bit-packed levels, in old files.
            Page::DataPage { .. } => {
                (values * u64::from(16 - self.max_level.leading_zeros())).div_ceil(8)
            }
        };
        let Some(text) = usize::try_from(levels)
            .ok()
            .and_then(|levels| bytes.get(levels..))
        else {
            return corrupt("has a page that ends within its levels");
        };
        let runs = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            Encoding::DELTA_BYTE_ARRAY => 2,
            _ => 0,
        };
        if (0..runs)
            .try_fold(text, |text, _| after_run(text, values))
            .is_none()
        {
            return corrupt("has a page with invalid or too many lengths");
        }
        match self.rows_left.checked_sub(values) {
            Some(left) => self.rows_left = left,
            None => return corrupt("has more values than its row group has rows"),
        }
        Ok(())
    }
}

impl<P: PageReader> PageReader for Checked<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.next_page()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.skip_next_page()
    }
}

impl<P: PageReader> Iterator for Checked<P> {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// The bytes after a DELTA_BINARY_PACKED run, if it has at most `most` numbers.
fn after_run(mut bytes: &[u8], most: u64) -> Option<&[u8]> {
    let (block, mini_blocks) = (varint(&mut bytes)?, varint(&mut bytes)?);
    let (numbers, _first) = (varint(&mut bytes)?, varint(&mut bytes)?);
    let per_mini_block = block.checked_div(mini_blocks)?;
    if block > MAX_DELTA_BLOCK || per_mini_block == 0 || numbers > most {
        return None;
    }
    // The first number is in the head.
    let mut left = numbers.saturating_sub(1);
    while left > 0 {
        varint(&mut bytes)?;
        let widths = bytes.split_off(..mini_blocks as usize)?;
        for width in widths {
            // Mini blocks after the last number have a width, but no bits.
            if left > 0 {
                bytes.split_off(..usize::from(*width) * per_mini_block as usize / 8)?;
                left = left.saturating_sub(per_mini_block);
            }
        }
    }
    Some(bytes)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn corrupt<T>(reason: &str) -> Result<T, PageFault> {
    Err(PageFault::Corrupt(reason.to_owned()))
}
