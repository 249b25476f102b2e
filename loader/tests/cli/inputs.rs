//! Files that are inputs, and what is kept and said of their rows. `zoo.rs` has the forms of rows.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use parquet::basic::Compression;
use rtad_core::device::IdKind;
use testkit::process::{outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::store::files;

use crate::support::{gzip, zst};
use crate::zoo::{parquet_file, run, run_words};

fn named_pipe(sandbox: &Sandbox) -> PathBuf {
    let fifo = sandbox.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    fifo
}

#[test]
fn globs_and_stdin_are_read() {
    let all = ids(IdKind::Md5, 0..500);
    let part = |n: usize| lines(&all[n * 100..n * 100 + 100]);
    let sandbox = Sandbox::new();
    sandbox.file("1.gz", gzip((part(0) + &part(1)).as_bytes()));
    sandbox.file("1.zst", zst(part(2).as_bytes()));
    sandbox.file("2.zst", zst(part(3).as_bytes()));
    let built = sandbox
        .run_with(
            "build --store {}/s --audience a --json {}/*.gz {}/[12].zst -",
            part(4).as_bytes(),
        )
        .json();
    assert_eq!((&built["rows"], &built["keys"]), (&500.into(), &500.into()));
    let verify = "verify --store {}/s --audience a --probes 10 --json --against -";
    let verified = sandbox
        .run_with(verify, &gzip(lines(&all).as_bytes()))
        .json();
    assert_eq!(verified["against"]["checked"], 500);
}

/// As a part of a table in which few devices have an id.
#[test]
fn small_one_of_several_inputs_may_be_blank() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..100)));
    sandbox.file("small", "\n0\nnull\n");
    sandbox.file("large", "null\n".repeat(10));
    sandbox.file("wrong", "\nno id\n");
    let load = |command: &str, inputs: &str| {
        sandbox.run(&format!("{command} --store {{}}/s --audience a {inputs}"))
    };

    let built = load("build --json", "{}/ids {}/small").json();
    assert_eq!((&built["keys"], &built["blank"]), (&100.into(), &3.into()));
    load("build", "{}/ids {}/large").fails(3, "large: no usable id in 10 rows");
    load("build", "{}/ids {}/wrong").fails(3, "wrong: no usable id in 2 rows");
    for command in ["build", "append", "remove"] {
        load(command, "{}/small {}/small").fails(3, "all inputs: no usable id in 6 rows");
    }
}

#[test]
fn empty_input_needs_allow_empty() {
    let sandbox = Sandbox::new();
    sandbox.file("empty", "");
    sandbox.file("blank", "\n0\nnull\n");
    sandbox
        .run("build --store {}/s --audience a {}/empty")
        .fails(3, "no usable id in 0 rows");
    sandbox
        .run("build --store {}/s --audience a {}/blank")
        .fails(3, "no usable id in 3 rows");
    assert!(sandbox.store().is_empty());
    let built = sandbox.build("--allow-empty {}/blank");
    assert_eq!((&built["keys"], &built["chunks"]), (&0.into(), &0.into()));
    assert_eq!(
        sandbox
            .run("verify --store {}/s --audience a --probes 1000 --json")
            .json()["keys"],
        0
    );
}

