//! CPU time of a row: its record, which a worker makes, and its place in a file, which is the work
//! of the log's thread without the HMAC.
//!
//! `cargo bench -p rtad-log --bench rows`

#![allow(clippy::print_stdout)]

use std::hint::black_box;

use rtad_core::device::DeviceKey;
use rtad_log::row::{
    AudienceFacts, DecisionFacts, ExperimentFacts, UnnamedDevice, encode_end, encode_facts,
};
use rtad_log::write::LogFile;
use rtad_log::{AudienceFact, DecisionFact, Device, InAudience, LoggedFacts, LookedUpIds, RowEnd};

/// Rows of a round: eight row groups.
const ROWS: usize = 8 << 16;
const ROUNDS: usize = 5;

fn main() {
    let mut buffer = vec![0; 64 << 10];
    let folder = tempfile::tempdir().expect("a folder");
    let mut records = Vec::new();
    let mut ends = vec![0];
    for index in 0..ROWS {
        let size = encode(index, &mut buffer);
        records.extend_from_slice(&buffer[..size]);
        ends.push(records.len());
    }

    let mut encoding = f64::INFINITY;
    let mut writing = f64::INFINITY;
    let mut bytes = 0;
    for round in 0..ROUNDS {
        let began = cpu_nanoseconds();
        for index in 0..ROWS {
            black_box(encode(index, &mut buffer));
        }
        encoding = encoding.min(per_row(began));

        let path = folder.path().join(format!("{round}.parquet"));
        let began = cpu_nanoseconds();
        let mut file = LogFile::create(path, "pod").expect("a file");
        for range in ends.windows(2) {
            let record = &records[range[0]..range[1]];
            file.push(record, device).expect("a row");
        }
        bytes = file.close(&[]).expect("a file").bytes;
        writing = writing.min(per_row(began));
    }

    println!("| CPU ns per row, best of {ROUNDS} rounds of {ROWS} rows | |\n|---|---|");
    println!(
        "| to a record of {} bytes | {encoding:.0} |",
        records.len() / ROWS
    );
    println!("| from a record to a file | {writing:.0} |");
    println!("| bytes in the file | {:.1} |", bytes as f64 / ROWS as f64);
}

/// The CPU time of this thread, whatever runs beside it.
fn cpu_nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let first = text.split(' ').next().expect("a number");
    first.parse().expect("nanoseconds")
}

fn per_row(began: u64) -> f64 {
    (cpu_nanoseconds() - began) as f64 / ROWS as f64
}

/// Stands for the HMAC.
fn device(key: &DeviceKey) -> Device<'static> {
    Device {
        hmac: *key.as_bytes(),
        secret: "a1b2c3d4",
    }
}

/// The record of a usual request: Tencent's, with two audiences and two strategies.
fn encode(index: usize, buffer: &mut [u8]) -> usize {
    let number = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&(!number).rotate_left(29).to_le_bytes());
    let key = DeviceKey::from_bytes(key);
    let request_id = format!("r-{number:x}");
    let is_member = number.is_multiple_of(3);

    let audience = |name, is_member| AudienceFact {
        name,
        generation: Some(1_790_000_000),
        member: if is_member {
            InAudience::Yes
        } else {
            InAudience::No
        },
        value: None,
    };
    let decision = |strategy, bid, number| DecisionFact {
        strategy,
        bid,
        reason: if bid { "not_member" } else { "member" },
        condition: (!bid).then_some("old_users"),
        shadow: false,
        cap: None,
        scheduled: None,
        numbers: [number, None, None, None, None],
    };
    let mut audiences = AudienceFacts::new();
    audiences.push(audience("old_users", is_member));
    audiences.push(audience("vip", !is_member));
    let mut decisions = DecisionFacts::new();
    decisions.push(decision("new-users", !is_member, Some(1.5)));
    decisions.push(decision("vip-users", is_member, None));
    let facts = LoggedFacts {
        request_id: Some(request_id.as_str()),
        device: Some(UnnamedDevice::new(&key)),
        ids: LookedUpIds::All,
        attributes: [Some("android"), None, Some("1001"), None, None],
        asked: None,
        audiences,
        experiments: ExperimentFacts::new(),
        decisions,
    };
    let end = RowEnd {
        time: 1_790_000_000_000_000 + index as i64 * 17,
        latency: 30 + (number % 50) as u32,
        platform: "tencent",
        failure: None,
        probability: 0.01,
        sampled: true,
        config: "0123456789abcdef",
        raw: None,
    };
    let size = encode_facts(Some(&facts), buffer).expect("room");
    size + encode_end(&end, &mut buffer[size..]).expect("room")
}
