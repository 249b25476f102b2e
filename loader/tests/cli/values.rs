//! Audiences with a value per device: `build --value`.

use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rtad_core::device::{DeviceKey, IdKind};
use rtad_core::snapshot::Snapshot;
use testkit::sandbox::{Sandbox, ids};
use testkit::store::Depot;

const BUILD: &str = "build --store {}/s --audience a --json --filter ribbon --column id";

/// Rows of an id and a text for its value, in all formats. That of Parquet also has the number of
/// the text, or null.
fn write(sandbox: &Sandbox, rows: &[(String, String)]) {
    let csv = rows.iter().map(|(id, value)| format!("{value},{id}\n"));
    sandbox.file(
        "dump.csv",
        "tier,id\n".to_owned() + &csv.collect::<String>(),
    );
    let json = |(id, value): &(String, String)| format!(r#"{{"id":"{id}","tier":"{value}"}}"#);
    let json = rows.iter().map(|row| json(row) + "\n");
    sandbox.file("dump.ndjson", json.collect::<String>());
    sandbox.file("dump.parquet", parquet(rows));
}

fn parquet(rows: &[(String, String)]) -> Vec<u8> {
    let schema = "message dump { required binary id (UTF8); required binary tier (UTF8);
                                 optional int32 number; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    for rows in rows.chunks(1000) {
        let mut group = writer.next_row_group().unwrap();
        let ids: Vec<_> = rows
            .iter()
            .map(|(id, _)| ByteArray::from(id.as_str()))
            .collect();
        let texts: Vec<_> = rows
            .iter()
            .map(|(_, text)| ByteArray::from(text.as_str()))
            .collect();
        for cells in [ids, texts] {
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&cells, None, None)
                .unwrap();
            column.close().unwrap();
        }
        let numbers: Vec<Option<i32>> = rows.iter().map(|(_, text)| text.parse().ok()).collect();
        let levels: Vec<_> = numbers
            .iter()
            .map(|number| i16::from(number.is_some()))
            .collect();
        let numbers: Vec<_> = numbers.into_iter().flatten().collect();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<Int32Type>()
            .write_batch(&numbers, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn snapshot(sandbox: &Sandbox) -> Snapshot {
    let store = sandbox.path().join("s");
    Depot::over(store.to_str().unwrap()).read("a").unwrap()
}

fn value_in(snapshot: &Snapshot, id: &str) -> Option<u8> {
    snapshot.value(&[DeviceKey::from_hex(id.as_bytes()).unwrap()])
}

fn value(sandbox: &Sandbox, id: &str) -> Option<u8> {
    value_in(&snapshot(sandbox), id)
}

#[test]
fn every_device_has_its_largest_value() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..3000);
    let mut rows: Vec<_> = all
        .iter()
        .cloned()
        .zip((0..).map(|n| (n % 16).to_string()))
        .collect();
    // The first 100 again, larger or smaller; rows that have no value, or no id.
    rows.extend(all[..100].iter().map(|id| (id.clone(), "7".to_owned())));
    for value in ["", "16", "-1", "1.5", "high"] {
        rows.push((ids(IdKind::Md5, 5000..5001)[0].clone(), value.to_owned()));
        rows.push((String::new(), value.to_owned()));
    }
    write(&sandbox, &rows);
    let variants = [
        ("csv", "tier"),
        ("ndjson", "tier"),
        ("parquet", "tier"),
        ("parquet", "number"),
    ];
    for (format, column) in variants {
        let flags = format!("--format {format} --value {column} --max-reject-ratio 0.1");
        let built = sandbox
            .run(&format!("{BUILD} {flags} {{}}/dump.{format}"))
            .json();
        assert_eq!(
            (&built["keys"], &built["value_bits"]),
            (&3000.into(), &4.into())
        );
        assert_eq!(
            (&built["duplicates"], &built["blank"]),
            (&100.into(), &5.into())
        );
        assert_eq!(
            (&built["rejected"]["value"], &built["rejected"]["total"]),
            (&5.into(), &5.into())
        );
        // Of the column with the ids, whose rows have no value.
        assert_eq!(built["columns"][0]["malformed"], 5);
        assert_eq!(built["check"]["members_missing"], 0);
        let snapshot = snapshot(&sandbox);
        for (n, id) in all.iter().enumerate() {
            let own = (n % 16) as u8;
            let expected = if n < 100 { own.max(7) } else { own };
            assert_eq!(
                value_in(&snapshot, id),
                Some(expected),
                "row {n} of {format} {column}"
            );
        }
    }
    assert_eq!(
        sandbox
            .run("inspect --store {}/s --audience a --json")
            .json()["value_bits"],
        4
    );
}

#[test]
fn rows_without_a_value_count_towards_the_limit_of_an_input() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..10);
    write(
        &sandbox,
        &all.iter()
            .map(|id| (id.clone(), "16".to_owned()))
            .collect::<Vec<_>>(),
    );
    let build = format!("{BUILD} --format csv --value tier --rejects {{}}/rejects {{}}/dump.csv");
    sandbox.run(&build).fails(
        3,
        "0 values are blank, 10 malformed; most are ids of rows without a whole number from 0 to \
         15 in the column of --value",
    );
    let rejects = std::fs::read_to_string(sandbox.path().join("rejects")).unwrap();
    assert!(
        rejects.lines().all(|line| line.contains("\tvalue\t")),
        "{rejects}"
    );
    assert!(sandbox.store().is_empty());
}