#[test]
fn reject_ratio_decides_and_rejects_file_lists_rows() {
    let sandbox = Sandbox::new();
    let good = ids(IdKind::Md5, 0..98);
    sandbox.file("good", lines(&good));
    sandbox.build("{}/good");
    let before = sandbox.store();

    let long = "y".repeat(70_000);
    let text = format!("{}bad\tone\\\r\n\nzq\n{long}\n", lines(&good));
    sandbox.file("dump", text);
    sandbox.file("rejects", "from an earlier run, readable by all");
    let outcome =
        sandbox.run("build --store {}/s --audience a --json --rejects {}/rejects {}/dump");
    outcome.fails(
        3,
        "3 of 101 values are malformed: expected at most --max-reject-ratio 0.01;",
    );
    assert_eq!(
        sandbox.store(),
        before,
        "the store is unchanged, byte for byte"
    );

    let rejects = std::fs::read_to_string(sandbox.path().join("rejects")).unwrap();
    let rows: Vec<Vec<&str>> = rejects
        .lines()
        .map(|row| row.split('\t').collect())
        .collect();
    let dump = sandbox.path().join("dump").display().to_string();
    assert_eq!(rows[0], [&dump, "99", "malformed", "bad\\tone\\\\"]);
    assert_eq!(rows[1], [&dump, "101", "malformed", "zq"]);
    assert_eq!(rows[2], [&dump, "102", "too_long", &long[..1024]]);
    assert_eq!(rows.len(), 3, "no blank row");
    let mode = std::fs::metadata(sandbox.path().join("rejects"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    // The ratio is at the limit; blank ids do not count.
    let built = sandbox.build("--max-reject-ratio 0.03 {}/dump");
    assert_eq!(
        (&built["keys"], &built["generation"]),
        (&98.into(), &2.into())
    );
    let outcome = sandbox.run("build --store {}/s --audience a --rejects {}/dump {}/dump");
    outcome.fails(2, "is one of the inputs");
    assert!(
        std::fs::metadata(sandbox.path().join("dump"))
            .unwrap()
            .len()
            > 0
    );
    let outcome = sandbox
        .run("build --store {}/s --audience a --rejects /dev/full --max-reject-ratio 1 {}/dump");
    outcome.fails(1, "/dev/full: could not write it: No space left");
    let usage = sandbox.run("build --store {}/s --audience a --max-reject-ratio 2 {}/dump");
    assert_eq!((usage.status, usage.stdout.as_str()), (Some(2), ""));
}

#[test]
fn output_contains_no_id() {
    let sandbox = Sandbox::new();
    let (md5, idfa) = (ids(IdKind::Md5, 0..50), ids(IdKind::Idfa, 0..50));
    // Valid ids, ids of the wrong kind, truncated ids: all identify a device.
    let cut: Vec<_> = md5.iter().map(|id| id[..30].to_owned()).collect();
    let all = [md5, idfa, cut].concat();
    sandbox.file("dump", lines(&all));
    sandbox.file("dump.csv", lines(&all).replace('\n', ",\n"));
    let mut said = String::new();
    for arguments in [
        "build --store {}/s --audience a {}/dump".to_owned(),
        "build --store {}/s --audience a --max-reject-ratio 1 {}/dump".to_owned(),
        "build --store {}/s --audience a --max-reject-ratio 1 --json {}/dump --rejects {}/rejects"
            .to_owned(),
        "build --store {}/s --audience a --format csv --column id {}/dump.csv".to_owned(),
        "verify --store {}/s --audience a --probes 10 --id-kind openid --against {}/dump"
            .to_owned(),
        "inspect --store {}/s --audience a".to_owned(),
        format!("query --store {{}}/s --audience a {}", all.join(" ")),
        format!("query --store {{}}/s --audience a --json {}", all.join(" ")),
        format!("query --store {{}}/nowhere --audience a {}", all.join(" ")),
    ] {
        let outcome = sandbox.run(&arguments);
        said += &outcome.stdout;
        said += &outcome.stderr;
    }
    for id in &all {
        assert!(
            !said.to_lowercase().contains(&id[..12].to_lowercase()),
            "an id in: {said}"
        );
    }
}

#[test]
fn stdout_has_one_json_object_or_the_commands_data() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..10)) + "bad\n");
    let object = |arguments: &str| {
        let failed = sandbox.run(arguments);
        let lines: Vec<_> = failed.stdout.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 1, "{failed:?}");
        let object: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(
            object["exit_code"].as_i64(),
            failed.status.map(Into::into),
            "{failed:?}"
        );
        object
    };
    let mistake = object("build --json --store {}/s --audience a --no-such {}/ids");
    assert_eq!(
        (&mistake["exit_code"], &mistake["error"]),
        (&2.into(), &"usage".into())
    );
    assert_eq!(mistake["message"], "unexpected argument '--no-such' found");
    let file = object("build --json --store {}/s --audience a --rejects - {}/ids");
    assert!(
        file["message"]
            .as_str()
            .unwrap()
            .contains("accepted: a file; stdout"),
        "{file}"
    );
    assert!(!std::path::Path::new("-").exists());
    assert_eq!(object("dedup --json {}/ids")["exit_code"], 3);

    // Ids come alone.
    let ids = sandbox.run("dedup {}/ids");
    assert_eq!(
        (ids.status, ids.stdout.lines().count()),
        (Some(3), 10),
        "{ids:?}"
    );
    let text = sandbox.run("build --store {}/s --audience a --no-such {}/ids");
    assert_eq!((text.status, &*text.stdout), (Some(2), ""));
    assert!(
        sandbox
            .run("build --json --help")
            .succeeds()
            .stdout
            .starts_with("Build an audience")
    );
}

