//! Forms of ids: every row of the table in `docs/reference/inputs.md`.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use rtad_core::device::{IdKind, KeyMaker};
use rtad_loader::host::arrow::{IdArray, ValueForm};
use testkit::pages::id_forms;
use testkit::sandbox::{Sandbox, ids, lines};

const KINDS: [&str; 9] = [
    "md5",
    "idfa",
    "imei",
    "oaid",
    "android_id",
    "mac",
    "caid",
    "gaid",
    "openid",
];

/// As the Python package and the job on Spark read a column of this text.
fn result_in_column(kind: &str, text: &str) -> &'static str {
    let kind: IdKind = kind.parse().unwrap();
    let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let ids = IdArray::new(&array, ValueForm::Text, &kind.into()).unwrap();
    let (mut keys, mut results) = (Vec::new(), Vec::new());
    ids.append_keys(&KeyMaker::default(), &kind.into(), &mut keys, |made| {
        results.push(made.keys);
    });
    match results[..] {
        [Ok(1)] => "usable",
        [Err(unusable)] => unusable.as_str(),
        _ => panic!("{results:?}"),
    }
}

#[test]
fn table_of_forms_says_what_lists_and_columns_have() {
    let sandbox = Sandbox::new();
    for form in id_forms(&KINDS) {
        let text = &form.text;
        sandbox.file("list", format!("{text}\n"));
        for (kind, result) in form.results() {
            let build = |flags: &str| {
                sandbox.run(&format!(
                    "build --store {{}}/s --audience a --dry-run --json --allow-empty --id-kind \
                     {kind} --max-reject-ratio 1 {flags} {{}}/list"
                ))
            };
            let report = build("--allow-lookalikes").json();
            let found = if report["blank"] == 1 {
                "blank"
            } else if report["rejected"]["malformed"] == 1 {
                "malformed"
            } else {
                "usable"
            };
            assert_eq!(found, result, "{text} as {kind}: {report}");
            assert_eq!(result_in_column(kind, text), result, "{text} as {kind}");

            let is_lookalike = form.lookalike.iter().any(|other| other == kind);
            let refused = build("");
            let expected = if is_lookalike { Some(3) } else { Some(0) };
            assert_eq!(refused.status, expected, "{text} as {kind}: {refused:?}");
        }
    }
}

/// Lists with something around each id, as exports write them.
#[test]
fn list_of_wrapped_ids_is_refused_with_the_cause() {
    let sandbox = Sandbox::new();
    let (uuids, imeis) = (ids(IdKind::Gaid, 0..50), ids(IdKind::Imei, 0..50));
    let wrapped = "most look like ids in quotes or brackets, with a label, or several in one text";
    let floats = "most look like numbers with a fraction or an exponent";
    let digests = "most look like digests other than md5 in hex";
    for (name, list, hint) in [
        (
            "quotes",
            uuids.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>(),
            wrapped,
        ),
        (
            "label",
            uuids.iter().map(|id| format!("oaid:{id}")).collect(),
            wrapped,
        ),
        (
            "pair",
            uuids.iter().map(|id| format!("{id};{id}")).collect(),
            wrapped,
        ),
        (
            "array",
            uuids.iter().map(|id| format!("[{id} {id}]")).collect(),
            wrapped,
        ),
        (
            "float",
            imeis.iter().map(|id| format!("{id}.0")).collect(),
            floats,
        ),
        (
            "sha",
            uuids
                .iter()
                .map(|id| format!("{}00000000", id.replace('-', "")))
                .collect(),
            digests,
        ),
    ] {
        sandbox.file("list", lines(&list));
        for kind in ["oaid", "caid"] {
            let build = format!("build --store {{}}/s --audience a --id-kind {kind} {{}}/list");
            sandbox.run(&build).fails(3, hint);
        }
        assert!(!sandbox.path().join("s").exists(), "{name}");
    }
}

