//! A cached chunk damaged after its verification, while the store is unavailable.

use rtad_core::snapshot::Snapshot;
use testkit::store::hex;

use super::*;

/// Index of the damaged chunk of the new generation.
const DAMAGED: usize = 5;

impl Site {
    /// Path of a chunk in the cache.
    pub fn cached(&self, generation: u64, index: usize) -> PathBuf {
        let digest = self.snapshot(generation).chunks()[index].digest();
        let chunks = self.cache().join(AUDIENCE).join("chunks");
        chunks.join(format!("{digest}.chunk"))
    }

    /// Damages one chunk during the roll to the next generation and makes the store unavailable.
    pub fn damage_the_next(&mut self, is_mixed: impl FnMut() -> bool) -> u64 {
        let path = |snapshot: &Snapshot, index: usize| -> &'static str {
            format!("{}.chunk", snapshot.chunks()[index].digest()).leak()
        };
        // Block requests before publishing.
        self.unruly.misbehave(Fault::Gate, "records/");
        let generation = self.publish();
        let last = self.snapshot(generation).chunks().len() - 1;
        self.unruly
            .misbehave(Fault::Gate, path(self.snapshot(generation), last));
        let fetched = |index: usize| self.cached(generation, index).exists();
        wait_until("all but the last are on the disk", || {
            (0..last).all(fetched)
        });
        let rotten = self.cached(generation, DAMAGED);
        let mut bytes = std::fs::read(&rotten).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&rotten, bytes).unwrap();
        let forbidden = Fault::Status("403 Forbidden", "");
        self.unruly
            .misbehave(forbidden, path(self.snapshot(generation), DAMAGED));
        wait_until("it is found", is_mixed);
        generation
    }

    /// Asserts answers of the new generation up to the damaged chunk, and of the old one after it.
    #[track_caller]
    pub fn assert_mixed(&self, members: &[bool], old: u64, new: u64) {
        let [before, after] = [old, new].map(|generation| self.snapshot(generation));
        let end = &after.manifest().chunks()[DAMAGED - 1];
        let end = end.first_shard + end.shard_count;
        let mut answered = [0, 0];
        for (key, member) in self.queried.iter().zip(members) {
            let is_new = u32::from(key.shard()) < end;
            let expected = if is_new { after } else { before }.contains(key);
            assert_eq!(*member, expected);
            answered[usize::from(is_new)] += usize::from(*member);
        }
        assert!(answered[0] > 100 && answered[1] > 100, "{answered:?}");
    }
}

/// A pod with shards of generations 1 and 2.
fn mixed() -> (Site, Server) {
    let mut site = Site::new();
    let mut server = site.start();
    assert_eq!(
        site.damage_the_next(|| server.sync_count(AUDIENCE, "store") >= 2),
        2
    );
    let (_, error) = server.last_sync(AUDIENCE);
    assert!(
        error.contains(".chunk") && error.contains("403 Forbidden"),
        "{error}"
    );
    assert_eq!((server.generation(AUDIENCE), server.is_ready()), (1, true));
    assert_eq!(server.status(AUDIENCE)["snapshot"]["generation"], 1);
    assert_eq!(server.metric("rtad_snapshot_generation{"), 1);
    assert_eq!(server.metric("rtad_snapshot_mixed{"), 1);
    assert_eq!(server.metric("rtad_cache_errors_total"), 1);
    let members = site.answers(&mut server.connect());
    site.assert_mixed(&members, 1, 2);
    (site, server)
}

#[test]
fn mixed_pod_continues_when_the_store_recovers() {
    let (site, mut server) = mixed();
    let read = server.metric("rtad_chunks_read_total{source=\"cache\"}");
    site.unruly.behave();
    wait_until("the roll continues", || server.generation(AUDIENCE) == 2);
    site.assert_serves(&mut server, 2);
    // Replaced chunks are not read again.
    let chunks = site.snapshot(2).chunks().len() - DAMAGED;
    assert_eq!(
        server.metric("rtad_chunks_read_total{source=\"cache\"}"),
        read + chunks as u64
    );
}

#[test]
fn mixed_pod_rolls_to_a_third_generation() {
    let (mut site, mut server) = mixed();
    assert_eq!(site.publish(), 3);
    wait_until("the third", || server.generation(AUDIENCE) == 3);
    site.assert_serves(&mut server, 3);
}

#[test]
fn mixed_pod_rolls_back() {
    let (site, mut server) = mixed();
    site.depot.roll_back(AUDIENCE, 1);
    wait_until("it is whole", || server.metric("rtad_snapshot_mixed{") == 0);
    site.assert_serves(&mut server, 1);
}

#[test]
fn unfinished_roll_does_not_revive_a_deleted_audience() {
    let mut site = Site::new();
    let mut server = site.start();
    site.depot.delete(AUDIENCE);
    let old = format!("/v1/check/{AUDIENCE}/{}", hex(site.queried.last().unwrap()));
    let mut client = server.connect();
    wait_until("it is deleted", || client.get(&old).status == 503);

    site.damage_the_next(|| server.metric("rtad_snapshot_mixed{") == 1);
    for key in site.queried.iter().step_by(50) {
        let path = format!("/v1/check/{AUDIENCE}/{}", hex(key));
        client.get(&path).problem(503, "not_loaded");
    }
    site.unruly.behave();
    wait_until("the roll ends", || server.generation(AUDIENCE) == 2);
    site.assert_serves(&mut server, 2);
}