#[test]
fn output_file_is_not_one_of_the_inputs() {
    let sandbox = Sandbox::new();
    let text = lines(&ids(IdKind::Md5, 0..100));
    let input = sandbox.file("in", &text);
    sandbox.build("{}/in");
    std::fs::hard_link(&input, sandbox.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(&input, sandbox.path().join("symbolic")).unwrap();
    let audience = "--store {}/s --audience a";
    for output in ["in", "linked", "symbolic"] {
        for command in [
            format!("build {audience} --rejects {{}}/OUT {{}}/in"),
            format!("append {audience} --rejects {{}}/OUT {{}}/in"),
            format!("verify {audience} --missing {{}}/OUT --against {{}}/in"),
        ] {
            let refused = sandbox.run(&command.replace("OUT", output));
            let error = format!("{output}: is one of the inputs and would be overwritten");
            refused.fails(2, &error);
            assert_eq!(std::fs::read_to_string(&input).unwrap(), text, "{command}");
        }
    }
    // Standard input is a file, too.
    let from_stdin = format!("build {audience} --rejects {{}}/linked -");
    let refused = command(sandbox.path(), &from_stdin)
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&input).unwrap(), text);

    // Seen before the input is read, and before anything is published.
    let before = sandbox.store();
    std::os::unix::fs::symlink("gone", sandbox.path().join("dangling")).unwrap();
    sandbox
        .run(&format!("build {audience} --rejects {{}}/dangling {{}}/in"))
        .fails(2, "dangling: is a link to a file that does not exist");
    assert!(!sandbox.path().join("gone").exists());
    let command = format!("build {audience} --rejects {{}}/nowhere/out {{}}/in");
    sandbox
        .run(&command)
        .fails(2, "nowhere/out: its folder does not exist");
    assert_eq!(sandbox.store(), before);
}

/// Runs in this process: exit code and message.
#[test]
fn mistakes_in_inputs_and_columns_are_named() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..3)));
    sandbox.file("a.csv", "a,\nx\n");
    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    let is_empty = "folder: nothing is below it: expected a file or an object";
    for (arguments, exit, error) in [
        ("{}/nothing", 3, "nothing: no such file"),
        ("{}/none*", 3, "no such file"),
        ("{}/folder", 3, is_empty),
        ("old-users", 3, "input old-users: no such"),
        ("20261125", 3, "input 20261125: no such"),
        ("dumps/0123456789ab", 3, "input dumps/0123456789ab: no such"),
        // An id in place of a file is not repeated.
        ("727479405787894", 3, "looks like an id"),
        ("- -", 2, "only once"),
        ("ftp://host/dump", 2, "accepted: a path, a pattern, `-`"),
        ("--format csv --column id {}/folder", 3, is_empty),
        (
            "--format csv --column id {}/nothing",
            3,
            "nothing: no such file",
        ),
        ("--format ndjson --column id {}/folder", 3, is_empty),
        (
            "--format ndjson --column id {}/nothing",
            3,
            "nothing: no such file",
        ),
        ("--format parquet --column id {}/folder", 3, is_empty),
        (
            "--format parquet --column id {}/nothing",
            3,
            "nothing: no such file",
        ),
        ("--format csv {}/ids", 2, "--format csv needs --column"),
        (
            "--format ndjson {}/ids",
            2,
            "--format ndjson needs --column",
        ),
        (
            "--format parquet {}/ids",
            2,
            "--format parquet needs --column",
        ),
        ("--column id {}/ids", 2, "--column requires --format csv"),
        ("--no-header {}/ids", 2, "--no-header requires --format csv"),
        (
            "--no-header --format ndjson --column 1 {}/ids",
            2,
            "--no-header requires --format csv",
        ),
        (
            "--no-header --format csv {}/ids",
            2,
            "--format csv needs --column",
        ),
        (
            "--no-header --format csv --column a {}/a.csv",
            2,
            "--column \"a\": with --no-header, expected the number of a column",
        ),
        (
            "--no-header --format csv --column 0 {}/a.csv",
            2,
            "--column \"0\": with --no-header",
        ),
        (
            "--no-header --format csv --column +1 {}/a.csv",
            2,
            "--column \"+1\": with --no-header",
        ),
        (
            "--no-header --format csv --column 1 --filter ribbon --value a {}/a.csv",
            2,
            "--value \"a\": with --no-header",
        ),
        (
            "--no-header --format csv --column 1 --filter ribbon --value 3 {}/a.csv",
            3,
            "a.csv: has no column 3: its first row has 2 cells",
        ),
        // The header's last name may be empty.
        ("--format csv --column= {}/a.csv", 2, "--column"),
        ("--format csv --column==md5 {}/a.csv", 2, "--column"),
        (
            "--format csv --column a --filter ribbon --value= {}/a.csv",
            2,
            "--value",
        ),
    ] {
        let command = format!("build --store {{}}/s --audience a --json {arguments}");
        let (found_exit, message) = run(&sandbox, &command).expect_err(arguments);
        assert_eq!(found_exit, exit, "{arguments}: {message}");
        assert!(message.contains(error), "{arguments}: {message}");
        assert!(!message.contains("727479405787894"), "{message}");
    }
    assert!(sandbox.store().is_empty());
}

