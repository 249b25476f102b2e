//! Audiences of ribbon filters: build, verification, changes, and refused commands.

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::sandbox::{Sandbox, ids, lines};

use crate::support::chunks;

/// Md5s in eight shards of about 5,000, which have second tiers, and some in many small shards.
fn crowded() -> Vec<String> {
    let mut all = ids(IdKind::Md5, 0..41_000);
    for (number, id) in all[..40_000].iter_mut().enumerate() {
        id.replace_range(..4, &format!("8f0{}", number % 8));
    }
    all
}

const VERIFY: &str = "verify --store {}/s --audience a --json --against {}/ids --probes";

fn published() -> (Sandbox, Vec<String>) {
    let (sandbox, all) = (Sandbox::new(), crowded());
    sandbox.file("ids", lines(&all));
    let built = "build --store {}/s --audience a --json --filter ribbon {}/ids";
    let built = sandbox
        .run(built)
        .json_with_warning("its share of the keys");
    assert_eq!(
        (&built["filter"], &built["keys"]),
        (&"ribbon".into(), &41_000.into())
    );
    assert_eq!(built["fill_ratio"], Value::Null);
    assert_eq!(built["gate"]["max_fill"], Value::Null);
    let check = &built["check"];
    assert!(check["members_checked"].as_u64().unwrap() > 5000, "{built}");
    assert_eq!(check["members_missing"], 0);
    assert!(check["probes"].as_u64().unwrap() > 50_000, "{built}");
    (sandbox, all)
}

#[test]
fn all_members_are_found_and_the_figures_agree() {
    let (sandbox, all) = published();
    let verified = sandbox.run(&format!("{VERIFY} 1000000")).json();
    assert_eq!(verified["against"]["false_negatives"], 0);
    let inspected = sandbox
        .run("inspect --store {}/s --audience a --json")
        .json();
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(
        (&inspected["filter"], &inspected["hashes"]),
        (&"ribbon".into(), &2.into())
    );
    assert!((13_300.0..13_400.0).contains(&number(&inspected["millibits_per_key"])));
    // About one percent of the crowded shards, and every key of the small ones.
    assert!(
        (200.0..900.0).contains(&number(&inspected["diverted_keys"])),
        "{inspected}"
    );
    assert!(
        (900.0..1200.0).contains(&number(&inspected["listed_keys"])),
        "{inspected}"
    );
    assert_eq!(inspected["survey"]["fill"], Value::Null);
    assert_eq!(inspected["survey"]["diverted"]["max"], 1.0);
    assert!(number(&inspected["survey"]["diverted"]["min"]) < 0.03);
    let text = sandbox.run("inspect --store {}/s --audience a").stdout;
    for word in ["millibits per key", "diverted keys", "listed keys"] {
        assert!(text.contains(word), "{text}");
    }
    let query = format!(
        "query --store {{}}/s --audience a --json {} nonsense",
        all[0]
    );
    assert_eq!(
        sandbox.run(&query).json()["answers"],
        serde_json::json!(["member", "malformed"])
    );
}

#[test]
fn chunks_do_not_depend_on_order_threads_or_memory() {
    let (sandbox, mut all) = published();
    all.reverse();
    let doubled = [&all[..], &all[..5000]].concat();
    sandbox.file("ids", lines(&doubled));
    let store = sandbox.store();
    for flags in ["--threads 1", "--threads 3", "--threads 2 --memory 128MiB"] {
        let build = "build --store {}/s --audience a --json --filter ribbon";
        let built = sandbox.run(&format!("{build} {flags} {{}}/ids"));
        let built = built.json_with_warning("its share of the keys");
        assert_eq!(
            (&built["keys"], &built["chunks_written"]),
            (&41_000.into(), &0.into())
        );
    }
    assert_eq!(chunks(&sandbox.store()), chunks(&store));
}

#[test]
fn changes_are_deltas_until_a_full_build() {
    let (sandbox, all) = published();
    let new = ids(IdKind::Md5, 90_000..90_010);
    sandbox.file("new", lines(&new));
    sandbox.file("gone", lines(&all[..20]));
    let members = |ids: &[String]| {
        let query = format!("query --store {{}}/s --audience a --json {}", ids.join(" "));
        let answers = sandbox.run(&query).json();
        answers["answers"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|answer| *answer == "member")
            .count()
    };
    sandbox
        .run("append --store {}/s --audience a --json {}/new")
        .json();
    sandbox
        .run("remove --store {}/s --audience a --json {}/gone")
        .json();
    assert_eq!(
        (members(&new), members(&all[..20]), members(&all[20..60])),
        (10, 0, 40)
    );

    // A full build of another kind and back; a rollback.
    for (generation, kind) in [(2, "block512"), (3, "ribbon"), (4, "block512 --fpr 0.1")] {
        let build = "build --store {}/s --audience a --json --keep-carried --filter";
        let built = sandbox.run(&format!("{build} {kind} {{}}/ids"));
        let built = built.json_with_warning("its share of the keys");
        assert_eq!(
            (&built["generation"], &built["keys"]),
            (&generation.into(), &40_990.into())
        );
        assert_eq!((members(&new), members(&all[20..60])), (10, 40));
    }
    sandbox
        .run("rollback --store {}/s --audience a --to 1 --quiet")
        .succeeds();
    assert_eq!(
        (members(&new), members(&all[..20]), members(&all[20..60])),
        (10, 0, 40)
    );
}

#[test]
fn refused_numbers_are_named() {
    let (sandbox, _) = published();
    sandbox
        .run("build --store {}/s --audience a --filter ribbon {}/ids --fpr 0.000001")
        .fails(
            2,
            "false-positive rate of a ribbon filter is 0.000001, expected 0.000016",
        );
    let plan = sandbox.run("plan --keys 1.5e9 --json").json();
    let ribbon = &plan["filters"][1];
    assert_eq!(ribbon["filter"], "ribbon");
    let bits = ribbon["bits_per_key"].as_f64().unwrap();
    assert!((13.6..13.9).contains(&bits), "{bits}");
    let kinds = |fpr: &str| {
        let plan = sandbox
            .run(&format!("plan --keys 100000 --json --fpr {fpr}"))
            .json();
        plan["filters"].as_array().unwrap().len()
    };
    assert_eq!((kinds("0.001"), kinds("0.000001")), (2, 1));
}
