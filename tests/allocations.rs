//! A look-up and a decision allocate nothing, whatever kind of id asks, and neither does counting them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use rtad::catalog::{Audience, Catalog, Serving};
use rtad::platform::{IdReader, Keys};
use rtad::strategy::{Outcome, Strategy};
use rtad::telemetry::{Route, Telemetry};
use rtad_core::device::{DeviceKey, IdKind, KeyMaker};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{BuildReport, BuiltChunk, ChunkDecoder, ManifestBuilder, Snapshot};

const MEMBERS: [(IdKind, &str); 3] = [
    (IdKind::Md5, "5f93f983524def3dca464469d2cf9f3e"),
    (IdKind::Idfa, "1E2DFA89-496A-47FD-9941-DF1FC4E6484A"),
    (IdKind::Oaid, "1fE9a970-efbb-29e0-0bdd-f5dbbf751ab5"),
];

/// All of these devices, in one chunk.
fn snapshot() -> Snapshot {
    let mut keys = MEMBERS.map(|(kind, id)| KeyMaker::default().key(kind, id.as_bytes()).unwrap());
    keys.sort_unstable();
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-4).unwrap();
    let chunk = BuiltChunk::build(&spec, &keys);
    let mut manifest = ManifestBuilder::new(spec, 1e-4);
    manifest.add(&chunk);
    let manifest = manifest.finish("old_users".parse().unwrap(), 1, 0, BuildReport::default());
    let mut decoder = ChunkDecoder::new(manifest.filter(), &chunk.entry);
    decoder.feed(&chunk.bytes).unwrap();
    Snapshot::assemble(manifest, vec![Arc::new(decoder.finish().unwrap())])
}

#[test]
fn deciding_allocates_nothing() {
    let telemetry = Telemetry::default();
    let ids = IdReader::new(KeyMaker::default(), &telemetry);
    let name = "old_users".parse().unwrap();
    let audience = Audience { snapshot: Some(Arc::new(snapshot())), ..Audience::unloaded(name, true, None) };
    let strategy = Strategy {
        name: "new-users".to_owned(),
        exclude: vec![0],
        include: Vec::new(),
        no_device: Outcome::NoBid,
        unavailable: Outcome::NoBid,
    };
    let serving = Serving::from_pointee(Catalog::new(vec![audience], vec![strategy], Vec::new(), &telemetry));
    // A thread's first load makes what it needs for all others.
    drop(serving.load());
    let mut members = 0;
    let mut outcome = None;
    let counted = allocation_counter::measure(|| {
        let catalog = serving.load();
        let snapshot = catalog.audience("old_users").unwrap().available().unwrap();
        let mut keys = Keys::new();
        for (kind, id) in MEMBERS {
            let key = ids.key_of_kind(kind, id.as_bytes()).unwrap();
            members += u32::from(snapshot.contains(&key));
            keys.push(key);
        }
        keys.insert(0, DeviceKey::from_bytes([7; 16]));
        outcome = Some(catalog.decide(0, &keys).outcome);
        telemetry.request(telemetry.route(Route::CheckOne), 200, std::time::Duration::from_micros(3));
    });
    assert_eq!((members, outcome), (3, Some(Outcome::NoBid)));
    assert_eq!(counted.count_total, 0, "{} bytes", counted.bytes_total);
    // This way of counting sees one.
    assert_eq!(allocation_counter::measure(|| drop(std::hint::black_box(Box::new(7)))).count_total, 1);
}
