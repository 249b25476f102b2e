//! `build --memory`: keys beyond the limit are spilled, with the same result. Long rows and
//! decompression bombs take no memory.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::support::{LOADER, chunks, gzip, zst};
use rtad_core::device::IdKind;
use rtad_core::synth::Synth;
use serde_json::Value;
use testkit::process::{Outcome, outcome, run, spawn};
use testkit::sandbox::{Sandbox, command, ids};
use testkit::wait_until;

/// More keys than fit into 64 MiB.
const MANY: u64 = 1_800_000;

fn write_ids(sandbox: &Sandbox, name: &str, ids: impl Iterator<Item = u64>) {
    let file = std::fs::File::create(sandbox.path().join(name)).expect("a writable folder");
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    let synth = Synth::new(IdKind::Md5, 1);
    for index in ids {
        out.write_all(synth.id(index).as_bytes())
            .expect("a writable file");
        out.write_all(b"\n").expect("a writable file");
    }
    out.flush().expect("a writable file");
}

fn stage(built: &Value, name: &str) -> u64 {
    built["stages"][name].as_u64().expect("a number")
}

/// Spilled bytes are whole pages: the last page of each thread and partition is padded.
#[track_caller]
fn check_spilled(built: &Value, keys: u64) {
    let (spilled, threads) = (stage(built, "spilled_bytes"), stage(built, "threads"));
    let most = if keys > 0 {
        keys * 16 + threads * 256 * 4096
    } else {
        0
    };
    assert!(
        (keys * 16..=most).contains(&spilled),
        "{spilled} for {keys} keys"
    );
}

/// With and without spilling, with 1, 2 and 8 threads, in order and backwards.
#[test]
fn memory_does_not_change_the_chunks() {
    let sandbox = Sandbox::new();
    write_ids(&sandbox, "ids", 0..MANY);
    // The order is reversed, and a third of them come twice.
    write_ids(
        &sandbox,
        "backwards",
        (0..MANY).rev().chain((0..MANY).step_by(3)),
    );
    let mut expected: Option<Vec<String>> = None;
    for (how, spills) in [
        ("--memory 1GiB --threads 2 {}/ids", false),
        ("--memory 64MiB --threads 1 {}/backwards", true),
        ("--memory 152MiB --threads 8 {}/backwards {}/ids", true),
    ] {
        let built = sandbox.build(how);
        assert_eq!(built["keys"], MANY, "{how}");
        let read = built["usable"].as_u64().unwrap();
        assert_eq!(built["duplicates"], read - MANY, "{how}");
        check_spilled(&built, if spills { read } else { 0 });
        let names: Vec<String> = chunks(&sandbox.store()).into_iter().cloned().collect();
        assert_eq!(
            &names,
            expected.get_or_insert_with(|| names.clone()),
            "{how}"
        );
        let memory = stage(&built, "memory_bytes");
        let peak = stage(&built, "peak_memory_bytes");
        assert!(peak <= memory + memory / 10, "{how}: {peak} of {memory}");
    }
}

#[test]
fn insufficient_memory_is_rejected() {
    let sandbox = Sandbox::new();
    write_ids(&sandbox, "ids", 0..10);
    let build = "build --store {}/s --audience a {}/ids";
    sandbox
        .run(&format!("{build} --memory 63MiB --threads 2"))
        .fails(
            2,
            "--memory 63MiB is too little for 2 threads: accepted from 64MiB on",
        );
    sandbox
        .run(&format!("{build} --memory 64MiB --threads 8"))
        .fails(2, "from 152MiB on, or with fewer --threads");
    for size in ["lots", "16EiB"] {
        let bad = sandbox.run(&format!("{build} --memory {size}"));
        assert!(
            bad.status == Some(2) && bad.stderr.contains("up to 16TiB, such as 256MiB"),
            "{bad:?}"
        );
    }
    // The number of threads is reduced to fit.
    assert!(stage(&sandbox.build("--memory 64MiB {}/ids"), "threads") <= 2);
}

/// A sparse file stands in for one larger than the disk.
#[test]
fn insufficient_disk_space_is_reported_before_reading() {
    let sandbox = Sandbox::new();
    write_ids(&sandbox, "ids", 0..10_000);
    let file = std::fs::OpenOptions::new()
        .append(true)
        .open(sandbox.path().join("ids"))
        .unwrap();
    file.set_len(1 << 43).unwrap();
    let full = sandbox.run("build --store {}/s --audience a {}/ids");
    full.fails(1, "the keys of these inputs need about 4");
    assert!(!sandbox.path().join("s").exists());
}

/// Runs with a file-size limit, which stands in for a full disk.
fn with_small_files(sandbox: &Sandbox, temporary: &Path, kib: u64, arguments: &str) -> Outcome {
    let arguments = arguments.replace("{}", sandbox.path().to_str().unwrap());
    // The unit of the shell is 512 bytes.
    let limited = format!(
        "trap '' XFSZ; ulimit -f {}; exec {LOADER} {arguments}",
        kib * 2
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]).env("TMPDIR", temporary);
    run(&mut shell, b"")
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn full_disk_ends_the_build_and_leaves_no_files() {
    let sandbox = Sandbox::new();
    write_ids(&sandbox, "ids", 0..MANY);
    let spill = sandbox.path().join("spill");
    std::fs::create_dir(&spill).unwrap();
    // The final size of a partition's file is 110 kB.
    let build = "build --store {}/s --audience a --threads 2 --memory 64MiB {}/ids";
    let full = with_small_files(&sandbox, &spill, 40, build);
    full.fails(1, "no room left after");
    assert!(is_empty(&spill));
    assert!(!sandbox.path().join("s").exists());
}

