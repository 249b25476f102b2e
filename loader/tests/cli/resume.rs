//! `build --spill-dir --resume`: an interrupted build resumes and gives the same result.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::time::Duration;

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{Outcome, outcome, run, signal, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::server::FileServer;
use testkit::wait_until;

use crate::support::{LOADER, chunks};

const FILES: u64 = 10;
const PER_FILE: u64 = 150_000;
/// More keys than fit into 64 MiB, and seconds of work to interrupt.
const KEYS: u64 = FILES * PER_FILE - 1000 * (FILES - 1);

/// Ten overlapping inputs, and their chunks. All tests share one copy.
fn dumps() -> (Sandbox, Vec<String>) {
    static MADE: LazyLock<(PathBuf, Vec<String>)> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("resume");
        std::fs::create_dir_all(&folder).unwrap();
        let sandbox = Sandbox::new();
        for file in 0..FILES {
            let start = file * (PER_FILE - 1000);
            let text = lines(&ids(IdKind::Md5, start..start + PER_FILE)) + "null\nwhat\n";
            let path = sandbox.file(&format!("dump{file}"), text);
            std::fs::copy(path, folder.join(format!("dump{file}"))).unwrap();
        }
        check(&sandbox.build("{}/dump*"));
        (
            folder,
            chunks(&sandbox.store()).into_iter().cloned().collect(),
        )
    });
    let (folder, names) = &*MADE;
    let sandbox = Sandbox::new();
    for file in 0..FILES {
        let name = format!("dump{file}");
        std::fs::copy(folder.join(&name), sandbox.path().join(name)).unwrap();
    }
    (sandbox, names.clone())
}

const BUILD: &str = "build --store {}/s --audience a --json --threads 2 --memory 64MiB --spill-dir \
    {}/spill --checkpoint 20ms";

#[track_caller]
fn check(built: &Value) {
    let rows = FILES * (PER_FILE + 2);
    let facts = ["rows", "keys", "duplicates", "blank"].map(|name| built[name].as_u64().unwrap());
    assert_eq!(
        facts,
        [rows, KEYS, FILES * PER_FILE - KEYS, FILES],
        "{built}"
    );
    assert_eq!(built["rejected"]["total"], FILES);
}

fn start(sandbox: &Sandbox, arguments: &str) -> Child {
    spawn(&mut command(sandbox.path(), arguments))
}

/// Waits for a condition; `false` if the child ended first.
fn wait_for(child: &mut Child, happened: impl Fn() -> bool) -> bool {
    wait_until("it happens", || match happened() {
        true => Some(true),
        false => child.try_wait().unwrap().map(|_| false),
    })
}

