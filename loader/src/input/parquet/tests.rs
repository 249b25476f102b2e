//! Files of every encoding, valid and damaged, written by the `parquet` crate.

mod write;

use crate::progress::Bytes;
use std::io::Write as _;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::ByteArrayType;
use parquet::encryption::encrypt::FileEncryptionProperties;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rtad_core::device::IdKind;

use super::super::block::{Block, Pool, Rows};
use super::super::{Column, InputError};
use super::ParquetFault;
use super::access::FileSource;
use super::reader::OpenFile;
use write::{Format, GROUPS, ROWS, idfa, md5, write};

/// Row, column, text.
type Cell = (u64, usize, String);

fn columns(names: &[(&str, IdKind)]) -> Vec<Column> {
    names
        .iter()
        .map(|(name, kind)| Column {
            name: (*name).to_owned(),
            kinds: (*kind).into(),
        })
        .collect()
}

fn all_columns() -> Vec<Column> {
    columns(&[
        ("idfa", IdKind::Idfa),
        ("digest", IdKind::Md5),
        ("imei", IdKind::Imei),
        ("device.oaid", IdKind::Oaid),
        ("short", IdKind::Openid),
    ])
}

/// The cells of a file, and how many rows were counted.
fn read(bytes: &[u8], columns: &[Column]) -> Result<(Vec<Cell>, u64), InputError> {
    let mut cells = Vec::new();
    let mut counted = 0;
    let send = |block: Block| {
        let Rows::Cells { values, rows } = block.rows else {
            panic!("expected cells")
        };
        counted += rows;
        let mut start = 0;
        for value in values {
            assert!(value.rejected.is_none());
            let text = &block.bytes[start..value.end];
            start = value.end;
            cells.push((
                value.line,
                value.column,
                String::from_utf8_lossy(text).into_owned(),
            ));
        }
        true
    };
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let access = Arc::new(FileSource::File {
        file,
        len: bytes.len() as u64,
    });
    OpenFile {
        name: "file".to_owned(),
        access,
        columns,
        value: None,
    }
    .read(0, &Pool::default(), &Bytes::default(), send)?;
    cells.sort();
    Ok((cells, counted))
}

fn expected() -> Vec<Cell> {
    let rows = (ROWS * GROUPS) as u64;
    let mut cells = Vec::new();
    for row in 0..rows {
        let is_null = row % 7 == 3;
        let or_null = |text: String| if is_null { String::new() } else { text };
        cells.push((row + 1, 0, or_null(idfa(row))));
        cells.push((row + 1, 1, md5(row)));
        cells.push((
            row + 1,
            2,
            or_null(format!("{}", 860_000_000_000_000 + row)),
        ));
        cells.push((row + 1, 3, or_null(format!("oaid-{row}"))));
        cells.push((row + 1, 4, format!("{}", u32::MAX - row as u32)));
    }
    cells
}

fn formats() -> Vec<Format> {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ];
    let texts = [
        None,
        Some((Encoding::PLAIN, Encoding::PLAIN)),
        Some((
            Encoding::DELTA_LENGTH_BYTE_ARRAY,
            Encoding::BYTE_STREAM_SPLIT,
        )),
        Some((Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_BINARY_PACKED)),
    ];
    let mut formats = Vec::new();
    for compression in compressions {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            formats.extend(texts.map(|encodings| Format {
                compression,
                version,
                encodings,
            }));
        }
    }
    formats
}

#[test]
fn every_encoding_compression_and_page_version_is_read() {
    for format in formats() {
        let file = write(&format);
        let (cells, rows) =
            read(&file, &all_columns()).unwrap_or_else(|error| panic!("{format:?}: {error:?}"));
        assert_eq!(rows as usize, ROWS * GROUPS, "{format:?}");
        assert!(cells == expected(), "{format:?}");
        // Some columns, in another order.
        let (cells, _) = read(
            &file,
            &columns(&[("short", IdKind::Openid), ("idfa", IdKind::Idfa)]),
        )
        .unwrap();
        assert_eq!(cells[0], (1, 0, u32::MAX.to_string()));
        assert_eq!(cells[1], (1, 1, idfa(0)));
    }
}

