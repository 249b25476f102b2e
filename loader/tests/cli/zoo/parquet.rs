//! Parquet files. The unit tests of `input::parquet` have all encodings, and damage everywhere.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rtad_core::device::IdKind;
use testkit::sandbox::ids;

use super::{Case, all, read, refused, some};
use crate::support::gzip;

const ID: &str = "--format parquet --column id";
const ID_AND_IMEI: &str = "--format parquet --column id --column imei=imei";

/// Columns of ids in groups of 1,000 rows; every tenth row has no ids.
pub fn file(ids: &[String], compression: Compression) -> Vec<u8> {
    let schema =
        "message dump { optional binary id (UTF8); required int64 when; optional int64 imei; }";
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_data_page_row_count_limit(300);
    let (schema, properties) = (
        Arc::new(parse_message_type(schema).unwrap()),
        Arc::new(properties.build()),
    );
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    for (group, ids) in ids.chunks(1000).enumerate() {
        let levels: Vec<i16> = (0..ids.len()).map(|row| i16::from(row % 10 != 9)).collect();
        let present = || (0..ids.len()).filter(|row| row % 10 != 9);
        let texts: Vec<_> = present()
            .map(|row| ByteArray::from(ids[row].as_str()))
            .collect();
        let imeis: Vec<_> = present()
            .map(|row| 860_000_000_000_000 + (group * 1000 + row) as i64)
            .collect();
        let mut out = writer.next_row_group().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&texts, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(&vec![0; ids.len()], None, None)
            .unwrap();
        column.close().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(&imeis, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        out.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// A column whose type is that of nulls alone, as pandas and polars write it, and one of ids.
fn file_with_nulls(ids: &[String]) -> Vec<u8> {
    let schema =
        "message dump { optional int32 device.imei (UNKNOWN); required binary id (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Default::default()).unwrap();
    let mut out = writer.next_row_group().unwrap();

    let mut column = out.next_column().unwrap().unwrap();
    column
        .typed::<Int32Type>()
        .write_batch(&[], Some(&vec![0; ids.len()]), None)
        .unwrap();
    column.close().unwrap();

    let texts: Vec<_> = ids.iter().map(|id| ByteArray::from(id.as_str())).collect();
    let mut column = out.next_column().unwrap().unwrap();
    column
        .typed::<ByteArrayType>()
        .write_batch(&texts, None, None)
        .unwrap();
    column.close().unwrap();
    out.close().unwrap();
    writer.into_inner().unwrap()
}

pub fn cases() -> Vec<Case> {
    let ids = ids(IdKind::Md5, 0..2500);
    let [plain, snappy, zstd] = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(Default::default()),
    ]
    .map(|compression| file(&ids, compression));
    let counts = some(2500, 4500).values(5000).blank(500);
    let cut = "odd: is no Parquet file, or not the whole of one";
    let mut cases = vec![
        refused(
            "parquet without the column",
            &*plain,
            "--format parquet --column nothing",
            "odd: has no column \"nothing\"; columns found: id, when, imei",
        ),
        refused(
            "parquet as gzip",
            gzip(&plain),
            ID,
            "it is compressed as a whole; unpack it first",
        ),
        read(
            "parquet, a column of nulls alone",
            file_with_nulls(&ids[..100]),
            "--format parquet --column id --column device\\.imei=imei",
            some(100, 100).values(200).blank(100),
        ),
        refused(
            "parquet, a dot in a name",
            file_with_nulls(&ids[..100]),
            "--format parquet --column device.imei",
            "odd: has no column \"device.imei\"; columns found: device\\.imei, id",
        ),
        read(
            "parquet without rows",
            file(&[], Compression::UNCOMPRESSED),
            ID,
            all(0),
        ),
    ];
    for len in [
        0,
        4,
        11,
        12,
        snappy.len() / 2,
        snappy.len() - 9,
        snappy.len() - 1,
    ] {
        cases.push(refused("parquet, cut", &snappy[..len], ID_AND_IMEI, cut));
    }
    for bytes in [plain, snappy, zstd] {
        cases.push(read("parquet", bytes, ID_AND_IMEI, counts));
    }
    cases
}
