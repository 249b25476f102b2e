//! Column values: the values of one column in one row group, as text.

use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::access::FileSource;
use super::caught::caught;
use super::checked::Checked;
use super::chunk::Chunk;
use super::fault::PageFault;
use super::schema::Form;

/// Rows decoded at once.
const BATCH: u64 = 1024;

/// Passes every row's value to `each`, in order, until it returns false. A null is `None`.
pub fn read(
    access: &Arc<FileSource>,
    column: &ColumnChunkMetaData,
    rows: u64,
    form: Form,
    each: &mut dyn FnMut(Option<&[u8]>) -> bool,
) -> Result<(), PageFault> {
    if rows == 0 {
        return Ok(());
    }
    let corrupt = |reason: &str| PageFault::Corrupt(reason.to_owned());
    // Its other metadata may be encrypted too.
    if column.crypto_metadata().is_some() {
        return Err(corrupt("is encrypted; write it without encryption"));
    }
    if u64::try_from(column.num_values()) != Ok(rows) {
        return Err(corrupt(
            "has a different number of values than its row group has rows",
        ));
    }
    if column.file_path().is_some_and(|path| !path.is_empty()) {
        return Err(corrupt("is in another file"));
    }
    if column.compression() == Compression::LZO {
        return Err(corrupt(
            "is compressed with LZO; write it with any other compression",
        ));
    }
    let is_lz4 = column.compression() == Compression::LZ4;
    let part = location(column, access.len())
        .ok_or_else(|| corrupt("is at an offset outside the file's pages"))?;
    let descriptor = column.column_descr_ptr();
    let max_level = descriptor.max_def_level();
    let chunk = Arc::new(Chunk {
        access: Arc::clone(access),
        end: part.end,
    });
    let reader = caught(|| {
        // The crate would start at the dictionary's offset, which some writers set to 0.
        let column = column
            .clone()
            .into_builder()
            .set_dictionary_page_offset(None);
        let column = column.set_data_page_offset(part.start as i64);
        let column = match is_lz4 {
            true => column.set_compression(Compression::UNCOMPRESSED).build()?,
            false => column.build()?,
        };
        let pages = SerializedPageReader::new(chunk, &column, rows as usize, None)?;
        let pages = Checked::new(pages, is_lz4, max_level, rows);
        Ok(get_column_reader(descriptor, Box::new(pages)))
    })?;
    let mut text = Vec::new();
    let signed = !matches!(form, Form::Digits { signed: false });
    match reader {
        ColumnReader::ByteArrayColumnReader(reader) => {
            values(reader, max_level, rows, |value: Option<&ByteArray>| {
                each(value.map(ByteArray::data))
            })
        }
        ColumnReader::FixedLenByteArrayColumnReader(reader) => values(
            reader,
            max_level,
            rows,
            |value: Option<&FixedLenByteArray>| {
                each(value.map(|value| match form {
                    Form::Digest => hex(value.data(), &[], &mut text),
                    Form::Uuid => hex(value.data(), &[4, 6, 8, 10], &mut text),
                    _ => value.data(),
                }))
            },
        ),
        ColumnReader::Int32ColumnReader(reader) => {
            values(reader, max_level, rows, |value: Option<&i32>| {
                each(value.map(|value| match signed {
                    true => digits(i64::from(*value), &mut text),
                    false => digits(*value as u32, &mut text),
                }))
            })
        }
        ColumnReader::Int64ColumnReader(reader) => {
            values(reader, max_level, rows, |value: Option<&i64>| {
                each(value.map(|value| match signed {
                    true => digits(*value, &mut text),
                    false => digits(*value as u64, &mut text),
                }))
            })
        }
        _ => Err(corrupt("is of an unexpected type")),
    }
}

/// The range of its pages, within the file's magic and its metadata.
fn location(column: &ColumnChunkMetaData, len: u64) -> Option<Range<u64>> {
    // Some writers set 0 if there is no dictionary.
    let dictionary = column.dictionary_page_offset().filter(|offset| *offset > 0);
    let first = column.data_page_offset();
    let start = u64::try_from(dictionary.map_or(first, |offset| offset.min(first))).ok()?;
    let end = start.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
    (start >= 4 && end <= len.checked_sub(8)?).then_some(start..end)
}

fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    max_level: i16,
    rows: u64,
    mut each: impl FnMut(Option<&T::T>) -> bool,
) -> Result<(), PageFault> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut done = 0;
    while done < rows {
        values.clear();
        levels.clear();
        let batch = BATCH.min(rows - done) as usize;
        let read = caught(|| reader.read_records(batch, Some(&mut levels), None, &mut values));
        let (count, present, _) = read?;
        done += count as u64;
        let cut = || PageFault::Corrupt(format!("ends after {done} of {rows} rows"));
        let is_sound = present == values.len() && (max_level == 0 || levels.len() == count);
        if count == 0 || !is_sound {
            return Err(cut());
        }
        let mut present = values.iter();
        for row in 0..count {
            let is_null = levels.get(row).is_some_and(|level| *level < max_level);
            let value = if is_null {
                None
            } else {
                Some(present.next().ok_or_else(cut)?)
            };
            if !each(value) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The hexadecimal digits of bytes, with dashes before the bytes at these indexes.
fn hex<'a>(bytes: &[u8], dashes: &[usize], text: &'a mut Vec<u8>) -> &'a [u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.clear();
    for (index, byte) in bytes.iter().enumerate() {
        if dashes.contains(&index) {
            text.push(b'-');
        }
        text.extend([
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
    text
}

fn digits(number: impl std::fmt::Display, text: &mut Vec<u8>) -> &[u8] {
    text.clear();
    write!(text, "{number}").expect("writing to a Vec cannot fail");
    text
}
