//! Steps and reports that do not fit together.

use super::*;

#[test]
fn inconsistent_reports_are_not_published() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..2000)));
    sandbox.file("fewer", lines(&ids(IdKind::Md5, 0..1999)));
    let mut steps = Steps::begin(&sandbox);
    let frames = steps.distinct(&["{}/ids"], 1).concat();
    let counts = steps.lines.clone();
    let chunks = steps.chunks(2000, &frames);
    assert_eq!(chunks.len(), 16);
    let with = |some: &[String]| [&counts[..], some].concat();
    let nothing_is_live = || assert!(!sandbox.path().join("s/a/CURRENT").exists());

    steps
        .publish("", &with(&chunks[1..]))
        .fails(3, "expected 2000; a chunk is missing");
    steps
        .publish("", &counts)
        .fails(3, "the chunks have 0 keys: expected 2000");
    steps
        .publish("", &[])
        .fails(3, "buckets 0 to 4095: no report of `rtad-loader distinct`");
    sandbox.file("none", "");
    let mut none = Steps::begin(&sandbox);
    none.distinct(&["{}/none"], 1);
    none.publish("", &none.lines)
        .fails(3, "no usable id in 0 rows");
    steps
        .publish("", &with(&["{}".into()]))
        .fails(3, "-, line 3: expected a report");
    let other = steps.chunks(2001, &frames);
    steps
        .publish("", &with(&[&chunks[..15], &other[15..]].concat()))
        .fails(3, "expected --keys 2000 as for other chunks, found 2001");
    let mut fewer = Steps::begin(&sandbox);
    let fewer_frames = fewer.distinct(&["{}/fewer"], 1).concat();
    let fewer = fewer.chunks(2000, &fewer_frames);
    steps
        .publish("", &with(&[&chunks[..], &fewer[..]].concat()))
        .fails(3, "was reported twice with different content");
    sandbox.file("one", "0".repeat(31) + "1\n");
    let begin = "begin --store {}/s --audience b --changes {}/changes --require-live";
    sandbox
        .run(begin)
        .fails(5, "audience b: no generation is published");
    sandbox
        .run("build --store {}/s --audience b --json {}/one")
        .json();
    sandbox.run(begin).json();
    let begun = sandbox
        .run("begin --store {}/s --audience b --changes {}/changes")
        .json();
    let job = std::mem::replace(&mut steps.job, begun.to_string());
    steps
        .publish("", &with(&chunks))
        .fails(3, "belongs to another job");
    steps.job = job;
    let line: Value = serde_json::from_str(&chunks[3]).unwrap();
    let name = format!(
        "s/a/chunks/{}.chunk",
        line["entry"]["digest"].as_str().unwrap()
    );
    let gone = sandbox.path().join(name);
    let bytes = std::fs::read(&gone).unwrap();
    let held = bytes.len();
    std::fs::remove_file(&gone).unwrap();
    for dry in ["", "--dry-run"] {
        let missing = "1 of 16 chunks are missing from the store";
        steps.publish(dry, &with(&chunks)).fails(5, missing);
    }
    std::fs::write(&gone, vec![0; held]).unwrap();
    nothing_is_live();

    // A retry repairs a damaged file.
    let again = steps.chunks(2000, &frames);
    assert_eq!(std::fs::read(&gone).unwrap(), bytes);
    let dry = steps.publish("--dry-run", &with(&again)).json();
    assert_eq!(
        (&dry["generation"], &dry["keys"]),
        (&Value::Null, &2000.into())
    );
    nothing_is_live();
    assert_eq!(
        steps.publish("--expires 1h", &with(&again)).json()["generation"],
        1
    );
    // A second publish fails.
    for dry in ["", "--dry-run"] {
        let published = "generation 1 was published since this work began at generation 0";
        steps.publish(dry, &with(&again)).fails(6, published);
    }
    let against = "verify --store {}/s --audience a --probes 1000 --json --against {}/ids";
    assert_eq!(sandbox.run(against).json()["keys"], 2000);
    // The gate is the same as for `build`.
    let mut halved = Steps::begin(&sandbox);
    sandbox.file("half", lines(&ids(IdKind::Md5, 0..900)));
    let half = halved.distinct(&["{}/half"], 2).concat();
    let all = [halved.lines.clone(), halved.chunks(900, &half)].concat();
    halved
        .publish("", &all)
        .fails(3, "expected at least 1000 by --max-shrink 0.5");
}