fn journal_lines(sandbox: &Sandbox) -> usize {
    let bytes = std::fs::read(sandbox.path().join("spill/rtad-chunks.jsonl")).unwrap_or_default();
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Starts a build and kills it once some chunks are in the store.
fn killed_while_building(sandbox: &Sandbox) {
    killed_while_building_with(sandbox, "");
}

fn killed_while_building_with(sandbox: &Sandbox, flags: &str) {
    let build = format!("{BUILD} {flags} --resume --max-shrink 1 {{}}/dump*");
    for _ in 0..20 {
        let mut child = start(sandbox, &build);
        let is_building = wait_for(&mut child, || journal_lines(sandbox) >= 4);
        let _ = child.kill();
        child.wait().unwrap();
        if is_building && sandbox.path().join("spill/rtad-state.json").exists() {
            return;
        }
    }
    panic!("the builds end before they are killed");
}

/// Whether the spill directory is empty; a preexisting directory is kept.
fn is_clean(sandbox: &Sandbox) -> bool {
    std::fs::read_dir(sandbox.path().join("spill")).map_or(true, |mut files| files.next().is_none())
}

#[test]
fn repeatedly_killed_build_gives_the_same_chunks() {
    let (sandbox, expected) = dumps();
    let resume = format!("{BUILD} --resume {{}}/dump*");
    let mut kills = 0;
    let built = loop {
        let mut child = start(&sandbox, &resume);
        // The delays increase, so that the build finishes.
        std::thread::sleep(Duration::from_millis(30).mul_f64(1.35_f64.powi(kills)));
        if child.try_wait().unwrap().is_some() {
            break outcome(child).json();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    };
    assert!(kills >= 2, "{kills}");
    check(&built);
    assert!(chunks(&sandbox.store()).into_iter().eq(&expected));
    assert!(is_clean(&sandbox));
}

#[test]
fn resume_skips_stored_chunks() {
    let (sandbox, expected) = dumps();
    killed_while_building(&sandbox);
    let there = chunks(&sandbox.store()).len() as u64;
    assert!(there >= 3);
    let built = sandbox.run(&format!("{BUILD} --resume {{}}/dump*")).json();
    check(&built);
    assert_eq!(built["stages"]["resumed"], true);
    let written = built["chunks_written"].as_u64().unwrap();
    assert!(
        written > 0 && written <= 16 - 3,
        "{written} of 16, {there} were there"
    );
    assert!(chunks(&sandbox.store()).into_iter().eq(&expected));

    // A chunk removed since, for example by a gc, is built again.
    std::fs::remove_dir_all(sandbox.path().join("s")).unwrap();
    killed_while_building(&sandbox);
    for name in chunks(&sandbox.store()) {
        std::fs::remove_file(sandbox.path().join("s").join(name)).unwrap();
    }
    check(&sandbox.run(&format!("{BUILD} --resume {{}}/dump*")).json());
    assert!(chunks(&sandbox.store()).into_iter().eq(&expected));

    // A rebuilt chunk and another interruption give two journal lines.
    std::fs::remove_dir_all(sandbox.path().join("s")).unwrap();
    killed_while_building(&sandbox);
    let journal = sandbox.path().join("spill/rtad-chunks.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let text = &text[..=text.rfind('\n').unwrap()];
    let (_, groups) = text.split_once('\n').unwrap();
    std::fs::write(&journal, [text, groups].concat()).unwrap();
    check(&sandbox.run(&format!("{BUILD} --resume {{}}/dump*")).json());
    assert!(chunks(&sandbox.store()).into_iter().eq(&expected));
}

/// The journal has the counts of the ribbon filters that were built before the interruption.
#[test]
fn resumed_ribbon_build_has_the_counts_of_an_uninterrupted_one() {
    let (sandbox, _) = dumps();
    let flags = "--filter ribbon";
    let counts = |sandbox: &Sandbox| {
        let inspected = sandbox
            .run("inspect --store {}/s --audience a --json")
            .json();
        ["diverted_keys", "listed_keys"].map(|name| inspected[name].as_u64().unwrap())
    };
    let build = format!("{BUILD} {flags} --resume {{}}/dump*");
    check(&sandbox.run(&build).json());
    let whole: Vec<_> = chunks(&sandbox.store()).into_iter().cloned().collect();
    let expected = counts(&sandbox);
    assert!(expected[1] > 0, "{expected:?}");
    std::fs::remove_dir_all(sandbox.path().join("s")).unwrap();

    killed_while_building_with(&sandbox, flags);
    let built = sandbox.run(&build).json();
    check(&built);
    assert_eq!(built["stages"]["resumed"], true);
    assert_eq!(counts(&sandbox), expected);
    assert!(chunks(&sandbox.store()).into_iter().eq(&whole));
}

/// A journal of another build is ignored.
#[test]
fn journal_of_another_set_is_ignored() {
    let (sandbox, _) = dumps();
    killed_while_building(&sandbox);
    std::fs::remove_file(sandbox.path().join("spill/rtad-state.json")).unwrap();
    let built = sandbox
        .run(&format!("{BUILD} --resume {{}}/dump[0-7]"))
        .json();
    assert_eq!(
        (&built["keys"], &built["stages"]["resumed"]),
        (&1_193_000.into(), &false.into())
    );
    let verify = "verify --store {}/s --audience a --probes 1000 --json --against {}/dump[0-7]";
    assert_eq!(sandbox.run(verify).json()["against"]["false_negatives"], 0);
    assert!(is_clean(&sandbox));
}

/// Deltas appended during an interruption survive the resume; a publish makes the resume fail.
#[test]
fn changes_during_an_interruption_are_kept() {
    let (sandbox, _) = dumps();
    let [old, first, new] =
        [5_000, 0, 3_000_000].map(|index| ids(IdKind::Md5, index..index + 1).remove(0));
    sandbox.file("live", lines(&ids(IdKind::Md5, 0..10)));
    sandbox.build("{}/live");
    killed_while_building(&sandbox);
    sandbox.file("new", format!("{new}\n"));
    sandbox.file("old", format!("{old}\n"));
    sandbox
        .run("append --store {}/s --audience a --json {}/new")
        .json();
    sandbox
        .run("remove --store {}/s --audience a --json {}/old")
        .json();
    let built = sandbox.run(&format!("{BUILD} --resume {{}}/dump*")).json();
    assert_eq!(
        (&built["keys"], &built["stages"]["resumed"]),
        (&KEYS.into(), &true.into()),
        "one added and one removed"
    );
    let asked = sandbox
        .run(&format!(
            "query --store {{}}/s --audience a --json {new} {old} {first}"
        ))
        .json();
    assert_eq!(
        asked["answers"],
        serde_json::json!(["member", "not_member", "member"])
    );

    killed_while_building(&sandbox);
    sandbox.build("--max-shrink 1 --keep-carried {}/live");
    sandbox.run(&format!("{BUILD} --resume {{}}/dump*")).fails(
        6,
        "generation 3 was published since this build began at generation 2",
    );
    assert!(is_clean(&sandbox), "no build could resume");
}

/// A build that reads one dump and then waits for stdin.
fn waiting(sandbox: &Sandbox, arguments: &str) -> Child {
    let mut child = start(
        sandbox,
        &format!("{BUILD} {arguments} {{}}/dump - --max-reject-ratio 1"),
    );
    assert!(wait_for(&mut child, || sandbox
        .path()
        .join("spill/rtad-state.json")
        .exists()));
    child
}

#[test]
fn signal_reports_kept_work_and_only_the_same_build_resumes() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..3000);
    sandbox.file("dump", lines(&all[..2000]));
    for name in ["INT", "TERM"] {
        let mut child = waiting(&sandbox, "");
        let second = sandbox.run(&format!("{BUILD} {{}}/dump"));
        second.fails(2, "another build uses it");
        // Stdin stays open until the end: the build might see its end before the signal.
        let _stdin = child.stdin.take();
        signal(child.id(), name);
        let ended = outcome(child);
        ended.fails(
            if name == "INT" { 130 } else { 143 },
            "the same command with --resume continues it",
        );
        assert!(ended.stderr.contains(&format!(
            "interrupted; completed work is kept in {}",
            spill(&sandbox)
        )));
        assert!(is_private(&sandbox.path().join("spill")));
        let rest = [
            " {}/dump - --max-reject-ratio 1",
            " {}/dump - --max-reject-ratio 1 --resume",
        ];
        sandbox
            .run(&format!("{BUILD}{}", rest[0]))
            .fails(2, "continue it with --resume");
        for (arguments, message) in [
            (
                "{}/dump - --resume --fpr 0.01",
                "--fpr: expected 0.0001, found 0.01",
            ),
            (
                "{}/dump - --resume --case all",
                "--case: expected None, found Some(All)",
            ),
            ("{}/dump --resume", "input - is missing now"),
            ("- {}/dump --resume", "expected input"),
            ("{}/nothing - --resume", "no such file"),
        ] {
            let refused = sandbox.run(&format!("{BUILD} {arguments}"));
            refused.fails(if message == "no such file" { 3 } else { 2 }, message);
        }
        let stdin = lines(&all[1500..]);
        let built = sandbox
            .run_with(&format!("{BUILD}{}", rest[1]), stdin.as_bytes())
            .json();
        let facts = ["rows", "keys", "duplicates"].map(|name| built[name].as_u64().unwrap());
        assert_eq!(facts, [3500, 3000, 500]);
        assert_eq!(built["stages"]["resumed"], true);
        assert!(is_clean(&sandbox));
    }
    // A changed input.
    let mut child = waiting(&sandbox, "");
    child.kill().unwrap();
    child.wait().unwrap();
    sandbox.file("dump", lines(&all[..1999]));
    sandbox
        .run(&format!("{BUILD} --resume {{}}/dump -"))
        .fails(2, "found 65967 bytes, modified at");
}

/// As a nightly job does after an interruption, with the export of the next night.
#[test]
fn build_of_other_inputs_starts_over() {
    let (sandbox, _) = dumps();
    let resume = format!("{BUILD} --resume {{}}/dump*");
    killed_while_building(&sandbox);
    sandbox.file("spill/theirs", "");
    // One input has changed, one has another name.
    sandbox.file("dump8", lines(&ids(IdKind::Md5, 0..1000)));
    std::fs::rename(sandbox.path().join("dump9"), sandbox.path().join("dump_9")).unwrap();
    let done = sandbox.run(&resume);
    let built = done.json_with_warning("holds an interrupted build of other inputs: input ");
    assert!(done.stderr.contains("/dump8: expected "), "{}", done.stderr);
    assert_eq!(
        (&built["keys"], &built["stages"]["resumed"]),
        (&1_343_000.into(), &false.into())
    );
    std::fs::remove_file(sandbox.path().join("spill/theirs")).unwrap();
    assert!(is_clean(&sandbox));

    // As of a later version.
    sandbox.file("spill/rtad-state.json", "{\"version\":2}");
    let built = sandbox
        .run(&resume)
        .json_with_warning("another version or is damaged; the build");
    assert_eq!(built["stages"]["resumed"], false);
    assert!(is_clean(&sandbox));
}

/// A trial, and a run with a wrong flag, leave an interrupted build to the next one.
#[test]
fn trial_and_refused_memory_keep_an_interrupted_build() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2000);
    sandbox.file("dump", lines(&all[..1000]));
    let mut child = waiting(&sandbox, "");
    child.kill().unwrap();
    child.wait().unwrap();
    let resume = format!("{BUILD} {{}}/dump - --max-reject-ratio 1 --resume");
    sandbox
        .run(&format!("{resume} --memory 15TiB").replace("--memory 64MiB", ""))
        .fails(2, "more than the system has");
    let refused = format!("{resume} --dry-run --max-fpr 0");
    sandbox
        .run_with(&refused, lines(&all[1000..]).as_bytes())
        .fails(3, "--max-fpr");
    let trial = sandbox.run_with(
        &format!("{resume} --dry-run"),
        lines(&all[1000..]).as_bytes(),
    );
    assert_eq!(trial.json()["keys"], 2000);
    let built = sandbox
        .run_with(&resume, lines(&all[1000..]).as_bytes())
        .json();
    assert_eq!(
        (&built["keys"], &built["stages"]["resumed"]),
        (&2000.into(), &true.into())
    );
    assert!(is_clean(&sandbox));
    sandbox.file("all", lines(&all));
    let verify = "verify --store {}/s --audience a --probes 1000 --json --against {}/all";
    assert_eq!(sandbox.run(verify).json()["against"]["false_negatives"], 0);
}