#[test]
fn csv_columns_may_have_different_kinds() {
    let (idfa, imei) = (ids(IdKind::Idfa, 0..100), ids(IdKind::Imei, 0..100));
    let mut text = String::from("\u{feff}when, idfa ,\"imei \"\"raw\"\"\",note\r\n");
    for (idfa, imei) in idfa.iter().zip(&imei) {
        let idfa = idfa.to_lowercase();
        text += &format!("today,{idfa},\"{imei}\",\"a, quoted\nnote\"\r\n");
    }
    text += "today,,,no ids\r\ntoday\r\n";
    let sandbox = Sandbox::new();
    sandbox.file("dump.csv", &text);
    let mut words: Vec<&str> =
        "build --store {}/s --audience a --json --format csv --id-kind idfa \
        --column idfa --max-reject-ratio 0.02 --rejects {}/rejects {}/dump.csv --column"
            .split_whitespace()
            .collect();
    words.push("imei \"raw\"=imei");
    let built = run_words(&sandbox, &words).unwrap();
    let counts = ["rows", "values", "keys", "blank"].map(|name| built[name].as_u64().unwrap());
    assert_eq!(counts, [102, 203, 200, 2]);
    assert_eq!(
        (
            &built["rejected"]["total"],
            &built["rejected"]["row_length"]
        ),
        (&1.into(), &1.into())
    );
    // The row follows 1 header and 100 rows of two lines each.
    assert_eq!(
        rejects(&sandbox),
        ["203\trow_length\ttoday"],
        "no blank cells"
    );
    for (kind, id) in [("idfa", &idfa[42]), ("imei", &imei[42])] {
        assert!(is_member(&sandbox, kind, id), "{kind}");
    }
}

#[test]
fn escaped_line_ends_count_as_lines_of_rejects() {
    let sandbox = Sandbox::new();
    let good = &ids(IdKind::Md5, 0..1)[0];
    sandbox.file(
        "dump",
        format!("{good}|a\\\nb\\\nc\nbad\\\\|\n{good}|\\\nd\nworse\\||\\\n|x\n"),
    );
    let dry = "build --store {}/s --audience a --dry-run --json --max-reject-ratio 1 \
               --rejects {}/rejects --format csv --no-header --delimiter | --escape \\ --column 1 \
               {}/dump";
    run(&sandbox, dry).unwrap();
    assert_eq!(
        rejects(&sandbox),
        [
            "4\tmalformed\tbad\\\\\t1",
            "7\trow_length\tworse\\\\||\\\\\\n|x"
        ]
    );
}

/// Line, reason and text of each row.
fn rejects(sandbox: &Sandbox) -> Vec<String> {
    let rejects = std::fs::read_to_string(sandbox.path().join("rejects")).unwrap();
    let rows = rejects.lines().map(|row| row.split_once('\t').unwrap().1);
    rows.map(str::to_owned).collect()
}

fn is_member(sandbox: &Sandbox, kind: &str, id: &str) -> bool {
    let query = format!("query --store {{}}/s --audience a --json --id-kind {kind} {id}");
    run(sandbox, &query).unwrap()["answers"][0] == "member"
}

#[test]
fn case_decides_which_spellings_are_members() {
    let sandbox = Sandbox::new();
    let idfa = &ids(IdKind::Idfa, 0..1)[0];
    sandbox.file("dump", format!("{}\n", idfa.to_lowercase()));
    for (case, [lower, upper]) in [
        ("lower", [true, false]),
        ("upper", [false, true]),
        ("all", [true, true]),
    ] {
        let build = "build --store {}/s --audience a --json --max-change any --id-kind openid";
        run(&sandbox, &format!("{build} --case {case} {{}}/dump")).unwrap();
        let is_lower = is_member(&sandbox, "openid", &idfa.to_lowercase());
        assert_eq!(is_lower, lower, "{case}");
        assert_eq!(is_member(&sandbox, "openid", idfa), upper, "{case}");
    }
}

