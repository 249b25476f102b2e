//! Peak memory during the replacement of a generation by another of the same size.

#![allow(clippy::print_stderr, reason = "figures, shown with --nocapture")]

use super::*;

/// 1,000 bits per key: 150 MB of filters need only 1.2 million keys.
const KEYS: usize = 1_200_000;

/// Peak memory of a pod over two generations, in multiples of a snapshot.
fn peak(depot: &Depot, sets: &[Vec<DeviceKey>; 2], lines: &str) -> f64 {
    let filter = FilterSpec::new(FilterKind::Block512, 10, 1_000_000).unwrap();
    let spec = Spec {
        filter,
        shards_per_chunk: 2048,
        ..Spec::small()
    };
    let first = depot.publish(AUDIENCE, &sets[0], &spec);
    let folder = tempfile::tempdir().unwrap();
    let lines = lines.replace("CACHE", folder.path().join("cache").to_str().unwrap());
    let mut pod = Pod::start(depot.url(), folder.path(), &lines, "");
    assert_eq!(pod.generation(), first);
    let size_bytes = depot.manifest(AUDIENCE).size_bytes();
    assert!(size_bytes > 145_000_000, "{size_bytes}");
    depot.publish(AUDIENCE, &sets[1], &spec);
    wait_until("the next", || pod.generation() == first + 1);
    assert!(
        pod.connect()
            .members_binary(AUDIENCE, &sets[1][..10_000])
            .iter()
            .all(|member| *member)
    );
    let (peak_bytes, chunks) = (pod.peak_bytes(), depot.manifest(AUDIENCE).chunks().len());
    eprintln!(
        "{lines:?}: {peak_bytes} bytes at the peak, for snapshots of {size_bytes} in {chunks} \
         chunks"
    );
    peak_bytes as f64 / size_bytes as f64
}

#[test]
fn rolling_needs_the_memory_of_one_snapshot() {
    let sets = [1, 2].map(|seed| keys(seed, KEYS, |shard| shard));
    let depot = Depot::new();
    let whole = peak(&depot, &sets, "swap = \"whole\"\ncache_dir = \"CACHE\"");
    let rolling = peak(&depot, &sets, "swap = \"rolling\"\ncache_dir = \"CACHE\"");
    // The process itself takes a third of such a small snapshot.
    assert!(
        (1.75..2.75).contains(&whole),
        "whole needed {whole} snapshots"
    );
    assert!(rolling < 1.5, "rolling needed {rolling} snapshots");
}