/// The same table, written by pyarrow: the seeds of the fuzzer.
#[test]
fn files_of_pyarrow_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/parquet");
    let columns = columns(&[
        ("id", IdKind::Md5),
        ("device.idfa", IdKind::Idfa),
        ("imei", IdKind::Imei),
    ]);
    let mut expected = Vec::new();
    for row in 0..12_u64 {
        let id = u128::from(row * 7 + 0xab_cdef) << 40;
        let idfa = format!("3E0046F7-8BD4-4F3E-9F91-{row:012X}");
        expected.push((
            row + 1,
            0,
            if row % 4 == 3 {
                String::new()
            } else {
                format!("{id:032x}")
            },
        ));
        expected.push((row + 1, 1, if row % 3 == 0 { String::new() } else { idfa }));
        expected.push((row + 1, 2, format!("{}", 868_049_039_501_257 + row)));
    }
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        // Findings of the fuzzer are in the same folder.
        if name.starts_with("found-") {
            continue;
        }
        let (mut cells, rows) = read(&std::fs::read(&path).unwrap(), &columns).unwrap();
        assert_eq!(rows, 12, "{name}");
        let mut expected = expected.clone();
        if name == "digests" {
            for cell in expected.iter_mut().filter(|cell| cell.1 == 0) {
                cell.2 = (cell.0 - 1..cell.0 + 15)
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
            }
        }
        cells.sort();
        assert_eq!(cells, expected, "{name}");
        files += 1;
    }
    assert_eq!(files, 9);
}

#[test]
fn unsupported_column_is_named_with_its_type() {
    let file = write(&formats()[0]);
    for (name, expected) in [
        ("score", "column \"score\" is DOUBLE; accepted: text,"),
        ("tags", "column \"tags\" is a list or a map;"),
        (
            "tags.list.element",
            "column \"tags.list.element\" is in a list or a map;",
        ),
        (
            "device",
            "column \"device\" is a group of columns, such as \"device.oaid\";",
        ),
        ("when", "column \"when\" is INT64 (Timestamp);"),
        (
            "nothing",
            "has no column \"nothing\"; columns found: idfa, digest, imei, device.oaid, short, \
                when,",
        ),
        ("device\\.oaid", "has no column"),
    ] {
        let Err(InputError::Parquet { source, .. }) =
            read(&file, &columns(&[(name, IdKind::Oaid)]))
        else {
            panic!("{name} is read");
        };
        assert!(source.to_string().starts_with(expected), "{name}: {source}");
    }
    // 16 bytes of any other kind of id are text.
    let (cells, _) = read(&file, &columns(&[("digest", IdKind::Openid)])).unwrap();
    assert_ne!(cells[0].2.len(), 32);
}