#[test]
fn appended_devices_have_value_0_after_the_next_build() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..3);
    write(
        &sandbox,
        &[
            (all[0].clone(), "9".to_owned()),
            (all[1].clone(), "8".to_owned()),
        ],
    );
    let build = format!("{BUILD} --format csv --value tier {{}}/dump.csv");
    sandbox.run(&build).succeeds();
    sandbox.file("more", format!("{}\n{}\n", all[1], all[2]));
    let append = sandbox.run("append --store {}/s --audience a --json {}/more");
    append.json_with_warning("devices that are added without --value have none");
    sandbox.run(&build).succeeds();
    assert_eq!(
        [0, 1, 2].map(|n| value(&sandbox, &all[n])),
        [Some(9), Some(8), Some(0)]
    );
    // It warns of the device that is appended and not in the input.
    let plain = sandbox.run(&format!(
        "{BUILD} --format csv --max-change any {{}}/dump.csv"
    ));
    assert!(
        plain.status == Some(0) && !plain.stdout.contains("value_bits"),
        "{plain:?}"
    );
    assert_eq!(value(&sandbox, &all[0]), None);
}

/// The newest statement about a device decides, whichever value is larger: a build over its input,
/// and a later append over an earlier one.
#[test]
fn appended_values_replace_those_of_the_build() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..5);
    let row = |n: usize, value: &str| (all[n].clone(), value.to_owned());
    write(
        &sandbox,
        &[row(0, "9"), row(1, "8"), row(2, "7"), row(3, "6")],
    );
    let build = format!("{BUILD} --format csv --value tier {{}}/dump.csv");
    sandbox.run(&build).succeeds();
    let command = "append --store {}/s --audience a --json --format csv --column id";
    let append = |rows: &[(String, String)], flags: &str| {
        let rows = rows.iter().map(|(id, value)| format!("{value},{id}\n"));
        sandbox.file(
            "more.csv",
            "tier,id\n".to_owned() + &rows.collect::<String>(),
        );
        sandbox
            .run(&format!("{command} {flags} {{}}/more.csv"))
            .json()
    };
    append(
        &[row(0, "12"), row(1, "3"), row(4, "5"), row(4, "4")],
        "--value tier",
    );
    let values = || [0, 1, 2, 3, 4].map(|n| value(&sandbox, &all[n]));
    assert_eq!(values(), [Some(12), Some(3), Some(7), Some(6), Some(5)]);
    append(&[row(0, "2")], "--value tier");
    sandbox.file("plain", format!("{}\n", all[3]));
    let plain = sandbox.run("append --store {}/s --audience a --json {}/plain");
    plain.json_with_warning("devices that are added without --value have none");
    let valued = sandbox.run(&format!("{command} --value tier --dry-run {{}}/dump.csv"));
    assert_eq!(valued.stderr, "");
    assert_eq!(values(), [Some(2), Some(3), Some(7), None, Some(5)]);
    let query = format!("query --store {{}}/s --audience a {} none", all.join(" "));
    let lines = "1\tmember\t2\n2\tmember\t3\n3\tmember\t7\n4\tmember\n5\tmember\t5\n6\tblank\n";
    assert_eq!(sandbox.run(&query).succeeds().stdout, lines);
    let queried = sandbox.run(&format!("{query} --json")).json();
    assert_eq!(
        queried["values"],
        serde_json::json!([2, 3, 7, null, 5, null])
    );
    let listed = sandbox.run_with(
        "query --store {}/s --audience a --json -",
        all[0].as_bytes(),
    );
    assert_eq!(
        listed.stdout,
        "{\"line\":1,\"answer\":\"member\",\"value\":2}\n"
    );
    let verify = "verify --store {}/s --audience a --json --format csv --column id --probes 1000";
    let verified = sandbox
        .run(&format!("{verify} --against {{}}/dump.csv"))
        .json();
    assert_eq!(verified["value_bits"], 4);
    assert_eq!(
        (
            &verified["against"]["checked"],
            &verified["against"]["without_value"]
        ),
        (&4.into(), &1.into())
    );
    sandbox.file("gone", format!("{}\n", all[2]));
    sandbox
        .run("remove --store {}/s --audience a {}/gone")
        .succeeds();
    let appended = append(
        &[row(4, "15"), row(4, "16")],
        "--value tier --max-reject-ratio 0.5",
    );
    assert_eq!(
        (&appended["usable"], &appended["malformed"]),
        (&1.into(), &1.into())
    );
    assert_eq!(values(), [Some(2), Some(3), None, None, Some(15)]);

    // The device without a value has that of the input; the build after it has its input alone.
    sandbox.run(&format!("{build} --max-change any")).succeeds();
    assert_eq!(values(), [Some(2), Some(3), None, Some(6), Some(15)]);
    sandbox
        .run(&format!("{build} --max-change any --keep-carried"))
        .succeeds();
    assert_eq!(values(), [Some(2), Some(3), None, Some(6), Some(15)]);
    assert_eq!(
        sandbox.run(&format!("{build} --max-change any")).status,
        Some(0)
    );
    assert_eq!(values(), [Some(9), Some(8), Some(7), Some(6), None]);
}

