//! Overhead of a build over the minimum: read the bytes, make one key per line, write each key
//! once.
//!
//! The floor program does only that, on one core, for lines of known length: no rejects, duplicates
//! or filters. Floor and build are separate processes that read the same file in turn. CPU time is
//! the kernel's accounting, in units of 10 ms.
//!
//! Before the builds, in this process and on one core: md5 of one id after another, and an id's way
//! from its text to its key, alone and in a batch.
//!
//! ```text
//! cargo bench -p rtad-loader --bench build                     # 50 million ids; 4 GB
//! cargo bench -p rtad-loader --bench build -- --ids 500000000  # 40 GB
//! ```

#![allow(clippy::print_stdout)]

use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rtad_core::device::{DeviceKey, IdKind, KeyBatch, KeyMaker};
use rtad_core::synth::Synth;

const ROUNDS: usize = 3;
/// Lines per read.
const LINES: usize = 16_384;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(flag) = arguments.iter().position(|argument| argument == "--floor") {
        let [input, output, kind] = &arguments[flag + 1..flag + 4] else {
            unreachable!("a slice of three")
        };
        return floor(Path::new(input), Path::new(output), kind == "md5");
    }
    let ids = arguments
        .iter()
        .skip_while(|argument| *argument != "--ids")
        .nth(1);
    let ids: u64 = ids.map_or(50_000_000, |ids| ids.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a directory");
    let (input, output) = (folder.path().join("ids"), folder.path().join("output"));
    hashing();
    println!("{ids} ids; median of {ROUNDS} rounds, ns per id\n");
    println!("| | wall | CPU: user + system | CPU, to the floor |\n|---|---|---|---|");
    for kind in [IdKind::Md5, IdKind::Idfa] {
        write_ids(&input, kind, ids);
        let mut floors = Vec::new();
        let mut builds = Vec::new();
        for _ in 0..ROUNDS {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            floors.push(Cost::of(
                command
                    .arg("--floor")
                    .args([&input, &output])
                    .arg(kind.as_str()),
            ));
            std::fs::remove_file(&output).expect("the floor's output");
            let mut command = Command::new(env!("CARGO_BIN_EXE_rtad-loader"));
            command.args([
                "build",
                "--quiet",
                "--audience",
                "ids",
                "--id-kind",
                kind.as_str(),
                "--store",
            ]);
            builds.push(Cost::of(
                command
                    .arg(&output)
                    .arg("--memory")
                    .arg("256MiB")
                    .arg(&input),
            ));
            std::fs::remove_dir_all(&output).expect("the build's output");
        }
        let (floor, build) = (Cost::median(floors), Cost::median(builds));
        floor.print(
            &format!("{}: the floor, one core", kind.as_str()),
            ids,
            &floor,
        );
        build.print(
            &format!("{}: `rtad-loader build --memory 256MiB`", kind.as_str()),
            ids,
            &floor,
        );
    }
}

/// Prints the time per id of hashing, without reading or gathering: one core, best of the rounds.
fn hashing() {
    const ROUNDS: usize = 30;
    const IDS: u64 = 1 << 16;
    println!("Keys of {IDS} ids in cache; best of {ROUNDS} rounds, ns per id\n");
    println!("| ids | md5 alone | key alone | key in a batch |\n|---|---|---|---|");
    let maker = KeyMaker::default();
    for kind in [IdKind::Idfa, IdKind::Imei, IdKind::Oaid] {
        let mut text = String::new();
        let mut ends = vec![0];
        for index in 0..IDS {
            Synth::new(kind, 0).write(index, &mut text);
            ends.push(text.len());
        }
        let case = kind.canonical_case();
        let ids: Vec<&[u8]> = ends
            .windows(2)
            .map(|bounds| &text.as_bytes()[bounds[0]..bounds[1]])
            .collect();
        let mut best = [f64::INFINITY; 3];
        let mut keys = [const { Vec::new() }; 3];
        let mut batch = KeyBatch::default();
        for _ in 0..ROUNDS {
            for (way, (best, keys)) in best.iter_mut().zip(&mut keys).enumerate() {
                keys.clear();
                let begun = Instant::now();
                match way {
                    0 => keys.extend(black_box(&ids).iter().map(|id| DeviceKey::of_canonical(id))),
                    1 => black_box(&ids).iter().for_each(|id| {
                        maker.keys(kind, case, id, keys).expect("usable");
                    }),
                    _ => black_box(&ids).chunks(KeyBatch::USUAL_LEN).for_each(|ids| {
                        ids.iter().for_each(|id| batch.push(&maker, kind, case, id));
                        batch.finish(&maker, keys, |result| result.expect("usable"));
                    }),
                }
                *best = best.min(begun.elapsed().as_nanos() as f64 / IDS as f64);
            }
        }
        assert!(keys[1] == keys[2], "a batch has the same keys");
        let [md5, one, many] = best;
        println!(
            "| raw {} | {md5:.1} | {one:.1} | {many:.1} |",
            kind.as_str()
        );
    }
    println!();
}

