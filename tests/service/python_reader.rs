//! Interoperability with `tests/snapshot_reader.py`, an independent reader.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::shards_per_chunk;
use rtad_store::write::Change;
use testkit::store::{Depot, Spec, hex, keys, value};

const AUDIENCE: &str = "old_users";

/// Keys in 32 shards of 4 chunks: 20,000 fill the filters like 40 million in all shards.
fn random_keys(seed: u64, count: usize) -> Vec<DeviceKey> {
    keys(seed, count, |shard| shard & 0xc007)
}

fn spec(kind: FilterKind, fpr: f64, keys: &[DeviceKey]) -> Spec {
    let filter = FilterSpec::for_fpr(kind, fpr).unwrap();
    Spec {
        filter,
        target_fpr: fpr,
        shards_per_chunk: shards_per_chunk(&filter, keys.len() as u64),
        created_unix_seconds: 1_763_722_800,
        // The golden files do not have this field.
        expires_unix_seconds: Some(1_763_722_801),
        ..Spec::small()
    }
}

/// Runs the reader with `keys` on its stdin.
fn python(store: &Path, keys: &[DeviceKey], flags: &[&str]) -> Output {
    let mut reader = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshot_reader.py"))
        .arg(store)
        .arg(AUDIENCE)
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect(
            "python3 is installed: it is the second implementation that the format is tested \
            against",
        );
    let lines: String = keys.iter().map(|key| hex(key) + "\n").collect();
    let mut stdin = reader.stdin.take().expect("it is piped");
    // A reader that rejects the store exits before it reads the keys: ignore the broken pipe.
    let writer = thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = reader.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    output
}

#[test]
fn python_reader_gives_the_same_answers() {
    let members = random_keys(1, 20_000);
    let non_members = random_keys(2, 20_000);
    // At a rate of 1 in 20 there are hundreds of false positives, which must be the same in both
    // readers.
    let depot = Depot::new();
    depot.publish(
        AUDIENCE,
        &members,
        &spec(FilterKind::Block512, 0.05, &members),
    );
    let manifest = depot.manifest(AUDIENCE);
    let snapshot = depot.read(AUDIENCE).unwrap();

    let check = python(&depot.root, &[], &["--check"]);
    let totals = format!(
        "old_users: generation 1, block512, 20000 keys, {} chunks, {} bytes\n",
        manifest.chunks().len(),
        manifest.size_bytes()
    );
    assert_eq!(
        (
            String::from_utf8_lossy(&check.stderr).as_ref(),
            String::from_utf8_lossy(&check.stdout).as_ref()
        ),
        ("", totals.as_str())
    );

    let asked = [members.as_slice(), non_members.as_slice()].concat();
    let output = python(&depot.root, &asked, &[]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answers: Vec<bool> = output
        .stdout
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| l == b"1")
        .collect();
    let expected: Vec<bool> = asked.iter().map(|key| snapshot.contains(key)).collect();
    assert!(answers == expected, "the answers differ");
    assert!(expected[..members.len()].iter().all(|member| *member));
    let mistakes = expected[members.len()..]
        .iter()
        .filter(|member| **member)
        .count();
    assert!(mistakes > 100, "no false positives: the filters are empty");
}

