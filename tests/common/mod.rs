//! What more than one integration test needs.

use std::sync::Arc;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, Chunk, Digest, Snapshot};
use rtad_store::Store;

/// The live snapshot of an audience, read as the service reads it.
#[allow(dead_code, reason = "each test binary has its own copy of this module, and not all of them read one")]
pub(crate) async fn read_snapshot(store: &Store, audience: &AudienceName) -> Snapshot {
    let live = store.live(audience).await.unwrap().expect("the audience was published");
    let manifest = store.manifest(audience, &live.current).await.unwrap();
    let mut chunks: Vec<(u32, Arc<Chunk>)> = Vec::new();
    store
        .chunks(audience, &manifest, manifest.chunks(), 4, |entry, chunk| {
            chunks.push((entry.first_shard, chunk.into()));
        })
        .await
        .unwrap();
    chunks.sort_by_key(|(first_shard, _)| *first_shard);
    Snapshot::assemble(manifest, chunks.into_iter().map(|(_, chunk)| chunk).collect())
}

/// `count` keys, the same ones each time for a `seed`. They fall into 32 shards in 4 chunks, so that 20,000
/// keys fill filters as 40 million would.
#[allow(
    dead_code,
    reason = "each test binary has its own copy of this module, and not all of them make keys"
)]
pub(crate) fn random_keys(seed: &str, count: usize) -> Vec<DeviceKey> {
    let key = |index| {
        let mut key = *DeviceKey::of_canonical(format!("{seed}-{index}").as_bytes()).as_bytes();
        key[0] &= 0xc0;
        key[1] &= 0x07;
        DeviceKey::from_bytes(key)
    };
    (0..count).map(key).collect()
}

/// The SHA-256 of some bytes in hex.
#[allow(dead_code, reason = "as above")]
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

#[allow(dead_code, reason = "as above")]
pub(crate) mod client;
#[allow(dead_code, reason = "as above")]
pub(crate) mod process;
#[allow(dead_code, reason = "as above")]
pub(crate) mod server;
