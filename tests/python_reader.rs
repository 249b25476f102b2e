//! What rtad publishes, a reader that shares no code with it reads: `tests/snapshot_reader.py`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use common::{random_keys, read_snapshot};
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuildReport, BuiltChunk, Manifest, ManifestBuilder, Overlay, chunk_runs, shards_per_chunk,
};
use rtad_store::write::{Change, StoreWriter};

fn audience() -> AudienceName {
    "old_users".parse().unwrap()
}

/// Publishes `keys` into a new store in `folder`.
async fn publish(folder: &Path, kind: FilterKind, fpr: f64, keys: &[DeviceKey]) -> (StoreWriter, Manifest) {
    let writer = StoreWriter::open(folder.to_str().unwrap()).unwrap();
    let spec = FilterSpec::for_fpr(kind, fpr).unwrap();
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    let publication = writer.publish(writer.base(&audience()).await.unwrap()).await.unwrap();
    let mut builder = ManifestBuilder::new(spec, fpr);
    for run in chunk_runs(&sorted, shards_per_chunk(&spec, sorted.len() as u64)) {
        let chunk = BuiltChunk::build(&spec, run);
        builder.add(&chunk);
        publication.put_chunk(chunk).await.unwrap();
    }
    let report = BuildReport { tool: "a test".to_owned(), ..BuildReport::default() };
    // The golden files have no such field.
    let manifest = builder.finish(audience(), publication.generation(), 1_763_722_800, report);
    let manifest = manifest.expiring_at(1_763_722_801);
    publication.commit(&manifest).await.unwrap();
    (writer, manifest)
}

/// Runs the reader with `keys` on its stdin.
fn python(store: &Path, keys: &[DeviceKey], flags: &[&str]) -> Output {
    let mut reader = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshot_reader.py"))
        .arg(store)
        .arg(audience().as_str())
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 is installed: it is the second implementation that the format is tested against");
    let lines: String = keys.iter().map(|key| const_hex::encode(key.as_bytes()) + "\n").collect();
    let mut stdin = reader.stdin.take().expect("it is piped");
    // A reader that refuses the store is gone before it has read a key: not being heard is then no failure.
    let writer = thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = reader.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    output
}

#[tokio::test]
async fn python_gives_the_same_answers() {
    let members = random_keys("member", 20_000);
    let strangers = random_keys("stranger", 20_000);
    // At a rate of 1 in 20 hundreds of strangers are members by mistake, and both readers must make the same
    // mistakes.
    for kind in [FilterKind::Classic, FilterKind::Block512] {
        let folder = tempfile::tempdir().unwrap();
        let (writer, manifest) = publish(folder.path(), kind, 0.05, &members).await;
        let snapshot = read_snapshot(writer.store(), &audience()).await;

        let check = python(folder.path(), &[], &["--check"]);
        let totals = format!(
            "old_users: generation 1, {}, 20000 keys, {} chunks, {} bytes\n",
            kind.as_str(),
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

        let asked = [members.as_slice(), strangers.as_slice()].concat();
        let output = python(folder.path(), &asked, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answers: Vec<bool> =
            output.stdout.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| l == b"1").collect();
        let expected: Vec<bool> = asked.iter().map(|key| snapshot.contains(key)).collect();
        assert!(answers == expected, "the answers of the {kind:?} filter differ");
        assert!(expected[..members.len()].iter().all(|member| *member));
        let mistakes = expected[members.len()..].iter().filter(|member| **member).count();
        assert!(mistakes > 100, "some strangers must be members, or nothing but empty filters was compared");
    }
}

#[tokio::test]
async fn python_refuses_a_chunk_that_was_changed() {
    let folder = tempfile::tempdir().unwrap();
    let members = random_keys("member", 1000);
    let (_, manifest) = publish(folder.path(), FilterKind::Block512, 0.0001, &members).await;
    let name = format!("chunks/{}.chunk", manifest.chunks()[0].digest);
    let path = folder.path().join("old_users").join(&name);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let output = python(folder.path(), &members, &[]);

    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "no answer comes from a store that is not sound");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.starts_with(&format!("{name}: digest is ")), "{message}");
}

/// Deltas merged and not, tombstones, a build that has taken some up, a rollback.
#[tokio::test]
async fn python_applies_deltas_as_rtad_does() {
    let folder = tempfile::tempdir().unwrap();
    let members = random_keys("member", 3000);
    let (writer, _) = publish(folder.path(), FilterKind::Block512, 0.0001, &members).await;
    let others = random_keys("other", 3000);
    let mut ledger = writer.ledger(&audience()).await.unwrap();
    for step in 0..4 {
        let mut change = Change::default();
        others[step * 500..step * 500 + 400 / (step + 1)].iter().for_each(|key| change.add(*key));
        members[step * 100..step * 100 + 50].iter().for_each(|key| change.remove(*key));
        if step == 2 {
            others[..20].iter().chain(&members[2000..2020]).for_each(|key| change.entomb(*key));
        }
        ledger.append(change).await.unwrap();
        if step == 1 {
            let folded = writer.base(&audience()).await.unwrap();
            let publication = writer.publish(folded.clone()).await.unwrap();
            let manifest =
                ManifestBuilder::new(FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap(), 0.0001)
                    .finish(audience(), publication.generation(), 1, BuildReport::default())
                    .with_folded(folded.folded().unwrap());
            publication.commit(&manifest).await.unwrap();
            let base = writer.base(&audience()).await.unwrap();
            writer.publish(base).await.unwrap().roll_back(1).await.unwrap();
            ledger.refresh().await.unwrap();
        }
        let snapshot = read_snapshot(writer.store(), &audience()).await;
        let live = writer.store().live(&audience()).await.unwrap().unwrap();
        let overlay = writer.store().overlay(&audience(), &live.current, &Overlay::default()).await.unwrap();
        assert!(overlay.deltas().count() > 0);
        let snapshot = snapshot.with_overlay(overlay);
        let asked = [members.as_slice(), others.as_slice()].concat();
        let output = python(folder.path(), &asked, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answers: Vec<bool> =
            output.stdout.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| l == b"1").collect();
        let expected: Vec<bool> = asked.iter().map(|key| snapshot.contains(key)).collect();
        assert!(answers == expected, "the answers after step {step} differ");
        assert!(expected.iter().any(|member| !member) && expected.iter().any(|member| *member));
    }
}
