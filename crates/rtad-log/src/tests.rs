//! Rows through a ring's bytes and a file.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use parquet::basic::{Compression, Encoding};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use rtad_core::device::DeviceKey;
use smallvec::smallvec;

use crate::folder::{Remains, closed, origin_of, path_of, remove_remains};
use crate::read::{LogReadError, LogReader};
use crate::row::{
    AudienceFact, CapFact, CapState, DecisionFact, Device, ExperimentFact, InAudience, LogRow,
    LoggedConfig, LoggedFacts, LookedUpIds, Raw, RowEnd, TooLarge, UnnamedDevice, encode_end,
    encode_facts,
};
use crate::write::LogFile;

const DEVICE: Device<'_> = Device {
    hmac: [7; 16],
    secret: "a1b2c3d4",
};

fn decision(strategy: &str, bid: bool) -> DecisionFact<'_> {
    DecisionFact {
        strategy,
        bid,
        reason: if bid { "not_member" } else { "bucket" },
        condition: (!bid).then_some("ads:holdout"),
        shadow: !bid,
        cap: (!bid).then_some(CapFact {
            name: "daily",
            state: CapState::Capped,
        }),
        scheduled: bid.then_some(true),
        numbers: [bid.then_some(2.5), None, Some(100.0), None, None],
    }
}

/// More texts than a column compares a new one with.
const IDS: [&str; 7] = ["", "r-1", "r-2", "r-3", "r-4", "r-5", "request 6"];

/// The row of an index in the file.
fn row<'a>(index: usize) -> LogRow<'a> {
    let [a, b, c, d] = rows();
    let mut row = match index % 4 {
        0 => a,
        1 => b,
        2 => c,
        _ => d,
    };
    if let Some(facts) = &mut row.facts {
        facts.request_id = facts.request_id.map(|_| IDS[index % IDS.len()]);
        // More than the levels of one write.
        if index % 1_001 == 2 && facts.asked.is_some() {
            facts.asked = Some(smallvec!["T4"; 1_100]);
        }
    }
    LogRow {
        end: RowEnd {
            time: index as i64,
            ..row.end
        },
        ..row
    }
}

/// Rows of each shape: without facts, with empty lists, and with longer ones.
fn rows<'a>() -> [LogRow<'a>; 4] {
    let end = RowEnd {
        time: 1_790_000_000_000_000,
        latency: 412,
        platform: "tencent",
        failure: Some("unauthorized"),
        probability: 1.0,
        sampled: false,
        config: "0123456789abcdef",
        raw: None,
    };
    let device = Some(DEVICE);
    let audience = |name, generation, member, value| AudienceFact {
        name,
        generation,
        member,
        value,
    };
    let full = LoggedFacts {
        request_id: Some("r-1"),
        device,
        ids: LookedUpIds::TooMany,
        attributes: [Some("ios"), None, Some("slot 7"), None, Some("click")],
        asked: Some(smallvec!["T1", "T2", "T3"]),
        audiences: smallvec![
            audience("old_users", Some(u64::MAX), InAudience::Yes, Some(15)),
            audience("vip", None, InAudience::Unavailable, None),
            audience("payers", Some(3), InAudience::No, None),
        ],
        experiments: smallvec![
            ExperimentFact {
                name: "price",
                rule: u32::MAX,
                bucket: "b",
                slots: Some([9_999, 0])
            },
            ExperimentFact {
                name: "art",
                rule: 7,
                bucket: "none",
                slots: None
            },
        ],
        decisions: smallvec![decision("new-users", true), decision("payers", false)],
    };
    let empty = LoggedFacts {
        request_id: None,
        device: None,
        ids: LookedUpIds::None,
        attributes: [None; 5],
        asked: Some(smallvec![]),
        audiences: smallvec![],
        experiments: smallvec![],
        decisions: smallvec![],
    };
    let one = LoggedFacts {
        asked: None,
        decisions: smallvec![decision("x", true)],
        ..full.clone()
    };
    let with_body = |query, body| RowEnd {
        raw: Some(Raw { query, body }),
        ..end
    };
    [
        LogRow { facts: None, end },
        LogRow {
            facts: Some(empty),
            end: RowEnd {
                failure: None,
                sampled: true,
                ..end
            },
        },
        LogRow {
            facts: Some(full),
            end: with_body(Some("a=1"), b"\xff\0"),
        },
        LogRow {
            facts: Some(one),
            end: with_body(None, b""),
        },
    ]
}

/// The key of the device.
static KEY: DeviceKey = DeviceKey::from_bytes([1; 16]);