/// Spill files have no names, so a killed build leaves none.
#[test]
fn killed_build_leaves_no_files() {
    let sandbox = Sandbox::new();
    write_ids(&sandbox, "ids", 0..MANY);
    let spill = sandbox.path().join("spill");
    std::fs::create_dir(&spill).unwrap();
    let build = "build --store {}/s --audience a --threads 2 --memory 64MiB {}/ids {}/ids -";
    let mut build = command(sandbox.path(), build);
    let mut child = spawn(build.env("TMPDIR", &spill));
    let files = format!("/proc/{}/fd", child.id());
    wait_until("it spills", || {
        assert!(child.try_wait().unwrap().is_none(), "it waits for stdin");
        let open = std::fs::read_dir(&files).ok()?;
        let mut targets = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        targets
            .any(|target| target.starts_with(&spill))
            .then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_empty(&spill));
}

/// Memory limit of inputs on stdin. A build takes about 200 MB besides its keys; these inputs would
/// fill over a gigabyte.
const MAX_KIB: u64 = 450 << 10;

fn rows_keys_and_malformed(built: &Value) -> [u64; 3] {
    ["/rows", "/keys", "/rejected/total"].map(|at| built.pointer(at).unwrap().as_u64().unwrap())
}

/// Runs a build that reads stdin; returns its peak memory.
fn fed(arguments: &str, feed: impl FnOnce(&mut dyn Write)) -> (Outcome, u64) {
    let sandbox = Sandbox::new();
    let arguments = format!(
        "build --store {{}}/s --audience a --json --max-reject-ratio 1 --threads 2 {arguments} -"
    );
    let mut child = spawn(&mut command(sandbox.path(), &arguments));
    let status = format!("/proc/{}/status", child.id());
    let watch = std::thread::spawn(move || {
        let mut peak = 0;
        // The loop ends when the process ends and the line disappears.
        while let Ok(status) = std::fs::read_to_string(&status) {
            let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) else {
                break;
            };
            peak = line
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .expect("a number of KiB");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        peak
    });
    let mut pipe = child.stdin.take().expect("a piped stdin");
    feed(&mut pipe);
    drop(pipe);
    let outcome = outcome(child);
    (outcome, watch.join().expect("it does not panic"))
}

#[test]
fn gigabyte_line_takes_no_memory() {
    let good = ids(IdKind::Md5, 0..2);
    let mib = vec![b'x'; 1 << 20];
    let feed = |head: String, tail: String| {
        let mib = &mib;
        move |pipe: &mut dyn Write| {
            // The reader closes the pipe on an error.
            let _ = pipe.write_all(head.as_bytes());
            (0..1024).all(|_| pipe.write_all(mib).is_ok());
            let _ = pipe.write_all(tail.as_bytes());
        }
    };
    let (built, peak) = fed(
        "--format lines",
        feed(good[0].clone() + "\n", format!("\n{}\n", good[1])),
    );
    assert_eq!(rows_keys_and_malformed(&built.json()), [3, 2, 1]);
    assert!(peak < MAX_KIB, "{peak} KiB");
    let row = |id: &str| format!("{{\"id\":\"{id}\"}}\n");
    let (built, peak) = fed(
        "--format ndjson --column id",
        feed(
            row(&good[0]) + "{\"id\":\"",
            format!("\"}}\n{}", row(&good[1])),
        ),
    );
    assert_eq!(rows_keys_and_malformed(&built.json()), [3, 2, 1]);
    assert!(peak < MAX_KIB, "{peak} KiB");
    // CSV rows may contain line ends, so the start of the next row is unknown.
    let (refused, peak) = fed(
        "--format csv --column id",
        feed(format!("id\n{}\n", good[0]), "\n".to_owned()),
    );
    refused.fails(
        3,
        "input -: the row at line 3 does not end; is a quote left open?",
    );
    assert!(peak < MAX_KIB, "{peak} KiB");
}

#[test]
fn decompression_bomb_is_one_long_line() {
    let zeros = vec![b'0'; 64 << 20];
    let (gz, zst) = (gzip(&zeros), zst(&zeros));
    drop(zeros);
    for (name, member, members) in [("gz", &gz, 32), ("zst", &zst, 32)] {
        let (built, peak) = fed("--format lines --allow-empty", |pipe| {
            (0..members).for_each(|_| pipe.write_all(member).expect("it reads to the end"));
        });
        // 2 GiB.
        assert_eq!(rows_keys_and_malformed(&built.json()), [1, 0, 1], "{name}");
        assert!(peak < MAX_KIB, "{name}: {peak} KiB");
    }
    // A frame with a window of 2 GiB.
    let window = [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3][..], &[0; 64]].concat();
    let (refused, peak) = fed("--format ndjson --column id", |pipe| {
        drop(pipe.write_all(&window))
    });
    refused.fails(3, "input -: zstd data needs a window of over 128 MiB");
    assert!(peak < MAX_KIB, "{peak} KiB");
}
