//! Every command that reads ids: counts by column and by input in its reports, and files that it
//! refuses.

use rtad_core::device::IdKind;
use serde_json::{Value, json};
use testkit::sandbox::{Sandbox, ids};

use crate::support::gzip;

const COLUMNS: &str = "--format csv --column idfa=idfa --column imei=imei";

/// Two files of two columns. The second one has its columns in another order.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let (idfas, imeis) = (ids(IdKind::Idfa, 0..40), ids(IdKind::Imei, 0..40));
    let mut one = "idfa,imei\n".to_owned();
    for (idfa, imei) in idfas.iter().zip(&imeis).take(30) {
        one += &format!("{idfa},{imei}\n");
    }
    one += ",no id\n,worse\n,\nrow of one cell\n";
    let mut other = "imei,idfa\n".to_owned();
    for (idfa, imei) in idfas.iter().zip(&imeis).skip(30) {
        other += &format!("{imei},{idfa}\n,two words\n");
    }
    sandbox.file("one.csv", one);
    sandbox.file("other.csv", &other);
    let packed = gzip(other.as_bytes());
    sandbox.file("cut.gz", &packed[..packed.len() - 9]);
    sandbox
}

fn expected_columns() -> Value {
    json!([
        {"name": "idfa", "kinds": "idfa", "usable": 40, "blank": 3, "malformed": 10},
        {"name": "imei", "kinds": "imei", "usable": 40, "blank": 11, "malformed": 2},
    ])
}

/// The inputs' rows, usable, blank and malformed values.
fn inputs(report: &Value) -> Vec<[u64; 4]> {
    let input = |input: &Value| {
        ["rows", "usable", "blank", "malformed"].map(|name| input[name].as_u64().unwrap())
    };
    report["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(input)
        .collect()
}

#[test]
fn every_report_counts_by_column_and_input() {
    let sandbox = sandbox();
    for (command, report) in [
        ("build --store {}/s --audience a", ""),
        ("append --store {}/s --audience a", ""),
        (
            "verify --store {}/s --audience a --probes 1000 --against",
            "/against",
        ),
        ("remove --store {}/s --audience a --dry-run", ""),
        ("dedup", ""),
    ] {
        let (command, flag) = match command.strip_suffix(" --against") {
            Some(command) => (command, "--against"),
            None => (command, ""),
        };
        let run = |json: &str| {
            let inputs = "{}/one.csv {}/other.csv";
            let joined = format!("{command} {json} {COLUMNS} --max-reject-ratio 1 {flag} {inputs}");
            sandbox.run(&joined.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let json = run("--json").json();
        let json = json.pointer(report).unwrap();
        assert_eq!(json["columns"], expected_columns(), "{command}");
        assert_eq!(
            inputs(json),
            [[34, 60, 4, 3], [20, 20, 10, 10]],
            "{command}: {json}"
        );
        let done = run(if command.starts_with("build") {
            "--max-change any"
        } else {
            ""
        });
        // The report of `dedup` is beside its ids.
        let text = done.stdout + &done.stderr;
        for (name, counts) in [
            ("idfa", "idfa 40 3 10"),
            ("imei", "imei 40 11 2"),
            ("one.csv", "34 60 4 3"),
            ("other.csv", "20 20 10 10"),
        ] {
            let is_row = |line: &str| {
                let cells: Vec<_> = line.split_whitespace().collect();
                cells.len() > 1 && cells[0].ends_with(name) && cells.join(" ").ends_with(counts)
            };
            assert!(text.lines().any(is_row), "{command}: {name}: {text}");
        }

        // A refused file is neither hidden by good ones nor used in part.
        let before = sandbox.store();
        let refused = sandbox.run(&format!(
            "{command} --json {COLUMNS} --max-reject-ratio 1 {flag} {{}}/other.csv {{}}/cut.gz"
        ));
        refused.fails(3, "cut.gz: gzip data is cut short or corrupt");
        let malformed = sandbox.run(&format!(
            "{command} --json {COLUMNS} {flag} {{}}/other.csv {{}}/one.csv"
        ));
        malformed.fails(3, "other.csv: 10 of 30 values are malformed");
        assert_eq!(sandbox.store(), before, "{command}");
    }
}

/// A whole column may be lost within the limit of an input.
#[test]
fn column_of_malformed_values_is_refused() {
    let sandbox = Sandbox::new();
    let mut table = "idfa,imei\n".to_owned();
    for (row, imei) in ids(IdKind::Imei, 0..1000).iter().enumerate() {
        table += &format!(
            "{},{imei}\n",
            if row % 200 == 0 {
                "868049039501257"
            } else {
                ""
            }
        );
    }
    sandbox.file("table.csv", table);
    let built = sandbox.run(
        "build --store {}/s --audience a --format csv --column idfa=idfa --column imei=imei \
         {}/table.csv",
    );
    built.fails(3, "5 of 5 values are malformed");
    assert!(
        built.stderr.contains("error: column idfa of input"),
        "{built:?}"
    );
}
