//! What is true of every input of the loader, whatever is in it: it is read, or an error says why,
//! in one line; and every row is accounted for. The loader is a program and no library, so its
//! files are compiled in here.
#![allow(dead_code, unused_imports, reason = "a part of the loader, without what calls the rest of it")]

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

/// Of every kind that a parser treats in its own way; those that a body lacks are an error.
fn columns() -> Vec<Column> {
    let column = |(name, kind): (&str, IdKind)| Column { name: name.to_owned(), kind };
    [("id", IdKind::Md5), ("device.idfa", IdKind::Idfa), ("imei", IdKind::Imei)].map(column).to_vec()
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
pub(crate) fn hold(layout: Layout, body: &[u8]) {
    static FILE: LazyLock<PathBuf> =
        LazyLock::new(|| PathBuf::from(format!("/dev/shm/rtad-fuzz-{}", std::process::id())));
    static KEYS: LazyLock<KeyMaker> = LazyLock::new(KeyMaker::default);
    std::fs::write(&*FILE, body).expect("there is room for 4 KiB");
    let input = Input { sources: vec![Source::File(FILE.clone())], layout, case: None, keys: KEYS.clone() };
    let mut sinks = [Counter(0)];
    match read(&input, &mut sinks, None, &Progress::new(false)) {
        Ok(counts) => {
            assert_eq!(counts.keys, sinks[0].0);
            let rejected: u64 = Reason::ALL.iter().map(|reason| counts.of(*reason)).sum();
            assert_eq!(counts.keys + rejected, counts.values, "every value is a key or is counted");
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}