#[test]
fn url_without_a_version_is_not_resumed() {
    let sandbox = Sandbox::new();
    sandbox.file("dump", lines(&ids(IdKind::Md5, 0..2000)));
    let web = FileServer::serve(sandbox.path());
    web.hide_tags();
    let arguments = format!("{BUILD} {}/dump - --max-reject-ratio 1", web.url());
    let mut child = start(&sandbox, &arguments);
    assert!(wait_for(&mut child, || sandbox
        .path()
        .join("spill/rtad-state.json")
        .exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    sandbox.run(&format!("{arguments} --resume")).fails(
        2,
        "/dump may have changed: its server sends neither ETag nor Last-Modified",
    );
}

/// The limits are those of all inputs, of completed ones too.
#[test]
fn resumed_build_counts_members_and_bad_rows_of_completed_inputs() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2000);
    let objects: String = all
        .iter()
        .map(|id| format!("{{\"id\":\"{id}\"}}\n"))
        .collect();
    let table = format!("id\n{}\"1\n\"2\n\"3\n", lines(&all));
    for (dump, flags, message) in [
        (
            &objects,
            "--format ndjson --column id --column ib",
            "no row of 4000 has a member \"ib\"",
        ),
        (
            &table,
            "--format csv --column id --bad-rows skip --max-bad-rows 5",
            "input -: line 2004 leaves a quote open, as did 5 others",
        ),
    ] {
        sandbox.file("dump", dump);
        let mut child = waiting(&sandbox, flags);
        child.kill().unwrap();
        child.wait().unwrap();
        let resume = format!("{BUILD} {flags} {{}}/dump - --max-reject-ratio 1 --resume");
        sandbox.run_with(&resume, dump.as_bytes()).fails(3, message);
        std::fs::remove_dir_all(sandbox.path().join("spill")).unwrap();
    }
}

