//! Pages with impossible counts, which must not reach the `parquet` crate.

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;

use super::super::caught::caught;
use super::super::checked::Checked;
use super::super::fault::PageFault;

/// A page reader of one page.
struct One(Option<Page>);

impl Iterator for One {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageReader for One {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        Ok(self.0.take())
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Ok(None)
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Ok(())
    }
}

/// The page through the checks, in a column of 1,000 rows, or the error's text.
fn check(page: Page, max_level: i16) -> Result<u32, String> {
    match caught(|| Checked::new(One(Some(page)), false, max_level, 1000).get_next_page()) {
        Ok(page) => Ok(page.expect("one page").num_values()),
        Err(PageFault::Corrupt(reason)) => Err(reason),
        Err(other) => panic!("{other:?}"),
    }
}

fn data(num_values: u32, encoding: Encoding, text: &[u8]) -> Page {
    Page::DataPage {
        buf: Bytes::copy_from_slice(text),
        num_values,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    }
}

fn data_v2(num_values: u32, levels: [u32; 2], text: &[u8]) -> Page {
    Page::DataPageV2 {
        buf: Bytes::copy_from_slice(text),
        num_values,
        encoding: Encoding::PLAIN,
        num_nulls: 0,
        num_rows: num_values,
        def_levels_byte_len: levels[0],
        rep_levels_byte_len: levels[1],
        is_compressed: false,
        statistics: None,
    }
}

fn dictionary(num_values: u32, text: &[u8]) -> Page {
    let buf = Bytes::copy_from_slice(text);
    Page::DictionaryPage {
        buf,
        num_values,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[test]
fn page_with_more_values_than_its_row_group_has_rows_is_refused() {
    let expected = Err("has more values than its row group has rows".to_owned());
    assert_eq!(check(data(1000, Encoding::PLAIN, &[]), 0), Ok(1000));
    assert_eq!(check(data(1001, Encoding::PLAIN, &[]), 0), expected);
    assert_eq!(check(data_v2(1001, [0, 0], &[]), 0), expected);
}

#[test]
fn dictionary_with_more_values_than_bytes_is_refused() {
    let expected = Err("has a dictionary with more values than it holds".to_owned());
    assert_eq!(check(dictionary(2, &[0; 8]), 0), Ok(2));
    assert_eq!(check(dictionary(9, &[0; 8]), 0), expected);
    assert_eq!(check(dictionary(u32::MAX, &[0; 8]), 0), expected);
}

#[test]
fn levels_that_do_not_fit_their_page_are_refused() {
    let expected = Err("has a page that ends within its levels".to_owned());
    assert_eq!(
        check(data(2, Encoding::PLAIN, &[2, 0, 0, 0, 4, 1]), 1),
        Ok(2)
    );
    for levels in [&[3, 0, 0, 0, 4, 1][..], &[0xff; 8], &[0; 3], &[]] {
        assert_eq!(check(data(2, Encoding::PLAIN, levels), 1), expected);
    }
    assert_eq!(check(data_v2(2, [2, 0], &[4, 1, 0]), 1), Ok(2));
    assert_eq!(check(data_v2(2, [4, 0], &[4, 1, 0]), 1), expected);
    let repeated = check(data_v2(2, [0, 1], &[4, 1, 0]), 1);
    assert_eq!(
        repeated,
        Err("has a page with repetition levels, but no lists".to_owned())
    );
}

/// A run of `count` numbers in blocks of 128, each of four mini blocks of 32.
fn run(count: u64, blocks: &[&[u8]]) -> Vec<u8> {
    [
        varint(128),
        varint(4),
        varint(count),
        varint(14),
        blocks.concat(),
    ]
    .concat()
}

#[test]
fn lengths_are_counted_before_memory_is_allocated_for_them() {
    let expected = Err("has a page with invalid or too many lengths".to_owned());
    let lengths = |text: &[u8]| check(data(130, Encoding::DELTA_LENGTH_BYTE_ARRAY, text), 0);
    let block: &[u8] = &[0, 0, 0, 0, 0];
    assert_eq!(lengths(&run(1, &[])), Ok(130));
    assert_eq!(lengths(&run(129, &[block])), Ok(130));
    assert_eq!(lengths(&run(130, &[block, b"rest"])), expected);
    assert_eq!(lengths(&run(130, &[block, block])), Ok(130));
    // Only mini blocks with numbers have bits.
    let wide: &[u8] = &[0, 8, 8, 8, 8];
    assert_eq!(lengths(&run(2, &[wide, &[0; 32], b"rest"])), Ok(130));
    assert_eq!(lengths(&run(2, &[wide, &[0; 31]])), expected);
    assert_eq!(lengths(&run(131, &[block, block])), expected);
    assert_eq!(lengths(&run(1 << 40, &[block])), expected);
    assert_eq!(lengths(&[0, 4, 1, 0]), expected);
    assert_eq!(lengths(&[128, 1, 0, 1, 0]), expected);
    assert_eq!(
        lengths(&[varint(1 << 40), varint(1), vec![1, 0]].concat()),
        expected
    );
    assert_eq!(lengths(&[0x80; 40]), expected);
    // Both runs of a page whose texts repeat a prefix.
    let prefixes = |text: &[u8]| check(data(130, Encoding::DELTA_BYTE_ARRAY, text), 0);
    assert_eq!(
        prefixes(&[run(129, &[block]), run(1, &[])].concat()),
        Ok(130)
    );
    assert_eq!(
        prefixes(&[run(129, &[block]), run(1 << 40, &[])].concat()),
        expected
    );
    assert_eq!(prefixes(&run(129, &[block])), expected);
}