/// A lower-case UUID is an IDFA, or an OAID: it has the keys of both. Damaged IMEIs are no OAIDs.
#[test]
fn mixed_column_reads_uuids_in_either_case() {
    let sandbox = Sandbox::new();
    let (idfas, oaids) = (ids(IdKind::Idfa, 0..20), ids(IdKind::Oaid, 20..40));
    let lower: Vec<String> = idfas[10..].iter().map(|id| id.to_lowercase()).collect();
    let list = [&idfas[..10], &lower, &oaids, &["8.68049E+14".to_owned()]].concat();
    sandbox.file("mixed", format!("id\n{}", lines(&list)));
    let target = "--store {}/s --audience a";
    let built = sandbox.run(&format!(
        "build {target} --json --format csv --column id=idfa,imei,oaid --max-reject-ratio 0.1 \
         {{}}/mixed"
    ));
    let report = built.json();
    assert_eq!(report["rejected"]["malformed"], 1, "{report}");
    let by_kind = serde_json::json!({ "idfa": 40 });
    assert_eq!(report["usable_by_kind"], by_kind, "{report}");
    assert_eq!(report["columns"][0]["usable_by_kind"], by_kind, "{report}");

    for (kind, asked) in [("idfa", &idfas), ("oaid", &oaids), ("idfa,oaid", &oaids)] {
        let query = format!("query {target} --json --id-kind {kind} {}", asked.join(" "));
        let answers = sandbox.run(&query).json();
        let answers = answers["answers"].as_array().unwrap();
        assert!(
            answers.iter().all(|answer| answer == "member"),
            "{kind}: {answers:?}"
        );
    }
}

#[test]
fn limit_of_malformed_values_is_of_all_inputs_and_of_each_column() {
    let sandbox = Sandbox::new();
    let md5s = ids(IdKind::Md5, 0..4000);
    let build = |flags: &str| {
        sandbox.run(&format!(
            "build --store {{}}/s --audience a --dry-run {flags}"
        ))
    };

    // Blank values are no part of the whole.
    let blanks = vec!["null".to_owned(); 989];
    let bad: Vec<String> = (0..9).map(|index| format!("bad {index}")).collect();
    sandbox.file("blanks", lines(&[&md5s[..11], &blanks, &bad].concat()));
    build("{}/blanks").fails(3, "9 of 20 values are malformed");

    // One bad row in a small part is chance; in all inputs it counts.
    sandbox.file("large", lines(&md5s));
    sandbox.file("small", lines(&[&md5s[..19], &bad[..1]].concat()));
    build("{}/large {}/small").succeeds();
    sandbox.file("worse", lines(&[&md5s[..3], &bad[..7]].concat()));
    build("{}/large {}/worse").fails(3, "worse: 7 of 10 values are malformed");
    for part in 0..9 {
        sandbox.file(
            &format!("part-{part}"),
            lines(&[&md5s[..9], &bad[..1]].concat()),
        );
    }
    build("{}/part-*").fails(3, "all inputs: 9 of 90 values are malformed");

    // A column of another kind beside a full one.
    let row = |index: usize| match index {
        0..20 => format!("{},{}\n", md5s[index], "bad"),
        _ => format!("{},\n", md5s[index]),
    };
    let rows: String = (0..4000).map(row).collect();
    sandbox.file("columns", format!("md5,idfa\n{rows}"));
    let columns = "--format csv --column md5=md5 --column idfa=idfa {}/columns";
    build(columns).fails(3, "column idfa of input");
}

/// Ids in the brackets of a macro may be ids: with a short one, nothing tells.
#[test]
fn column_of_texts_in_brackets_is_a_warning() {
    let sandbox = Sandbox::new();
    let idfas = ids(IdKind::Idfa, 0..20);
    let rows: Vec<_> = idfas.iter().map(|id| format!("{id},[user_abc]")).collect();
    sandbox.file("dump.csv", format!("idfa,openid\n{}", lines(&rows)));
    let built = sandbox.run(
        "build --store {}/s --audience a --format csv --column idfa=idfa --column openid=openid \
         {}/dump.csv",
    );
    assert_eq!(built.status, Some(0), "{}", built.stderr);
    let warning = "dump.csv: 20 of 20 values are texts in brackets, and count as blank";
    assert!(built.stderr.contains(warning), "{}", built.stderr);
    assert!(
        built.stderr.contains("column openid of input"),
        "{}",
        built.stderr
    );
}

#[test]
fn fraction_of_json_is_named_as_one() {
    let sandbox = Sandbox::new();
    sandbox.file("rows", r#"{"imei":8.68049039501257e14}"#);
    sandbox
        .run("build --store {}/s --audience a --format ndjson --column imei=imei {}/rows")
        .fails(3, "most look like numbers with a fraction or an exponent");
}

#[test]
fn query_of_ids_of_another_kind_hints_at_it() {
    let sandbox = Sandbox::new();
    sandbox.file("members", lines(&ids(IdKind::Imei, 0..10)));
    sandbox.build("--id-kind imei {}/members");
    let asked = sandbox.run("query --store {}/s --audience a 868049039501257");
    assert_eq!(
        (asked.status, asked.stdout.trim()),
        (Some(0), "1\tmalformed")
    );
    let hint = "1 of 1 ids are malformed: expected ids of kind md5; most look like ids of kind \
                imei: use --id-kind imei";
    assert!(asked.stderr.contains(hint), "{asked:?}");
}
