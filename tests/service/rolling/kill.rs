//! Pods that are killed while they roll: whole generations after every start.

use super::*;

#[test]
fn a_pod_killed_between_two_generations_starts_with_a_whole_one() {
    let mut site = Site::new();
    let mut pod = site.pod("");
    let failed = "rtad_sync_total{audience=\"old_users\",result=\"store\"}";
    assert_eq!(site.spoil_the_next(|| pod.metric(failed) >= 1), 2);
    assert_eq!(pod.metric("rtad_snapshot_mixed{"), 1);
    let members = site.answers(&mut pod.client);
    site.assert_mixed(&members, 1, 2);
    drop(pod);

    // Without the store: what was whole last.
    site.unruly.misbehave(Fault::Dead, "");
    let mut pod = site.pod("");
    assert_eq!((pod.generation(), pod.metric("rtad_snapshot_mixed{")), (1, 0));
    site.assert_answers(&mut pod.client, 1);
    drop(pod);

    // With it: what is live, of which the disk has all but the rotten chunk.
    site.unruly.behave();
    let requests = site.unruly.requests("chunks/");
    let mut pod = site.pod("");
    assert_eq!(pod.generation(), 2);
    site.assert_answers(&mut pod.client, 2);
    assert_eq!(site.unruly.requests("chunks/"), requests + 1);
}

#[test]
fn a_pod_killed_at_any_moment_starts_with_a_whole_generation() {
    let mut site = Site::new();
    let mut serving = site.pod("").generation();
    for kill in 0..16_u64 {
        site.unruly.misbehave(Fault::Dead, "");
        let mut pod = site.pod("");
        assert_eq!(pod.generation(), serving);
        let next = site.publish();
        site.unruly.behave();
        // From before the first chunk is fetched to after the last was replaced: the prime spreads
        // the moments.
        std::thread::sleep(Duration::from_micros(kill * 39_119 % 300_000));
        drop(pod);

        site.unruly.misbehave(Fault::Dead, "");
        pod = site.pod("");
        let found = pod.generation();
        assert!(found == serving || found == next, "{found} after {serving} and {next}");
        site.assert_answers(&mut pod.client, found);
        serving = found;
    }
    site.unruly.behave();
    let mut pod = site.pod("");
    assert_eq!(pod.generation(), site.snapshots.len() as u64);
    site.assert_answers(&mut pod.client, site.snapshots.len() as u64);
}