/// The key counts of the other parts add up without it, so the buckets are checked.
#[test]
fn missing_part_is_detected() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..2000)));
    let mut steps = Steps::begin(&sandbox);
    let mut parts = steps.distinct(&["{}/ids"], 16);
    let all = steps.lines.clone();
    // The first line is the report of `keys`.
    let absent: Value = serde_json::from_str(&steps.lines.remove(4)).unwrap();
    assert_eq!(
        (&absent["first_bucket"], &absent["buckets"]),
        (&768.into(), &256.into())
    );
    parts.remove(3);
    let total = steps.total();
    let chunks = steps.chunks(total, &parts.concat());
    let with = |lines: &[String]| [lines, &chunks[..]].concat();
    steps
        .publish("", &with(&steps.lines))
        .fails(3, "buckets 768 to 1023: no report");
    steps
        .publish("", &with(&all[..16]))
        .fails(3, "buckets 3840 to 4095: no report");
    steps
        .publish("", &with(&[&all[..], &all[2..3]].concat()))
        .fails(3, "bucket 256 is in two reports");
    // A job with fewer parts leaves such a line in the same folder.
    let whole = absent.to_string().replace("256", "512");
    steps
        .publish("", &with(&[&steps.lines[..], &[whole]].concat()))
        .fails(3, "bucket 1024 is in two reports");
    let beyond = absent.to_string().replace("256", "4096");
    steps.publish("", &with(&[beyond])).fails(
        3,
        "has 4096 buckets from 768: expected a range within 4096 buckets",
    );
    assert!(!sandbox.path().join("s/a/CURRENT").exists());
}

/// Their kinds name the hash of the ids.
#[test]
fn reports_of_keys_are_required() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Sha1, 0..2000)));
    let mut steps = Steps::begin(&sandbox);
    let frames = steps.distinct(&["--id-kind sha1 {}/ids"], 1).concat();
    let chunks = steps.chunks(2000, &frames);
    let without = [&steps.lines[1..], &chunks[..]].concat();
    let error = "expected at most 0 keys as reported by `rtad-loader keys` and `begin`, found 2000";
    steps.publish("", &without).fails(3, error);
}

/// A column may be missing in some pieces of the input, but not in all.
#[test]
fn member_in_no_piece_of_ndjson_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.file("none", "");
    let all = ids(IdKind::Md5, 0..2000);
    for (name, member, ids) in [("one", "a", &all[..1000]), ("two", "b", &all[1000..])] {
        let row = |id: &String| format!("{{\"{member}\":\"{id}\"}}\n");
        sandbox.file(name, ids.iter().map(row).collect::<String>());
    }
    for (columns, error) in [
        ("--column a --column b", None),
        (
            "--column a --column b --column c",
            Some("no row of 2000 has a member \"c\""),
        ),
    ] {
        let keys = |name| format!("--format ndjson {columns} {{}}/{name}");
        let mut steps = Steps::begin(&sandbox);
        let frames = steps
            .distinct(&[&keys("one"), &keys("none"), &keys("two")], 1)
            .concat();
        let all = [steps.lines.clone(), steps.chunks(2000, &frames)].concat();
        let published = steps.publish("", &all);
        match error {
            None => assert_eq!(published.json()["keys"], 2000),
            Some(error) => drop(published.fails(3, error)),
        }
    }
}

#[test]
fn invalid_chunk_input_is_rejected() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..2000)));
    let mut steps = Steps::begin(&sandbox);
    let keys = steps.step("keys {}/ids", b"");
    assert_eq!(keys.len(), 2000 * 16);
    let chunk = |stdin: &[u8], arguments: &str| {
        let (stdout, stderr, status) = pipe(steps.command(&format!("chunk {arguments}")), stdin);
        Outcome {
            status,
            stdout: String::from_utf8(stdout).unwrap(),
            stderr,
        }
    };
    let to = "--store {}/s --keys 2000";
    chunk(&keys, to).fails(
        3,
        "stdin: expected keys of one chunk, found keys of chunks 0 and 15",
    );
    chunk(&keys[..39], to).fails(3, "stdin: expected 16-byte keys, found 39 bytes");
    chunk(&keys[..32], "--store {}/s --keys 1").fails(3, "chunk");
    let none = chunk(b"", to);
    assert_eq!(
        (none.status, none.stdout.as_str(), none.stderr.as_str()),
        (Some(0), "", "")
    );
    let cut = chunk(b"", "--keys 2000 --cut").json();
    assert_eq!(
        (&cut["shards_per_chunk"], &cut["chunks"]),
        (&4096.into(), &16.into())
    );
    chunk(&keys, "--store {}/s --keys 2000 --frames").fails(3, "stdin: ");
    chunk(b"", "--store {}/s --keys 2000 --frames --cut")
        .status
        .filter(|code| *code == 2)
        .unwrap();
    // One chunk of unsorted keys with duplicates.
    let mut first: Vec<&[u8]> = keys.chunks(16).filter(|key| key[0] < 16).collect();
    first.reverse();
    let twice = [first.concat(), first.concat()].concat();
    let line: Value = serde_json::from_str(&chunk(&twice, to).stdout).unwrap();
    assert_eq!(
        (&line["entry"]["keys"], &line["written"]),
        (&first.len().into(), &true.into())
    );
    let line: Value = serde_json::from_str(&chunk(&first.concat(), to).stdout).unwrap();
    assert_eq!(line["written"], false);

    let (_, errors, status) = pipe(command(sandbox.path(), "distinct"), &keys);
    assert_eq!(
        (status, errors.starts_with("error: stdin: ")),
        (Some(3), true),
        "{errors}"
    );
}