#[test]
fn rejected_rows_of_ndjson_and_parquet_have_their_numbers() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2500);
    let dry = "build --store {}/s --audience a --dry-run --json --max-reject-ratio 1 \
               --rejects {}/rejects";
    sandbox.file(
        "dump",
        format!("{{\"id\":\"{}\"}}\n{{\"id\":null}}\nbad\t\\\n", all[0]),
    );
    run(
        &sandbox,
        &format!("{dry} --format ndjson --column id {{}}/dump"),
    )
    .unwrap();
    assert_eq!(rejects(&sandbox), ["3\tmalformed\tbad\\t\\\\"]);

    // Through all groups of the file; every tenth row is blank.
    sandbox.file("dump", parquet_file(&all, Compression::SNAPPY));
    let columns = "--format parquet --column id=imei --column imei=imei";
    run(&sandbox, &format!("{dry} {columns} {{}}/dump")).unwrap();
    let number = |row: &String| row.split('\t').next().unwrap().parse().unwrap();
    let mut rows: Vec<u64> = rejects(&sandbox).iter().map(number).collect();
    rows.sort_unstable();
    rows.dedup();
    let present = (1..=2500).filter(|row| row % 10 != 0);
    assert_eq!(rows, present.collect::<Vec<_>>());
}

#[test]
fn pipes_are_read_and_unreadable_files_refused() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..1000);
    sandbox.file("ids", lines(&all));
    let fifo = named_pipe(&sandbox);

    // A named pipe is read like stdin; the same file twice gives twice the rows.
    let child = spawn(&mut command(
        sandbox.path(),
        "build --store {}/s --audience a --json {}/fifo {}/ids {}/ids",
    ));
    std::fs::write(&fifo, lines(&all)).unwrap();
    let built = outcome(child).json();
    assert_eq!(
        (&built["rows"], &built["keys"]),
        (&3000.into(), &1000.into())
    );

    let build =
        |arguments: &str| sandbox.run(&format!("build --store {{}}/t --audience a {arguments}"));
    build("--format parquet --column id {}/fifo")
        .fails(3, "fifo: a Parquet file is read from its end");
    let pipe = sandbox.run_with(
        "build --store {}/t --audience a --format parquet --column id -",
        b"PAR1",
    );
    pipe.fails(
        3,
        "input -: a Parquet file is read from its end, and a pipe cannot be",
    );
    // Opens but cannot be read, even by root.
    build("/proc/self/mem").fails(3, "input /proc/self/mem: could not ");
    let secret = sandbox.file("secret", "");
    let mut permissions = std::fs::metadata(&secret).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0);
    std::fs::set_permissions(&secret, permissions).unwrap();
    if std::fs::File::open(&secret).is_err() {
        build("{}/secret").fails(3, "secret: could not open it: Permission denied");
    }
    assert!(!sandbox.path().join("t").exists() || files(&sandbox.path().join("t")).is_empty());
}

#[test]
fn file_that_shrinks_during_a_build() {
    let sandbox = Sandbox::new();
    let text = lines(&ids(IdKind::Md5, 0..300_000));
    let path = sandbox.file("ids", &text);
    // The pipe blocks the only reader until the file is shorter.
    let fifo = named_pipe(&sandbox);
    let child = spawn(&mut command(
        sandbox.path(),
        "build --store {}/s --audience a --json --threads 1 {}/fifo {}/ids",
    ));
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(33 * 1000 + 10)
        .unwrap();
    pipe.write_all(&text.as_bytes()[33 * 2000..33 * 2001])
        .unwrap();
    drop(pipe);
    // The rest is read; the cut line is malformed, which is below the threshold.
    let built = outcome(child).json();
    assert_eq!(
        (&built["rows"], &built["keys"], &built["rejected"]["total"]),
        (&1002.into(), &1001.into(), &1.into())
    );
}

#[test]
fn all_ids_in_one_prefix() {
    let sandbox = Sandbox::new();
    let all: Vec<_> = (0..200_000).map(|n: u32| format!("abcd{n:028x}")).collect();
    sandbox.file("ids", lines(&all));
    let built = sandbox.run("build --store {}/s --audience a --json {}/ids");
    let built = built.json_with_warning("its share of the keys");
    assert_eq!(
        (&built["keys"], &built["chunks"]),
        (&200_000.into(), &1.into())
    );
    let verified = sandbox
        .run("verify --probes 1000 --store {}/s --audience a --json --against {}/ids")
        .json();
    assert_eq!(verified["against"]["checked"], 200_000);
}