/// The record of a row: its two parts, one after the other.
fn encode(row: &LogRow<'_>, buffer: &mut [u8]) -> Result<usize, TooLarge> {
    let mut unnamed = None;
    if let Some(facts) = row.facts.clone() {
        unnamed = Some(LoggedFacts {
            request_id: facts.request_id,
            device: facts.device.map(|_| UnnamedDevice::new(&KEY)),
            ids: facts.ids,
            attributes: facts.attributes,
            asked: facts.asked,
            audiences: facts.audiences,
            experiments: facts.experiments,
            decisions: facts.decisions,
        });
    }
    let size = encode_facts(unnamed.as_ref(), buffer)?;
    Ok(size + encode_end(&row.end, &mut buffer[size..])?)
}

fn push(file: &mut LogFile, index: usize) {
    let mut buffer = [0; 8 << 10];
    let size = encode(&row(index), &mut buffer).unwrap();
    let name = |key: &DeviceKey| {
        assert_eq!(*key, KEY);
        DEVICE
    };
    file.push(&buffer[..size], name).unwrap();
}

#[test]
fn rows_are_the_same_after_a_ring_and_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut file = LogFile::create(path.clone(), "pod-1").unwrap();
    // More than a row group and than a batch of the reader.
    const COUNT: usize = 70_001;
    for index in 0..COUNT {
        push(&mut file, index);
    }
    assert!(
        !path.exists() && file.bytes() > 0,
        "the first row group is on the disk"
    );
    let found = file.close(&[]).unwrap();
    assert_eq!(
        (found.rows, found.bytes),
        (COUNT as u64, fs::metadata(&path).unwrap().len())
    );
    let reader = LogReader::open(&path).unwrap();
    assert_eq!(reader.rows(), COUNT as u64);
    let mut index = 0;
    reader
        .each(|found| {
            assert_eq!(*found, row(index));
            index += 1;
        })
        .unwrap();
    assert_eq!(index, COUNT);
}

#[test]
fn file_has_the_configs_that_decided_about_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut file = LogFile::create(path.clone(), "pod-1").unwrap();
    (0..3).for_each(|index| push(&mut file, index));
    let used = LoggedConfig {
        id: row(0).end.config.to_owned(),
        text: "[store]\nurl = \"./a\"\n".to_owned(),
    };
    let unused = LoggedConfig {
        id: "0011223344556677".to_owned(),
        ..used.clone()
    };
    file.close(&[unused, used.clone()]).unwrap();
    assert_eq!(LogReader::open(&path).unwrap().configs(), [used]);
}

/// A file of version 1, which is kept for this test.
#[test]
fn files_of_version_1_have_the_same_columns_and_values() {
    let folder = tempfile::tempdir().unwrap();
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/log/v1.parquet"
    );
    let golden = Path::new(golden);
    let mut index = 0;
    LogReader::open(golden)
        .unwrap()
        .each(|found| {
            assert_eq!(*found, row(index));
            index += 1;
        })
        .unwrap();
    assert_eq!(index, 64);

    let path = folder.path().join("a.parquet");
    let mut file = LogFile::create(path.clone(), "pod-1").unwrap();
    (0..64).for_each(|index| push(&mut file, index));
    file.close(&[]).unwrap();
    let (old, new) = (footer(golden), footer(&path));
    assert_eq!(old.file_metadata().schema(), new.file_metadata().schema());
    let entries = new.file_metadata().key_value_metadata();
    assert_eq!(old.file_metadata().key_value_metadata(), entries);
    for (old, new) in old
        .row_group(0)
        .columns()
        .iter()
        .zip(new.row_group(0).columns())
    {
        let path = old.column_path();
        assert_eq!(old.compression(), new.compression(), "{path}");
        assert!(matches!(new.compression(), Compression::ZSTD(_)), "{path}");
        let has_dictionary = |encodings: &[Encoding]| encodings.contains(&Encoding::RLE_DICTIONARY);
        let [was, is] =
            [old, new].map(|column| has_dictionary(&column.encodings().collect::<Vec<_>>()));
        assert_eq!(was, is, "{path}");
        assert_eq!(old.statistics(), new.statistics(), "{path}");
        assert_eq!(old.num_values(), new.num_values(), "{path}");
    }
}

fn footer(path: &Path) -> parquet::file::metadata::ParquetMetaData {
    let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    file.metadata().clone()
}