/// Keys survive a conflict with another process in the store.
#[test]
fn build_resumes_after_a_busy_store() {
    let (sandbox, expected) = dumps();
    let first = sandbox.path().join("first");
    std::fs::write(&first, lines(&ids(IdKind::Md5, 0..10))).unwrap();
    sandbox.build("{}/first");
    let lock = std::fs::File::open(sandbox.path().join("s/a/LOCK")).unwrap();
    lock.lock().unwrap();
    let busy = sandbox.run(&format!("{BUILD} {{}}/dump*"));
    busy.fails(6, "/s/a/LOCK is locked; nothing was changed");
    assert!(
        busy.stderr
            .contains("the same command with --resume continues it"),
        "{}",
        busy.stderr
    );
    lock.unlock().unwrap();
    let built = sandbox.run(&format!("{BUILD} --resume {{}}/dump*")).json();
    check(&built);
    assert_eq!(built["stages"]["resumed"], true);
    let store = sandbox.store();
    assert!(expected.iter().all(|chunk| store.contains_key(chunk)));
    assert!(is_clean(&sandbox));
}

fn spill(sandbox: &Sandbox) -> String {
    sandbox.path().join("spill").display().to_string()
}

fn is_private(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    mode(folder) == 0o700
        && std::fs::read_dir(folder)
            .unwrap()
            .all(|file| mode(&file.unwrap().path()) == 0o600)
}