#[test]
fn foreign_file_is_refused_with_the_reason() {
    let file = write(&formats()[0]);
    let mut encrypted = file.clone();
    encrypted[..4].copy_from_slice(b"PARE");
    let mut long = file.clone();
    let end = long.len() - 8;
    long[end..end + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    for (bytes, expected) in [
        (&b""[..], "it is too short"),
        (b"PAR1PAR1", "it is too short"),
        (b"id\n1234567890\n", "it does not begin as one"),
        (&encrypted, "it is encrypted"),
        (&long, "its metadata would be longer than the file"),
        (&file[..file.len() - 1], "it does not end as one"),
        (
            b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0\0\0",
            "it is compressed as a whole; unpack it first",
        ),
    ] {
        match read(bytes, &all_columns()) {
            Err(InputError::Parquet {
                source: ParquetFault::Foreign { reason },
                ..
            }) => {
                assert_eq!(reason, expected)
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn encrypted_column_is_named_and_others_are_read() {
    let schema = parse_message_type("message dump { required binary id; required binary n; }");
    let encryption = FileEncryptionProperties::builder(vec![0; 16]).with_plaintext_footer(true);
    let encryption = encryption
        .with_column_key("id", vec![1; 16])
        .build()
        .unwrap();
    let properties = WriterProperties::builder().with_file_encryption_properties(encryption);
    let properties = Arc::new(properties.build());
    let mut writer =
        SerializedFileWriter::new(Vec::new(), Arc::new(schema.unwrap()), properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for _ in 0..2 {
        write::column::<ByteArrayType>(&mut group, &["x".into()], None, None);
    }
    group.close().unwrap();
    let file = writer.into_inner().unwrap();
    let Err(InputError::Parquet { source, .. }) = read(&file, &columns(&[("id", IdKind::Md5)]))
    else {
        panic!("an encrypted column is read");
    };
    assert_eq!(
        source.to_string(),
        "row group 0, column \"id\": is encrypted; write it without encryption"
    );
    let (cells, _) = read(&file, &columns(&[("n", IdKind::Md5)])).unwrap();
    assert_eq!(cells, [(1, 0, "x".to_owned())]);
}

#[test]
fn file_that_shrinks_is_a_read_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let bytes = write(&formats()[0]);
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let access = FileSource::File {
        file: std::fs::File::open(&path).unwrap(),
        len: bytes.len() as u64,
    };
    let columns = all_columns();
    let reader = OpenFile {
        name: "file".to_owned(),
        access: Arc::new(access),
        columns: &columns,
        value: None,
    };
    let read = reader.read(0, &Pool::default(), &Bytes::default(), |_| true);
    assert!(matches!(read, Err(InputError::Read { .. })), "{read:?}");
}

/// Reads a damaged file. It must be read or refused, without any other error.
fn check(damaged: &[u8], what: &str) -> bool {
    match read(damaged, &all_columns()) {
        Ok((cells, _)) => {
            assert!(
                cells.len() <= 10 * ROWS * GROUPS,
                "{what}: {} cells",
                cells.len()
            );
            true
        }
        Err(InputError::Parquet { source, .. }) => {
            let text = source.to_string();
            assert!(
                !text.contains('\n') && !text.ends_with('.'),
                "{what}: {text}"
            );
            false
        }
        Err(other) => panic!("{what}: {other:?}"),
    }
}

#[test]
fn truncated_file_is_refused() {
    for format in formats().iter().step_by(5) {
        let file = write(format);
        for len in (0..file.len()).step_by(7) {
            assert!(!check(&file[..len], &format!("{format:?} cut after {len}")));
        }
        // Bytes removed or inserted.
        for at in (4..file.len()).step_by(61) {
            check(
                &[&file[..at], &file[at + 1..]].concat(),
                &format!("{format:?} without byte {at}"),
            );
            check(
                &[&file[..at], &[0xff; 3], &file[at..]].concat(),
                &format!("{format:?} with more at {at}"),
            );
        }
    }
}

/// Several damages at once, with extreme Thrift numbers inserted.
#[test]
fn mutants_are_read_or_refused() {
    const MUTANTS: u64 = 2000;
    const EXTREMES: [&[u8]; 6] = [
        &[0],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xfe, 0xff, 0xff, 0xff, 0x0f],
        &[0x80],
        &[0x7f],
        &[0x15, 0x80, 0x80, 0x80, 0x04],
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/parquet");
    // Mutants of findings are slow: some skip billions of list items.
    let is_seed = |path: &std::path::PathBuf| !path.to_string_lossy().contains("/found-");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(is_seed)
        .map(|path| std::fs::read(path).unwrap());
    let files: Vec<Vec<u8>> = files.chain(formats().iter().map(write)).collect();
    let mut columns = columns(&[
        ("id", IdKind::Md5),
        ("device.idfa", IdKind::Idfa),
        ("imei", IdKind::Imei),
    ]);
    let (mut refused, mut state) = (0, 0x9e37_79b9_7f4a_7c15_u64);
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    for mutant in 0..MUTANTS {
        let mut file = files[next(files.len())].clone();
        for _ in 0..=next(4) {
            let at = next(file.len());
            match next(4) {
                0 => file[at] ^= 1 << next(8),
                1 => file[at] = next(256) as u8,
                2 => {
                    let extreme = EXTREMES[next(EXTREMES.len())];
                    let end = file.len().min(at + extreme.len());
                    file[at..end].copy_from_slice(&extreme[..end - at]);
                }
                _ => {
                    let (from, len) = (next(file.len()), next(40));
                    let piece = file[from..file.len().min(from + len)].to_vec();
                    let end = file.len().min(at + piece.len());
                    file[at..end].copy_from_slice(&piece[..end - at]);
                }
            }
        }
        // Only some files have this column.
        columns[1].name = if mutant % 2 == 0 {
            "device.idfa"
        } else {
            "imei"
        }
        .to_owned();
        match read(&file, &columns) {
            Ok((cells, rows)) => assert!(cells.len() as u64 == 3 * rows, "mutant {mutant}"),
            Err(InputError::Parquet { .. }) => refused += 1,
            Err(other) => panic!("mutant {mutant}: {other:?}"),
        }
    }
    assert!(
        refused > MUTANTS / 20,
        "{refused} of {MUTANTS} were noticed"
    );
}