#[test]
fn python_reader_gives_the_same_values() {
    // 5,000 keys per shard have second tiers and lists, 20 have lists only.
    let members = [
        keys(1, 40_000, |shard| shard & 0x4003),
        keys(2, 40, |_| 0xff00),
    ]
    .concat();
    let depot = Depot::new();
    let filter = FilterSpec::with_values_for_fpr(FilterKind::Ribbon, 0.0002).unwrap();
    let spec = Spec {
        filter,
        ..spec(FilterKind::Block512, 0.0002, &members)
    };
    depot.publish(AUDIENCE, &members, &spec);
    let asked = [members, keys(3, 40_000, |shard| shard & 0x4003)].concat();
    let compare = |asked: &[DeviceKey]| {
        let snapshot = depot.read(AUDIENCE).unwrap();
        let output = python(&depot.root, asked, &["--values"]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let found = String::from_utf8(output.stdout).unwrap();
        let expected = asked.iter().map(|key| snapshot.value(&[*key]));
        let word = |value: Option<u8>| value.map_or("-".to_owned(), |value| value.to_string());
        assert!(found.lines().eq(expected.map(word)), "the values differ");
        snapshot
    };
    let snapshot = compare(&asked);
    let is_right = |key: &DeviceKey| snapshot.value(&[*key]) == Some(value(key));
    assert_eq!(asked.iter().take_while(|key| is_right(key)).count(), 40_040);

    for step in [0, 1000] {
        let mut change = Change::default();
        let changed = &asked[39_000 + step..41_000 + step];
        for (n, key) in changed.iter().enumerate() {
            match n % 5 {
                0 => change.remove(*key),
                1 => change.add(*key),
                _ => change.add_with_value(*key, (n % 16) as u8),
            }
        }
        depot.append(AUDIENCE, change);
        let snapshot = compare(&asked[38_000..43_000]);
        for (n, expected) in [
            (0, None),
            (1, None),
            (2, Some(2)),
            (18, Some(2)),
            (19, Some(3)),
        ] {
            assert_eq!(snapshot.value(&[changed[n]]), expected, "{n}");
        }
    }
}

#[test]
fn python_reader_rejects_a_modified_chunk() {
    let depot = Depot::new();
    let members = random_keys(1, 1000);
    depot.publish(
        AUDIENCE,
        &members,
        &spec(FilterKind::Block512, 0.0001, &members),
    );
    let name = format!(
        "chunks/{}.chunk",
        depot.manifest(AUDIENCE).chunks()[0].digest
    );
    let path = depot.path(AUDIENCE, &name);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let output = python(&depot.root, &members, &[]);

    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "",
        "no answer comes from a store that is not sound"
    );
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.starts_with(&format!("{name}: digest is ")),
        "{message}"
    );
}

/// Covers merged and unmerged deltas, tombstones, a build with merged deltas, and a rollback.
#[test]
fn python_reader_applies_deltas_like_rtad() {
    let depot = Depot::new();
    let members = random_keys(1, 3000);
    let spec = spec(FilterKind::Block512, 0.0001, &members);
    depot.publish(AUDIENCE, &members, &spec);
    let others = random_keys(3, 3000);
    for step in 0..4 {
        let mut change = Change::default();
        others[step * 500..step * 500 + 400 / (step + 1)]
            .iter()
            .for_each(|key| change.add(*key));
        members[step * 100..step * 100 + 50]
            .iter()
            .for_each(|key| change.remove(*key));
        if step == 2 {
            others[..20]
                .iter()
                .chain(&members[2000..2020])
                .for_each(|key| change.entomb(*key));
        }
        depot.append(AUDIENCE, change);
        if step == 1 {
            depot.publish_merged(AUDIENCE, &[], &spec);
            depot.roll_back(AUDIENCE, 1);
        }
        let snapshot = depot.read(AUDIENCE).unwrap();
        assert!(snapshot.overlay().deltas().count() > 0);
        let asked = [members.as_slice(), others.as_slice()].concat();
        let output = python(&depot.root, &asked, &[]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let answers: Vec<bool> = output
            .stdout
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| l == b"1")
            .collect();
        let expected: Vec<bool> = asked.iter().map(|key| snapshot.contains(key)).collect();
        assert!(answers == expected, "the answers after step {step} differ");
        assert!(expected.iter().any(|member| !member) && expected.iter().any(|member| *member));
    }
}

/// As rtad does: an older record lacks later erasures.
#[test]
fn python_reader_refuses_a_store_that_lost_its_newest_record() {
    let depot = Depot::new();
    let members = random_keys(1, 1000);
    depot.publish(
        AUDIENCE,
        &members,
        &spec(FilterKind::Block512, 0.0001, &members),
    );
    let mut change = Change::default();
    change.entomb(members[0]);
    depot.append(AUDIENCE, change);
    depot.put(AUDIENCE, &depot.newest_record(AUDIENCE), None);

    let output = python(&depot.root, &members, &[]);

    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        message,
        "LATEST: number is 2, expected 1, the newest record\n"
    );
}
