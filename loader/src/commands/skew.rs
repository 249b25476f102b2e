//! Skew: a chunk with far more keys than its share.
//!
//! Filters rely on keys that are hashes. Ids of another kind that were declared as md5, such as
//! UUIDs with a time or counters, share their first digits: they fall into few shards, and their
//! false-positive rate is far above the expected one.

use serde::Serialize;

use rtad_cli::exit;
use rtad_core::device::SHARDS;
use rtad_core::snapshot::Manifest;

/// More than this many times the share is no chance, beyond [`SLACK_KEYS`].
const MAX_RATIO: f64 = 2.0;
/// Chance excess of small audiences.
const SLACK_KEYS: f64 = 100.0;

/// Keys of the fullest chunk.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Skew {
    /// Keys of the fullest chunk, relative to the share of its shards: about 1 for many hashes, 0
    /// without keys.
    largest_share: f64,
    /// Whether ids are unlikely to be hashes.
    skewed: bool,
}

impl Skew {
    pub fn of(manifest: &Manifest) -> Self {
        let keys_per_shard = manifest.keys() as f64 / SHARDS as f64;
        let mut skew = Self {
            largest_share: 0.0,
            skewed: false,
        };
        for chunk in manifest.chunks() {
            let keys = chunk.keys as f64;
            let share = f64::from(chunk.shard_count) * keys_per_shard;
            skew.largest_share = skew.largest_share.max(keys / share);
            skew.skewed |= keys > MAX_RATIO * share + SLACK_KEYS;
        }
        skew
    }

    pub fn warn(self, audience: &str) {
        if self.skewed {
            exit::write_warning(&format!(
                "{audience}: a chunk has {:.1} times its share of the keys, so the ids are no \
                 hashes; expected: md5s, or raw ids with their --id-kind. Such ids may have far \
                 more false positives than reported",
                self.largest_share
            ));
        }
    }
}
