//! Properties of the loader's readers. An input is read, or fails with an error of one line that
//! names it, and every row is counted. The loader's
//! library has only its commands, so its files are compiled in here.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "only a part of the loader is used"
)]

use std::path::PathBuf;
use std::sync::LazyLock;

use rtad_core::device::{DeviceKey, IdKind, KeyMaker};

#[path = "../loader/src"]
mod source {
    pub(crate) mod input;
    pub(crate) mod progress;
}
pub(crate) use source::progress;

use super::memory::bounded;
use source::input::{CellSyntax, Column, Input, InputError, KeySink, Layout, Reason, Source, read};
use source::progress::Progress;

/// Columns of each kind with its own parsing; a missing column is an error.
fn columns() -> Vec<Column> {
    let column = |(name, kind): (&str, IdKind)| Column {
        name: name.to_owned(),
        kinds: kind.into(),
    };
    [
        ("id", IdKind::Md5),
        ("device.idfa", IdKind::Idfa),
        ("imei", IdKind::Imei),
    ]
    .map(column)
    .to_vec()
}

pub(crate) fn check_ndjson(body: &[u8]) {
    check_input(Layout::Ndjson { columns: columns() }, body);
}

pub(crate) fn check_parquet(body: &[u8]) {
    check_input(Layout::Parquet { columns: columns() }, body);
}

pub(crate) fn check_csv(body: &[u8]) {
    for has_header in [true, false] {
        let mut columns = columns();
        if !has_header {
            for (index, column) in columns.iter_mut().enumerate() {
                column.name = (index + 1).to_string();
            }
        }
        let cells = CellSyntax {
            has_header,
            delimiter: b',',
            escape: Some(b'\\'),
        };
        check_input(Layout::Csv { columns, cells }, body);
    }
}

/// Blocks after which reading ends early: compressed inputs and runs in Parquet pages may hold
/// billions of values in a few bytes.
const MAX_BLOCKS: u64 = 8;

/// Counts keys and blocks.
#[derive(Default)]
struct Counter {
    keys: u64,
    blocks: u64,
}

impl KeySink for Counter {
    fn take(&mut self, keys: &[DeviceKey], _values: &[u8]) {
        self.keys += keys.len() as u64;
        self.blocks += 1;
    }

    fn is_closed(&self) -> bool {
        self.blocks >= MAX_BLOCKS
    }
}

/// Reads the body from a file in memory.
fn check_input(layout: Layout, body: &[u8]) {
    static FILE: LazyLock<PathBuf> =
        LazyLock::new(|| PathBuf::from(format!("/dev/shm/rtad-fuzz-{}", std::process::id())));
    static KEYS: LazyLock<KeyMaker> = LazyLock::new(KeyMaker::default);
    std::fs::write(&*FILE, body).expect("writing 4 KiB");
    let columns = columns().len() as u64;
    let has_lists = matches!(layout, Layout::Ndjson { .. });
    let sources = vec![Source::File(FILE.clone())];
    let input = Input {
        sources,
        layout,
        value: None,
        case: None,
        keys: KEYS.clone(),
    };
    let mut sinks = [Counter::default()];
    match read(&input, &mut sinks, None, &Progress::new(false)) {
        Ok(counts) => {
            let counts = counts.total();
            assert_eq!(counts.keys, sinks[0].keys);
            let rejected: u64 = Reason::ALL.iter().map(|reason| counts.of(*reason)).sum();
            assert_eq!(
                counts.keys + rejected,
                counts.values,
                "every value is a key or rejected"
            );
            // A row without cells counts as one value, a list as many.
            assert!(counts.rows <= counts.values);
            assert!(has_lists || counts.values <= counts.rows * columns);
        }
        Err(error) => {
            let text = error.to_string();
            let names_input = text.contains(&FILE.display().to_string());
            let is_of_all = matches!(
                error,
                InputError::NoMember { .. } | InputError::NoObject { .. }
            );
            assert!(names_input || is_of_all, "{text:?}");
            assert!(!text.contains('\n') && text.len() < 8000, "{text:?}");
        }
    }
}
