//! Writer of a test file: columns of every type, in row groups of several pages.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType,
    Int32Type, Int64Type,
};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

pub const GROUPS: usize = 2;
/// Rows per row group.
pub const ROWS: usize = 30;

const SCHEMA: &str = "
    message dump {
        optional binary idfa (UTF8);
        required fixed_len_byte_array(16) digest;
        optional int64 imei;
        optional group device { optional binary oaid; }
        required int32 short (INTEGER(32, false));
        optional int64 when (TIMESTAMP(MILLIS, true));
        required double score;
        optional group tags (LIST) { repeated group list { optional binary element (UTF8); } }
    }";

/// Format of a file. `encodings`: of texts, then of numbers and fixed texts; `None` for
/// dictionaries.
#[derive(Debug, Clone)]
pub struct Format {
    pub(super) compression: Compression,
    pub(super) version: WriterVersion,
    pub(super) encodings: Option<(Encoding, Encoding)>,
}

pub fn idfa(row: u64) -> String {
    format!("3E0046F7-8BD4-4F3E-9F91-{:012X}", row % 20)
}

pub fn md5(row: u64) -> String {
    format!("{:032x}", u128::from(row % 25) << 64 | 0xabcd)
}

pub fn write(format: &Format) -> Vec<u8> {
    let mut properties = WriterProperties::builder()
        .set_compression(format.compression)
        .set_writer_version(format.version)
        .set_dictionary_enabled(format.encodings.is_none())
        .set_write_batch_size(10)
        .set_data_page_row_count_limit(10);
    if let Some((texts, others)) = format.encodings {
        let path = |name: &str| ColumnPath::new(name.split('.').map(str::to_owned).collect());
        // Fixed texts have another delta encoding than numbers.
        let fixed = if others == Encoding::DELTA_BINARY_PACKED {
            Encoding::DELTA_BYTE_ARRAY
        } else {
            others
        };
        properties = properties
            .set_column_encoding(path("idfa"), texts)
            .set_column_encoding(path("device.oaid"), texts)
            .set_column_encoding(path("digest"), fixed)
            .set_column_encoding(path("imei"), others)
            .set_column_encoding(path("short"), others);
    }
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    for group in 0..GROUPS {
        let rows: Vec<u64> = (0..ROWS).map(|row| (group * ROWS + row) as u64).collect();
        let present = || rows.iter().filter(|row| *row % 7 != 3);
        let levels = |most: i16| -> Vec<i16> {
            rows.iter()
                .map(|row| if row % 7 == 3 { most - 1 } else { most })
                .collect()
        };
        let text = |text: String| ByteArray::from(text.into_bytes());
        let mut out = writer.next_row_group().unwrap();
        let idfas: Vec<_> = present().map(|row| text(idfa(*row))).collect();
        column::<ByteArrayType>(&mut out, &idfas, Some(&levels(1)), None);
        let digests = rows.iter().map(|row| {
            let digest = u128::from_str_radix(&md5(*row), 16).unwrap();
            FixedLenByteArray::from(digest.to_be_bytes().to_vec())
        });
        column::<FixedLenByteArrayType>(&mut out, &digests.collect::<Vec<_>>(), None, None);
        let imeis: Vec<_> = present()
            .map(|row| 860_000_000_000_000 + *row as i64)
            .collect();
        column::<Int64Type>(&mut out, &imeis, Some(&levels(1)), None);
        let oaids: Vec<_> = present().map(|row| text(format!("oaid-{row}"))).collect();
        column::<ByteArrayType>(&mut out, &oaids, Some(&levels(2)), None);
        let shorts: Vec<_> = rows
            .iter()
            .map(|row| (u32::MAX - *row as u32) as i32)
            .collect();
        column::<Int32Type>(&mut out, &shorts, None, None);
        column::<Int64Type>(&mut out, &[], Some(&[0; ROWS]), None);
        column::<DoubleType>(&mut out, &[0.5; ROWS], None, None);
        column::<ByteArrayType>(&mut out, &[], Some(&[0; ROWS]), Some(&[0; ROWS]));
        out.close().unwrap();
    }
    writer.into_inner().unwrap()
}

pub fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    levels: Option<&[i16]>,
    repeated: Option<&[i16]>,
) {
    let mut column = group.next_column().unwrap().unwrap();
    column
        .typed::<T>()
        .write_batch(values, levels, repeated)
        .unwrap();
    column.close().unwrap();
}