fn write_ids(path: &Path, kind: IdKind, ids: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).expect("a file"));
    let (synth, mut line) = (Synth::new(kind, 0), String::new());
    for index in 0..ids {
        line.clear();
        synth.write(index, &mut line);
        line.push('\n');
        file.write_all(line.as_bytes()).expect("room for ids");
    }
    file.flush().expect("room for ids");
}

/// Decodes md5 ids; computes the md5 of any other id.
fn floor(input: &Path, output: &Path, is_md5: bool) {
    let length = if is_md5 { 33 } else { 37 };
    let mut input = File::open(input).expect("ids");
    let mut output = File::create(output).expect("a file");
    let (mut lines, mut keys) = (vec![0; LINES * length], Vec::with_capacity(LINES * 16));
    let mut left = input.metadata().expect("a file").len() as usize;
    while left > 0 {
        let lines = &mut lines[..left.min(LINES * length)];
        input.read_exact(lines).expect("whole lines");
        left -= lines.len();
        keys.clear();
        for line in lines.chunks_exact(length) {
            let id = &line[..length - 1];
            let key = if is_md5 {
                DeviceKey::from_hex(id).expect("an md5")
            } else {
                DeviceKey::of_canonical(id)
            };
            keys.extend_from_slice(key.as_bytes());
        }
        output.write_all(&keys).expect("room for keys");
    }
    output.sync_all().expect("a disk");
}

/// Time of a process, in seconds.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    user: f64,
    system: f64,
}

impl Cost {
    fn of(command: &mut Command) -> Self {
        let (before, begun) = (children(), Instant::now());
        assert!(
            command.status().expect("a program").success(),
            "{command:?}"
        );
        let (after, wall) = (children(), begun.elapsed().as_secs_f64());
        Self {
            wall,
            user: after.0 - before.0,
            system: after.1 - before.1,
        }
    }

    fn cpu(&self) -> f64 {
        self.user + self.system
    }

    fn median(mut costs: Vec<Self>) -> Self {
        costs.sort_by(|a, b| a.cpu().total_cmp(&b.cpu()));
        costs[costs.len() / 2]
    }

    fn print(&self, name: &str, ids: u64, floor: &Self) {
        let per_id = |seconds: f64| seconds * 1e9 / ids as f64;
        println!(
            "| {name} | {:.0} | {:.0}: {:.0} + {:.0} | {:.2} |",
            per_id(self.wall),
            per_id(self.cpu()),
            per_id(self.user),
            per_id(self.system),
            self.cpu() / floor.cpu()
        );
    }
}

/// User and system CPU seconds of all finished children: fields 16 and 17 of `/proc/self/stat`, in
/// units of 10 ms.
fn children() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = &stat[stat.rfind(')').expect("a name") + 2..];
    let mut fields = after_name
        .split(' ')
        .skip(13)
        .map(|ticks| ticks.parse::<f64>().expect("ticks") / 100.0);
    (fields.next().expect("user"), fields.next().expect("system"))
}