#[test]
fn values_over_a_generation_without_them_are_refused() {
    let sandbox = Sandbox::new();
    write(
        &sandbox,
        &[(ids(IdKind::Md5, 0..1)[0].clone(), "9".to_owned())],
    );
    sandbox
        .run(&format!("{BUILD} --format csv {{}}/dump.csv"))
        .succeeds();
    let append = "append --store {}/s --audience a --value tier";
    let append = sandbox.run(&format!("{append} --format csv --column id {{}}/dump.csv"));
    append.fails(2, "generation 1 has no values: --value needs");
}

#[test]
fn impossible_values_are_refused_before_anything_is_written() {
    let sandbox = Sandbox::new();
    write(
        &sandbox,
        &[(ids(IdKind::Md5, 0..1)[0].clone(), "9".to_owned())],
    );
    let build = "build --store {}/s --audience a --value tier";
    for (flags, message) in [
        (
            "--format csv --column id {}/dump.csv",
            "a block512 filter holds no values",
        ),
        (
            "--filter ribbon {}/dump.csv",
            "--value requires --format csv, ndjson or parquet",
        ),
        (
            "--filter ribbon --format csv --column id --case all {}/dump.csv",
            "--value does not go with --case all",
        ),
    ] {
        sandbox.run(&format!("{build} {flags}")).fails(2, message);
    }
    let misnamed = "build --store {}/s --audience a --filter ribbon --column id --value score";
    let csv = sandbox.run(&format!("{misnamed} --format csv {{}}/dump.csv"));
    csv.fails(3, "has no column \"score\"; columns found: tier, id");
    let ndjson = sandbox.run(&format!("{misnamed} --format ndjson {{}}/dump.ndjson"));
    ndjson.fails(3, "score");
    assert!(sandbox.store().is_empty());
}