#[test]
fn row_that_does_not_fit_is_refused() {
    let row = &rows()[2];
    let size = encode(row, &mut [0; 1024]).unwrap();
    for length in 0..size {
        encode(row, &mut vec![0; length]).unwrap_err();
    }
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    fs::write(&path, b"PAR1 but no footer").unwrap();
    let broken = LogReader::open(&path).unwrap_err();
    assert!(matches!(broken, LogReadError::Broken { .. }), "{broken}");
    assert!(broken.to_string().contains("a.parquet"), "{broken}");
    let missing = LogReader::open(&folder.path().join("none")).unwrap_err();
    assert!(matches!(missing, LogReadError::Open { .. }), "{missing}");
}

/// Errors or other values, but no panic: a replay ends with a message.
#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut file = LogFile::create(path.clone(), "pod").unwrap();
    (0..100).for_each(|index| push(&mut file, index));
    file.close(&[]).unwrap();
    let whole = fs::read(&path).unwrap();
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        LogReader::open(&path)?.each(|_| {})
    };
    let mut errors = 0;
    let places = (0..whole.len()).step_by(5);
    let tried = places.len();
    for place in places {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x55;
        errors += usize::from(read(&damaged).is_err());
    }
    assert!(errors > tried / 4, "{errors} of {tried}");
    for length in (0..whole.len()).step_by(50) {
        read(&whole[..length]).unwrap_err();
    }
}

#[test]
fn unclosed_file_is_removed_and_remains_of_a_killed_process_too() {
    let folder = tempfile::tempdir().unwrap();
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 + 1);
    let name = path_of("pod/1", began, 0xabc);
    assert_eq!(
        name.to_str(),
        Some("day=1970-01-02/pod-1-86401000000-00000abc.parquet")
    );
    let path = folder.path().join(&name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    drop(LogFile::create(path.clone(), "pod/1").unwrap());
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    // A killed process drops nothing.
    std::mem::forget(LogFile::create(path.clone(), "pod/1").unwrap());
    LogFile::create(path_of_other(&path), "pod")
        .unwrap()
        .close(&[])
        .unwrap();
    let root = folder.path();
    let others = root.join(path_of("pod/1/2", began, 1));
    std::mem::forget(LogFile::create(others.clone(), "pod/1/2").unwrap());
    let others = others.with_file_name(".pod-1-2-86401000000-00000001.parquet.open");
    let written = LogFile::create(path.with_file_name("written.parquet"), "pod").unwrap();
    let remove = |age| remove_remains(root, "pod/1", age, Some(&written)).unwrap();
    assert_eq!(remove(Duration::from_secs(60)), Remains::default());
    assert_eq!(remove(Duration::ZERO).files, 1);
    // Another pod may write for an hour.
    let file = fs::File::options().write(true).open(&others).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600))
        .unwrap();
    assert_eq!(remove(Duration::ZERO), Remains::default());
    file.set_modified(SystemTime::now() - Duration::from_secs(3 * 3600 + 60))
        .unwrap();
    assert_eq!(remove(Duration::ZERO).files, 1);
    let foreign = others.with_file_name(".spark.parquet.open");
    let file = fs::File::create(&foreign).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(remove(Duration::ZERO), Remains::default());
    drop(written);
    assert_eq!(closed(root).unwrap(), [path_of_other(&name)]);
    assert!(closed(&root.join("none")).unwrap().is_empty());
}

#[test]
fn origin_is_that_of_names_of_the_log_alone() {
    let began = SystemTime::UNIX_EPOCH + Duration::from_micros(1_764_000_000_123_456);
    for pod in ["rtad-0", "a", "host.example.com"] {
        let path = path_of(pod, began, 0xabc);
        let origin = origin_of(path.to_str().unwrap()).unwrap();
        assert_eq!((origin.pod.as_str(), origin.began), (pod, began));
    }
    for foreign in [
        "day=2026-09-01/part-00000-spark.parquet",
        "day=2026-09-01/part-00000-0000abcd.parquet",
        "day=2025-11-25/rtad-0-1764000000123456-00000abc.parquet",
        "day=2025-11-24/rtad-0-1764000000123456-abc.parquet",
        "day=2025-11-24/rtad-0-1764000000123456-00000abc.txt",
        "hour=1/rtad-0-1764000000123456-00000abc.parquet",
        "rtad-0-1764000000123456-00000abc.parquet",
    ] {
        assert_eq!(origin_of(foreign), None, "{foreign}");
    }
}

fn path_of_other(path: &Path) -> std::path::PathBuf {
    path.with_file_name("other.parquet")
}
