//! Zoo of inputs: each form that warehouses, spreadsheets and archives produce is a row of a table,
//! with the counts that it has or the error that refuses it.
//!
//! A row runs in this process: as it is and as gzip and zstd, beside a good file, and by `dedup`,
//! which reads lines by itself. `columns.rs` runs each command on good, odd and refused files.

mod csv;
mod lines;
mod ndjson;
mod packed;
mod parquet;

pub use parquet::file as parquet_file;

use rtad_core::device::IdKind;
use rtad_core::error_chain::error_chain;
use rtad_loader::host::{self, Watch};
use serde_json::Value;
use testkit::sandbox::{Sandbox, ids, lines};

use crate::support::{gzip, zst};

/// Rows of the good file.
const GOOD: u64 = 300;
const CSV: &str = "--format csv --column id";
const NDJSON: &str = "--format ndjson --column id";

/// A row of the table.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    flags: &'static str,
    expected: Expected,
}

#[derive(Clone, Copy)]
enum Expected {
    Counts(Counts),
    /// The command ends with 3, and the error contains this.
    Refused(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Counts {
    rows: u64,
    values: u64,
    /// Distinct ones.
    keys: u64,
    blank: u64,
    malformed: u64,
}

/// Every row has a new id.
fn all(rows: u64) -> Counts {
    some(rows, rows)
}

/// The other rows repeat ids.
fn some(rows: u64, keys: u64) -> Counts {
    Counts {
        rows,
        values: rows,
        keys,
        blank: 0,
        malformed: 0,
    }
}

impl Counts {
    fn blank(self, blank: u64) -> Self {
        Self { blank, ..self }
    }

    fn malformed(self, malformed: u64) -> Self {
        Self { malformed, ..self }
    }

    /// Of several columns.
    fn values(self, values: u64) -> Self {
        Self { values, ..self }
    }
}

fn read(
    name: &'static str,
    bytes: impl Into<Vec<u8>>,
    flags: &'static str,
    counts: Counts,
) -> Case {
    Case {
        name,
        bytes: bytes.into(),
        flags,
        expected: Expected::Counts(counts),
    }
}

fn refused(
    name: &'static str,
    bytes: impl Into<Vec<u8>>,
    flags: &'static str,
    error: &'static str,
) -> Case {
    Case {
        name,
        bytes: bytes.into(),
        flags,
        expected: Expected::Refused(error),
    }
}

/// Ids of the rows.
fn md5s() -> Vec<String> {
    ids(IdKind::Md5, 0..100)
}

/// So many that 100 malformed values are within the limit.
fn many_md5s() -> Vec<String> {
    ids(IdKind::Md5, 1000..9000)
}

fn joined(ids: &[String], separator: &str) -> String {
    ids.iter().flat_map(|id| [id, separator]).collect()
}

/// The text of each id; `ID` stands for it.
fn each(ids: &[String], row: &str) -> String {
    ids.iter().map(|id| row.replace("ID", id)).collect()
}

fn objects(ids: &[String]) -> String {
    each(ids, "{\"id\":\"ID\"}\n")
}

/// Runs a command in this process; returns its report, or its exit code and its message.
pub fn run(sandbox: &Sandbox, command: &str) -> Result<Value, (u8, String)> {
    run_words(sandbox, &command.split_whitespace().collect::<Vec<_>>())
}

/// The same with words that may have spaces.
pub fn run_words(sandbox: &Sandbox, words: &[&str]) -> Result<Value, (u8, String)> {
    let folder = sandbox.path().to_str().unwrap();
    let words = words.iter();
    let arguments: Vec<String> = words.map(|word| word.replace("{}", folder)).collect();
    match host::run(&arguments, None, &Watch::default()) {
        Ok(done) => Ok(serde_json::from_str(&done.report).unwrap()),
        Err(error) => Err((error.exit() as u8, error_chain(&*error))),
    }
}

const BUILD: &str = "build --store {}/s --audience a --dry-run --allow-empty --json";

fn counts(built: &Value) -> Counts {
    let number = |pointer: &str| built.pointer(pointer).and_then(Value::as_u64).unwrap();
    Counts {
        rows: number("/rows"),
        values: number("/values"),
        keys: number("/keys"),
        blank: number("/blank"),
        malformed: number("/rejected/total"),
    }
}

fn assert_refused(result: Result<Value, (u8, String)>, error: &str, name: &str) {
    let (exit, message) = result.expect_err(name);
    assert!(exit == 3 && message.contains(error), "{name}: {message}");
    let has_id = md5s().iter().any(|id| message.contains(&id[..12]));
    assert!(!has_id, "{name}: an id in: {message}");
}

/// A file in the format of a row, if that is one of md5s alone.
fn good_file(flags: &str) -> Option<String> {
    let good = ids(IdKind::Md5, 500..500 + GOOD);
    match flags.split(" --escape").next() {
        Some("") => Some(lines(&good)),
        Some(CSV) => Some("n,id,m\n".to_owned() + &each(&good, "1,ID,2\n")),
        Some(NDJSON) => Some(objects(&good)),
        Some("--format csv --no-header --column 2") => Some(each(&good, "1,ID\n")),
        _ => None,
    }
}

/// A build of `odd`. Malformed values are accepted if the row has counts.
fn check_build(sandbox: &Sandbox, case: &Case) {
    let build = format!("{BUILD} {} {{}}/odd", case.flags);
    match case.expected {
        Expected::Counts(expected) => {
            let built = run(sandbox, &format!("{build} --max-reject-ratio 1"));
            assert_eq!(counts(&built.expect(case.name)), expected, "{}", case.name);
        }
        Expected::Refused(error) => assert_refused(run(sandbox, &build), error, case.name),
    }
}

fn check_dedup(sandbox: &Sandbox, case: &Case) {
    let dedup = format!("dedup --json {} {{}}/odd", case.flags);
    match case.expected {
        Expected::Counts(expected) => {
            let report = run(sandbox, &format!("{dedup} --max-reject-ratio 1"));
            let first_seen = &report.expect(case.name)["first_seen"];
            assert_eq!(first_seen, expected.keys, "{}: dedup", case.name);
        }
        Expected::Refused(error) => assert_refused(run(sandbox, &dedup), error, case.name),
    }
}

/// The rows of another file neither hide nor spoil those of this one.
fn check_beside_good(sandbox: &Sandbox, case: &Case) {
    let Some(good) = good_file(case.flags) else {
        return;
    };
    sandbox.file("good", good);
    let flags = "--max-reject-ratio 0";
    let build = format!("{BUILD} {flags} {} {{}}/good {{}}/odd", case.flags);
    let result = run(sandbox, &build);
    match case.expected {
        Expected::Counts(expected) if expected.malformed > 0 => {
            assert_refused(result, " are malformed", case.name);
        }
        Expected::Counts(expected) => {
            let built = result.expect(case.name);
            assert_eq!(built["keys"], GOOD + expected.keys, "{}", case.name);
        }
        Expected::Refused(error) => assert_refused(result, error, case.name),
    }
}

fn check(case: &Case) {
    let sandbox = Sandbox::new();
    sandbox.file("odd", &case.bytes);
    check_build(&sandbox, case);
    check_dedup(&sandbox, case);
    check_beside_good(&sandbox, case);
}

/// Each row as it is, and compressed.
fn check_all(cases: Vec<Case>) {
    let sandbox = Sandbox::new();
    for case in cases {
        check(&case);
        for bytes in [gzip(&case.bytes), zst(&case.bytes)] {
            // A name without a telling extension.
            sandbox.file("odd", bytes);
            check_build(&sandbox, &case);
        }
    }
}

#[test]
fn lines_are_counted_or_refused() {
    check_all(lines::cases());
}

#[test]
fn csv_rows_are_counted_or_refused() {
    check_all(csv::cases());
}

#[test]
fn ndjson_rows_are_counted_or_refused() {
    check_all(ndjson::cases());
}

#[test]
fn packed_and_parquet_files_are_read_or_refused() {
    for case in packed::cases().into_iter().chain(parquet::cases()) {
        check(&case);
    }
}
