//! Instructions per operation, counted by callgrind: reproducible on a busy machine. Excludes the
//! cost of memory.
//!
//! This program runs itself under valgrind with two numbers of repetitions and uses the difference.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use rtad::catalog::{RequestKeys, Serving};
use rtad::log::LogTap;
use rtad::platform::{IdReader, Keys};
use rtad::strategy::Units;
use rtad_core::device::{DeviceKey, IdKind};

use super::answered;
use super::lanes::{self, Lane};

/// Numbers of repetitions: low and high.
const COUNTS: [u64; 2] = [1_000, 21_000];
/// Keys looked up together.
const BATCH: usize = 1_000;

/// Prefix of an operation under the rules of [`super::STEERED`].
pub const STEERED: &str = "steered ";
/// Prefix of an operation whose request is logged.
pub const LOGGED: &str = "logged ";

/// Operations besides those of the platforms.
const OPERATIONS: [(&str, &str); 3] = [
    (
        "check",
        "an md5's hex digits → key → is it a member? (half are)",
    ),
    ("decide", "the same → what does the strategy decide?"),
    ("batch", "one key of a batch of 1,000"),
];

/// Prints the tables for the audiences in `store`.
pub fn table(store: &Path, lanes: &[Lane]) {
    println!("| | instructions |\n|---|---|");
    for (operation, name) in OPERATIONS {
        println!(
            "| {name} | {:.0} |",
            each(store, operation)
                / if operation == "batch" {
                    BATCH as f64
                } else {
                    1.0
                }
        );
    }
    println!(
        "\n| body → answer | one audience excluded | the same, logged | \
         with three nested rules, a value and an experiment | ratio |\n|---|---|---|---|---|"
    );
    for lane in lanes.iter().filter(|lane| lane.path.starts_with("/rta/")) {
        let plain = each(store, lane.path);
        let [logged, steered] =
            [LOGGED, STEERED].map(|prefix| each(store, &format!("{prefix}{}", lane.path)));
        let ratio = steered / plain;
        println!(
            "| {} | {plain:.0} | {logged:.0} | {steered:.0} | {ratio:.2} |",
            lane.name
        );
    }
}

fn each(store: &Path, operation: &str) -> f64 {
    let [few, many] = COUNTS.map(|count| instructions(store, operation, count));
    (many - few) as f64 / (COUNTS[1] - COUNTS[0]) as f64
}

fn instructions(store: &Path, operation: &str, count: u64) -> u64 {
    let mut valgrind = Command::new("valgrind");
    // Loading the audience varies with thread scheduling: count only the repeated part.
    valgrind.args([
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--toggle-collect=*instructions::repeat*",
    ]);
    valgrind
        .arg(std::env::current_exe().expect("a path"))
        .arg("--counted")
        .arg(store);
    let ended = valgrind
        .args([operation, &count.to_string()])
        .output()
        .expect("valgrind is installed");
    let said = String::from_utf8_lossy(&ended.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let collected = collected.and_then(|(_, number)| number.trim().parse().ok());
    collected.unwrap_or_else(|| panic!("valgrind did not count: {said}"))
}

/// Runs under valgrind.
#[inline(never)]
pub fn repeat(
    (serving, ids): (&Serving, &IdReader),
    keys: u64,
    operation: &str,
    tap: Option<&LogTap>,
    count: u64,
) {
    let device = |number: u64| {
        lanes::member(if number.is_multiple_of(2) {
            number % keys
        } else {
            keys + number
        })
    };
    let key = |hex: &str| ids.key(IdKind::Md5.into(), hex.as_bytes()).expect("an md5");
    // Prepared in advance, the same number for any count.
    let devices: Vec<DeviceKey> = (0..BATCH as u64).map(device).collect();
    let hex: Vec<String> = devices
        .iter()
        .map(|key| const_hex::encode(key.as_bytes()))
        .collect();
    let mut hex = hex.iter().cycle();
    let mut next = || key(hex.next().expect("endless iterator"));
    let catalog = serving.load();
    let snapshot = catalog.audiences()[0].available().expect("loaded snapshot");
    let mut members = vec![false; BATCH];
    let lane = lanes::all(keys)
        .into_iter()
        .find(|lane| lane.path == operation);
    let bodies: Vec<Bytes> = lane
        .iter()
        .flat_map(|lane| lane.bodies.iter().cloned())
        .collect();
    let mut bodies = bodies.iter().cycle();
    for _ in 0..count {
        match operation {
            "check" => drop(black_box(snapshot.contains(&next()))),
            "decide" => {
                let keys = RequestKeys::of(Keys::from_iter([next()]), Units::default());
                let catalog = serving.load();
                let mut facts = catalog.no_facts(&keys);
                catalog.look_up(&keys, [0].into_iter(), &mut facts);
                black_box(catalog.rules().decide(0, &facts));
            }
            "batch" => snapshot.contains_many(black_box(&devices), &mut members),
            path => drop(black_box(answered(
                serving,
                ids,
                path,
                bodies.next().expect("a lane has bodies").clone(),
                tap,
            ))),
        }
    }
}
