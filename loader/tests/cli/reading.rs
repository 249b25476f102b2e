//! Read-only commands: verify, query, inspect, list, plan, synth.

use std::collections::BTreeSet;
use std::io::{Read, Write as _};

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::store::{manifest_file, newest_record, replace_live_manifest};

use crate::support::chunks;

fn published() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..50_000)));
    sandbox.build("--fpr 0.01 {}/ids");
    sandbox
}

const VERIFY: &str = "verify --store {}/s --audience a --probes 1000";

#[test]
fn verify_detects_damaged_files() {
    let sandbox = published();
    let store = sandbox.store();
    let names: Vec<String> = chunks(&store).into_iter().cloned().collect();
    let (one, other) = (&names[0], &names[1]);
    let manifest = manifest_file(&sandbox.path().join("s/a"), 1);
    let manifest = manifest.strip_prefix(sandbox.path().join("s")).unwrap();
    let manifest = manifest.display().to_string();
    let text = |name: &String| String::from_utf8(store[name].clone()).unwrap();
    let flipped = |name: &String, offset: usize| {
        let mut bytes = store[name].clone();
        bytes[offset] ^= 1;
        bytes
    };
    let chunk = &store[one];
    let faults: Vec<(&str, &String, Option<Vec<u8>>, &str)> = vec![
        (
            "a byte of the body",
            one,
            Some(flipped(one, chunk.len() - 1)),
            "digest is",
        ),
        (
            "a byte of the header",
            one,
            Some(flipped(one, 24)),
            "first shard at byte 24",
        ),
        ("the magic", one, Some(flipped(one, 0)), "is not a chunk"),
        ("the version", one, Some(flipped(one, 8)), "upgrade rtad"),
        (
            "cut short",
            one,
            Some(chunk[..chunk.len() - 1].to_vec()),
            "expected",
        ),
        ("empty", one, Some(vec![]), "has 0 bytes"),
        (
            "too long",
            one,
            Some([&chunk[..], b"\0"].concat()),
            "expected",
        ),
        ("another chunk", one, Some(store[other].clone()), "expected"),
        ("missing", one, None, "does not exist"),
        (
            "a manifest's number",
            &manifest,
            Some(text(&manifest).replacen("50000", "50001", 1).into()),
            "digest is",
        ),
        (
            "a manifest cut short",
            &manifest,
            Some(store[&manifest][..100].to_vec()),
            "has 100 bytes",
        ),
        ("no manifest", &manifest, None, "does not exist"),
    ];
    for (fault, name, bytes, message) in faults {
        let path = sandbox.path().join("s").join(name);
        match bytes {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let outcome = sandbox.run(VERIFY);
        assert!(
            outcome.stderr.contains("verification failed"),
            "{fault}: {outcome:?}"
        );
        outcome.fails(4, message);
        assert!(
            outcome.stderr.contains(name.as_str()),
            "{fault}: no file name: {outcome:?}"
        );
        sandbox.run(&format!("{VERIFY} --json")).fails(4, message);
        std::fs::write(&path, &store[name]).unwrap();
    }
    let record = newest_record(&sandbox.path().join("s/a"));
    let sound = std::fs::read(&record).unwrap();
    std::fs::write(&record, "{}").unwrap();
    let name = "a/records/00000000000000000001.json";
    sandbox.run(VERIFY).fails(4, name);
    sandbox
        .run("inspect --store {}/s --audience a")
        .fails(5, name);
    std::fs::write(&record, sound).unwrap();
    let intact = sandbox.run(VERIFY);
    assert_eq!(
        (intact.status, intact.stderr.as_str()),
        (Some(0), ""),
        "{intact:?}"
    );
    assert!(
        intact.stdout.starts_with("a generation 1 is intact\n"),
        "{intact:?}"
    );
}

#[test]
fn verify_checks_the_statistics_of_the_manifest() {
    let sandbox = published();
    sandbox.run(VERIFY).succeeds();
    let audience = sandbox.path().join("s/a");
    let text = std::fs::read(manifest_file(&audience, 1)).unwrap();
    let mut manifest: Value = serde_json::from_slice(&text).unwrap();
    manifest["filter"]["expected_fpr"] = 0.001.into();
    replace_live_manifest(&audience, manifest.to_string().as_bytes());
    for generation in ["", "--generation 1"] {
        sandbox
            .run(&format!("{VERIFY} {generation}"))
            .fails(4, "filter.expected_fpr: expected");
    }
}

#[test]
fn verify_counts_false_negatives_and_measures_the_fpr() {
    let sandbox = published();
    let non_members = ids(IdKind::Md5, 50_000..50_100);
    sandbox.file("others", lines(&non_members));
    let outcome = sandbox.run(&format!("{VERIFY} --against {{}}/ids {{}}/others"));
    outcome.fails(4, " of 50100 ids are not members");
    assert!(
        non_members
            .iter()
            .all(|id| !outcome.stderr.contains(id.as_str()))
    );
    let measured = sandbox
        .run("verify --store {}/s --audience a --probes 2000000 --json --against {}/ids")
        .json();
    let number = |name: &str| measured[name].as_f64().unwrap();
    assert_eq!(
        (number("probes"), &measured["against"]["false_negatives"]),
        (2e6, &0.into())
    );
    assert!(number("low") <= number("measured_fpr") && number("measured_fpr") <= number("high"));
    assert!(number("expected_fpr") <= number("target_fpr"));
    assert_eq!(number("measured_fpr"), number("false_positives") / 2e6);
}

#[test]
fn query_reads_only_the_chunks_of_its_ids() {
    let sandbox = published();
    let member = &ids(IdKind::Md5, 0..1)[0];
    let shard = u64::from_str_radix(&member[..4], 16).unwrap();
    let inspected = sandbox
        .run("inspect --store {}/s --audience a --json")
        .json();
    for chunk in inspected["chunks"].as_array().unwrap() {
        let first = chunk["first_shard"].as_u64().unwrap();
        let holds = (first..first + chunk["shard_count"].as_u64().unwrap()).contains(&shard);
        if !holds {
            let name = format!("s/a/chunks/{}.chunk", chunk["digest"].as_str().unwrap());
            std::fs::remove_file(sandbox.path().join(name)).unwrap();
        }
    }
    let upper = member.to_uppercase();
    let query = format!("query --store {{}}/s --audience a {member} null nonsense {upper} -1");
    let text = sandbox.run(&query);
    assert_eq!(
        text.stdout, "1\tmember\n2\tblank\n3\tmalformed\n4\tmember\n5\tblank\n",
        "{text:?}"
    );
    let json = sandbox.run(&format!("{query} --json")).json();
    assert_eq!(
        json["answers"],
        serde_json::json!(["member", "blank", "malformed", "member", "blank"])
    );
    let gone = sandbox.run(&format!(
        "query --store {{}}/s --audience a {}",
        ids(IdKind::Md5, 1..40).join(" ")
    ));
    gone.fails(5, "does not exist");
}

#[test]
fn inspect_and_list_report_generations() {
    let sandbox = published();
    let inspected = sandbox
        .run("inspect --store {}/s --audience a --json")
        .json();
    assert_eq!(
        (&inspected["keys"], &inspected["build"]["rows"]),
        (&50_000.into(), &50_000.into())
    );
    let overall = inspected["survey"]["expected_fpr"]["mean"]
        .as_f64()
        .unwrap()
        * inspected["survey"]["shards"].as_f64().unwrap()
        / 65_536.0;
    let stated = inspected["expected_fpr"].as_f64().unwrap();
    assert!(
        (overall - stated).abs() < stated * 1e-9,
        "{overall} {stated}"
    );
    assert!(
        sandbox
            .run("inspect --store {}/s --audience a")
            .stdout
            .starts_with("a generation 1\n")
    );

    sandbox
        .run("build --store {}/s --audience b-2 --quiet {}/ids")
        .succeeds();
    std::fs::create_dir(sandbox.path().join("s/not an audience")).unwrap();
    sandbox.build("--fpr 0.01 {}/ids");
    let audience = sandbox.path().join("s/a");
    std::fs::write(manifest_file(&audience, 1), "{}").unwrap();
    let list = sandbox.run("list --store {}/s --json").json();
    assert_eq!(list["audiences"][0]["live_generation"], 2);
    assert_eq!(list["audiences"][0]["generations"][0]["fault"], "truncated");
    assert_eq!(list["audiences"][1]["audience"], "b-2");
    let text = sandbox.run("list --store {}/s").stdout;
    assert!(
        text.contains("2 live") && text.contains("1      unreadable: truncated"),
        "{text}"
    );

    let manifest = manifest_file(&audience, 2);
    let bytes = std::fs::read(&manifest).unwrap();
    let expected = "audience a: the manifest of live generation 2 is missing or damaged";
    for fault in ["not_found", "truncated"] {
        match fault {
            "not_found" => std::fs::remove_file(&manifest).unwrap(),
            _ => std::fs::write(&manifest, &bytes[1..]).unwrap(),
        }
        sandbox.run("list --store {}/s --json").fails(5, expected);
        let listed = sandbox.run("list --store {}/s");
        assert_eq!(listed.status, Some(5), "{listed:?}");
        let line = format!("2 live unreadable: {fault}\n");
        assert!(listed.stdout.contains(&line), "{listed:?}");
    }
    std::fs::write(&manifest, &bytes).unwrap();

    // A damaged record hides no other audience.
    let record = newest_record(&audience);
    let bytes = std::fs::read(&record).unwrap();
    std::fs::write(&record, "{}").unwrap();
    let listed = sandbox.run("list --store {}/s");
    assert_eq!(listed.status, Some(5), "{listed:?}");
    let lines = "a\n  newest record unreadable: format\nb-2\n       1 live";
    assert!(listed.stdout.contains(lines), "{listed:?}");
    for audience in ["", "--audience a"] {
        sandbox
            .run(&format!("list --store {{}}/s {audience} --json"))
            .fails(5, "a/records/00000000000000000002.json: ");
    }
    std::fs::write(&record, bytes).unwrap();

    sandbox
        .run("list --store {}/nowhere")
        .fails(5, "nowhere does not exist");
    for arguments in ["list", "inspect", "verify", "query", "rollback"] {
        let ids = if arguments == "query" { "0123" } else { "" };
        let outcome = sandbox.run(&format!("{arguments} --store {{}}/s --audience none {ids}"));
        outcome.fails(5, "audience none: no generation is published");
    }
    sandbox
        .run("list --store ftp://bucket/rtad")
        .fails(2, "it has an unknown scheme");
}

#[test]
fn plan_reports_all_kinds_of_filter() {
    let sandbox = Sandbox::new();
    let plan = sandbox.run("plan --keys 600000000 --json").json();
    let filters = plan["filters"].as_array().unwrap();
    assert_eq!(
        filters
            .iter()
            .map(|f| f["filter"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["block512", "ribbon"]
    );
    assert_eq!(plan["one_core_pods"], 3);
    let [rolling, whole] =
        ["rolling", "whole"].map(|swap| filters[1][format!("{swap}_pod_bytes")].as_u64().unwrap());
    let snapshot = filters[1]["memory_bytes"].as_u64().unwrap();
    assert_eq!(
        [rolling, whole],
        [snapshot + 700_000_000, 2 * snapshot + 650_000_000]
    );
    let text = sandbox.run("plan --keys 600000000").stdout;
    assert!(
        text.contains("ribbon") && text.contains("rolling pod") && text.contains("computed"),
        "{text}"
    );
    sandbox.run("plan --keys 1 --fpr 0.5").fails(
        2,
        "--filter, --fpr: false-positive rate of a block512 filter is 0.5, expected",
    );

    // The plan bounds the build of a small audience.
    let sandbox = published();
    let built = sandbox.build("{}/ids --dry-run")["size_bytes"]
        .as_f64()
        .unwrap();
    let planned = sandbox.run("plan --keys 50000 --json").json()["filters"][0]["disk_bytes"]
        .as_f64()
        .unwrap();
    assert!((0.5..1.0).contains(&(built / planned)), "{built} {planned}");
}

#[test]
fn synth_is_deterministic_and_accepts_a_closed_pipe() {
    let sandbox = Sandbox::new();
    for kind in IdKind::ALL {
        let text = sandbox
            .run(&format!(
                "synth --count 40000 --id-kind {kind} --seed 1 --offset 7"
            ))
            .stdout;
        assert_eq!(text, lines(&ids(kind, 7..40_007)), "{kind}");
    }
    assert_eq!(sandbox.run("synth --count 0").stdout, "");
    let halves =
        ["synth --count 9", "synth --count 9 --offset 9"].map(|half| sandbox.run(half).stdout);
    let distinct: BTreeSet<&str> = halves.iter().flat_map(|half| half.lines()).collect();
    assert_eq!(distinct.len(), 18);

    let mut child = spawn(&mut command(sandbox.path(), "synth --count 100000000000"));
    let mut start = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let ended = outcome(child);
    assert_eq!(
        (ended.status, ended.stderr.as_str()),
        (Some(0), ""),
        "a broken pipe is not an error"
    );
}

#[test]
fn man_page_of_every_command_has_examples_and_exit_codes() {
    let sandbox = Sandbox::new();
    sandbox.run("man {}/pages").succeeds();
    let pages: Vec<_> = std::fs::read_dir(sandbox.path().join("pages"))
        .unwrap()
        .collect();
    assert!(pages.len() > 10, "{}", pages.len());
    for page in pages {
        let page = page.unwrap();
        let text = std::fs::read_to_string(page.path()).unwrap();
        let is_command = page.file_name() != "rtad-loader.1";
        assert_eq!(text.contains(".SH EXAMPLES\n.nf\n"), is_command, "{page:?}");
        assert!(text.contains(".SH \"EXIT STATUS\"\n"), "{page:?}");
    }
}

#[test]
fn query_reads_a_list_from_stdin() {
    let sandbox = published();
    let all = ids(IdKind::Md5, 49_999..50_001);
    let text = format!("{}\r\nnull\n\nbad\n{}", all[0], all[1]);
    let query = |flags: &str| {
        let query = format!("query --store {{}}/s --audience a {flags} -");
        let mut child = spawn(&mut command(sandbox.path(), &query));
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        outcome(child).succeeds().stdout.clone()
    };
    assert_eq!(
        query(""),
        "1\tmember\n2\tblank\n3\tblank\n4\tmalformed\n5\tnot_member\n"
    );
    let json = query("--json");
    assert_eq!(
        json.lines().nth(4),
        Some(r#"{"line":5,"answer":"not_member"}"#)
    );
}

#[test]
fn verify_lists_missing_ids() {
    let sandbox = published();
    let others = ids(IdKind::Md5, 50_000..50_100);
    sandbox.file("others", lines(&others).to_uppercase());
    let failed = sandbox.run(&format!(
        "{VERIFY} --against {{}}/ids {{}}/others --missing {{}}/missing"
    ));
    failed.fails(4, "--missing FILE lists them");
    let missing = std::fs::read_to_string(sandbox.path().join("missing")).unwrap();
    let found: std::collections::BTreeSet<_> = missing.lines().map(str::to_owned).collect();
    // A false positive is a member.
    assert!(
        found.len() > 90 && found.iter().all(|id| others.contains(id)),
        "{missing}"
    );
    sandbox
        .run("append --store {}/s --audience a --json {}/missing")
        .json();
    sandbox
        .run(&format!("{VERIFY} --against {{}}/others"))
        .succeeds();
}

/// Numbers of all reports have separators. Digests, times and chunk sizes have letters or points.
#[test]
fn numbers_in_reports_have_separators() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..12_000);
    sandbox.file("all", lines(&all));
    sandbox.file(
        "odd",
        lines(&all[..2000]) + &"zz\n".repeat(1500) + &"null\n".repeat(1500),
    );
    for command in [
        "build --max-reject-ratio 1 {}/all {}/odd",
        "append --max-reject-ratio 1 {}/odd",
        "remove --tombstone {}/all",
        "build --keep-carried --max-change any --expires 1d {}/all",
        "append {}/all",
        "list",
        "inspect",
        "inspect --generation 2",
        "gc --dry-run",
        "rollback --to 1",
        "verify --probes 100000 --against {}/all",
        "diff 1 2",
        "dedup --max-reject-ratio 1 {}/all {}/odd",
        "plan --keys 12345678",
    ] {
        let store = match command.split(' ').next().unwrap() {
            "dedup" | "plan" => "",
            _ => "--store {}/s --audience a",
        };
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        let outcome = sandbox.run(&format!("{name} {store} {rest}"));
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        let is_bare =
            |word: &&str| word.len() > 3 && word.bytes().all(|byte| byte.is_ascii_digit());
        let bare = text.split(|char: char| !char.is_alphanumeric() && !",.-_/".contains(char));
        assert_eq!(
            bare.filter(is_bare).collect::<Vec<_>>(),
            [""; 0],
            "{command}: {text}"
        );
    }
}
