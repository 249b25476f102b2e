//! Properties of the loader's input parsers: an input is read, or fails with an error of one line,
//! and every row is counted. The loader has no library target, so its files are compiled in here.
#![allow(dead_code, unused_imports, reason = "only a part of the loader is used")]

use std::path::PathBuf;
use std::sync::LazyLock;

use rtad_core::device::{DeviceKey, IdKind, KeyMaker};

#[path = "../loader/src"]
mod source {
    pub(crate) mod input;
    pub(crate) mod progress;
}
pub(crate) use source::progress;

use source::input::{Column, Input, KeySink, Layout, Reason, Source, read};
use source::progress::Progress;

/// Columns of each kind with its own parsing; a missing column is an error.
fn columns() -> Vec<Column> {
    let column = |(name, kind): (&str, IdKind)| Column { name: name.to_owned(), kind };
    [("id", IdKind::Md5), ("device.idfa", IdKind::Idfa), ("imei", IdKind::Imei)]
        .map(column)
        .to_vec()
}

pub(crate) fn ndjson() -> Layout {
    Layout::Ndjson { columns: columns() }
}

pub(crate) fn parquet() -> Layout {
    Layout::Parquet { columns: columns() }
}

/// Counts keys.
struct Counter(u64);

impl KeySink for Counter {
    fn take(&mut self, keys: &[DeviceKey]) {
        self.0 += keys.len() as u64;
    }
}

/// Reads the body from a file in memory.
pub(crate) fn check(layout: Layout, body: &[u8]) {
    static FILE: LazyLock<PathBuf> =
        LazyLock::new(|| PathBuf::from(format!("/dev/shm/rtad-fuzz-{}", std::process::id())));
    static KEYS: LazyLock<KeyMaker> = LazyLock::new(KeyMaker::default);
    std::fs::write(&*FILE, body).expect("writing 4 KiB");
    let sources = vec![Source::File(FILE.clone())];
    let input = Input { sources, layout, case: None, keys: KEYS.clone(), is_part: false };
    let mut sinks = [Counter(0)];
    match read(&input, &mut sinks, None, &Progress::new(false)) {
        Ok(counts) => {
            assert_eq!(counts.keys, sinks[0].0);
            let rejected: u64 = Reason::ALL.iter().map(|reason| counts.of(*reason)).sum();
            assert_eq!(counts.keys + rejected, counts.values, "every value is a key or rejected");
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}