/// Whether a process handles SIGINT, the second bit of the mask.
fn catches_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << 1 != 0
}

/// Useless files are removed; files of others stay.
#[test]
fn spill_directory_keeps_files_of_others() {
    let sandbox = Sandbox::new();
    sandbox.file("dump", lines(&ids(IdKind::Md5, 0..1000)));
    sandbox.file("bad", "no id\n".repeat(1000));
    std::fs::create_dir(sandbox.path().join("spill")).unwrap();
    // Files of others in it, or in the directory for temporary files.
    let theirs = ["theirs", "tls.keys", "chunks.jsonl", "state.json"];
    for name in theirs {
        sandbox.file(&format!("spill/{name}"), "");
    }
    std::fs::create_dir(sandbox.path().join("tmp")).unwrap();
    sandbox.file("tmp/rtad-state.json", "{}");
    let mut unnamed = command(
        sandbox.path(),
        "build --store {}/s --audience a --json {}/dump",
    );
    outcome(spawn(unnamed.env("TMPDIR", sandbox.path().join("tmp")))).json();
    let rest = || {
        std::fs::read_dir(sandbox.path().join("spill"))
            .unwrap()
            .count()
    };
    sandbox.run(&format!("{BUILD} --resume {{}}/dump")).json();
    assert_eq!(rest(), theirs.len());
    sandbox
        .run(&format!("{BUILD} {{}}/bad"))
        .fails(3, "malformed");
    assert_eq!(rest(), theirs.len());
    let mut child = start(&sandbox, &format!("{BUILD} -"));
    let id = child.id();
    assert!(wait_for(&mut child, || catches_interrupts(id)));
    let _stdin = child.stdin.take();
    signal(child.id(), "INT");
    outcome(child).fails(130, "interrupted; nothing was kept");
    assert_eq!(rest(), theirs.len());
}

/// Runs with a file-size limit, which stands in for a full disk.
fn with_small_files(sandbox: &Sandbox, kib: u64, arguments: &str, stdin: &str) -> Outcome {
    let arguments = arguments.replace("{}", sandbox.path().to_str().unwrap());
    // The unit of the shell is 512 bytes.
    let limited = format!(
        "trap '' XFSZ; ulimit -f {}; exec {LOADER} {arguments}",
        kib * 2
    );
    run(Command::new("sh").args(["-c", &limited]), stdin.as_bytes())
}

#[test]
fn build_resumes_after_a_full_disk() {
    let (sandbox, expected) = dumps();
    // The final size of a partition's file is 93 kB.
    let full = with_small_files(&sandbox, 40, &format!("{BUILD} {{}}/dump*"), "");
    full.fails(1, "no room left after");
    assert_eq!(
        full.stderr.contains("with --resume continues it"),
        !is_clean(&sandbox),
        "{full:?}"
    );
    let built = sandbox.run(&format!("{BUILD} --resume {{}}/dump*")).json();
    check(&built);
    assert!(chunks(&sandbox.store()).into_iter().eq(&expected));
    assert!(is_clean(&sandbox));
    let unnamed = "build --store {}/t --audience a --threads 2 --memory 64MiB {}/dump*";
    with_small_files(&sandbox, 40, unnamed, "").fails(1, "no room left after");
}

#[test]
fn spill_directory_that_cannot_be_one_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..10)));
    for dir in ["ids", "ids/spill", "nowhere/spill"] {
        sandbox
            .run(&format!(
                "build --store {{}}/s --audience a --spill-dir {{}}/{dir} {{}}/ids"
            ))
            .fails(
                2,
                &format!("/{dir}: expected a directory, or a new name in one"),
            );
    }
}
