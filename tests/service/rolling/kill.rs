//! Pods killed during rolling: a complete generation after every start.

use super::*;

#[test]
fn pod_killed_between_generations_starts_with_a_complete_one() {
    let mut site = Site::new();
    let mut pod = site.pod("");
    let failed = "rtad_sync_total{audience=\"old_users\",result=\"store\"}";
    assert_eq!(site.damage_the_next(|| pod.metric(failed) >= 1), 2);
    assert_eq!(pod.metric("rtad_snapshot_mixed{"), 1);
    let members = site.answers(&mut pod.connect());
    site.assert_mixed(&members, 1, 2);
    drop(pod);

    // A pod without the store serves the last complete generation.
    site.unruly.misbehave(Fault::Dead, "");
    let mut pod = site.pod("");
    assert_eq!(
        (pod.generation(), pod.metric("rtad_snapshot_mixed{")),
        (1, 0)
    );
    site.assert_answers(&mut pod.connect(), 1);
    drop(pod);

    // A pod with the store serves the live generation; only the damaged chunk is not cached.
    site.unruly.behave();
    let requests = site.unruly.requests("chunks/");
    let mut pod = site.pod("");
    wait_until("the live generation", || pod.generation() == 2);
    site.assert_answers(&mut pod.connect(), 2);
    assert_eq!(site.unruly.requests("chunks/"), requests + 1);
}

#[test]
fn pod_killed_at_any_moment_starts_with_a_complete_generation() {
    let mut site = Site::new();
    let mut serving = site.pod("").generation();
    for kill in 0..10_u64 {
        site.unruly.misbehave(Fault::Dead, "");
        let mut pod = site.pod("");
        assert_eq!(pod.generation(), serving);
        let next = site.publish();
        site.unruly.behave();
        // The kills begin before the first fetch and end after the last replacement; the prime
        // spreads them.
        std::thread::sleep(Duration::from_micros(kill * 39_119 % 300_000));
        drop(pod);

        site.unruly.misbehave(Fault::Dead, "");
        pod = site.pod("");
        let found = pod.generation();
        assert!(
            found == serving || found == next,
            "{found} after {serving} and {next}"
        );
        site.assert_answers(&mut pod.connect(), found);
        serving = found;
    }
    site.unruly.behave();
    let mut pod = site.pod("");
    wait_until("the last", || {
        pod.generation() == site.snapshots.len() as u64
    });
    site.assert_answers(&mut pod.connect(), site.snapshots.len() as u64);
}
