//! `[store]`: the source of snapshots.

use std::path::PathBuf;
use std::time::Duration;

use rtad_store::{ACCEPTED_URLS, PublicKey, STALL_TIMEOUT, Store};
use serde::{Deserialize, Serialize};

use super::reader::Document;
use super::trust;
use super::values::{HOUR, SECOND, SIZE, as_duration, as_size, duration, size, word};

/// The store of snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct StoreConfig {
    /// Store of the snapshots.
    pub url: String,
    /// Time between polls, with jitter of up to 10 %. While the store fails, backoff extends it up
    /// to sixfold. The audience of an event window is polled four times as often, but at most once
    /// a second.
    #[serde(serialize_with = "as_duration")]
    pub poll_interval: Duration,
    /// Largest snapshot that is loaded. A larger one is rejected.
    #[serde(serialize_with = "as_size")]
    pub max_snapshot_size: u64,
    /// Time within which a read must receive 16 KiB. A slower read is aborted and retried.
    #[serde(serialize_with = "as_duration")]
    pub stall_timeout: Duration,
    /// Replacement of the served generation. `whole` reads the new one beside the old one and needs
    /// memory for two snapshots. `rolling` replaces chunk by chunk from the disk, needs memory for
    /// one snapshot and two chunks, and requires `cache_dir`.
    pub swap: SwapMode,
    /// Directory of verified chunks, from which a restart reads; unset = no cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_dir: Option<PathBuf>,
    /// Minisign public keys. A manifest must be signed by one of them; with no key, signatures are
    /// not checked. The environment variable separates keys with commas. The keys of
    /// `public_keys_file` are added.
    pub public_keys: Vec<PublicKey>,
}

/// Replacement of the served generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwapMode {
    /// The new generation is read beside the old one, then replaces it at once: memory for two
    /// snapshots.
    #[default]
    Whole,
    /// Chunk by chunk from the disk: memory for one snapshot and two chunks.
    Rolling,
}

pub(super) fn read(d: &mut Document<'_>) -> StoreConfig {
    let mut section = d.section("store");
    let url = |text: &str| Store::check_url(text).is_ok().then(|| text.to_owned());
    let url = section.read(d, "url", ACCEPTED_URLS, url);
    if url.is_none() && !section.had("url") {
        d.mistake(None, "store.url", "is missing", ACCEPTED_URLS);
    }
    let swap_line = section.line_of("swap");
    let poll_interval = duration(SECOND / 10..=HOUR);
    let store = StoreConfig {
        url: url.unwrap_or_default(),
        poll_interval: section
            .read(d, "poll_interval", "a duration from 100ms to 1h, such as 10s", poll_interval)
            .unwrap_or(Duration::from_secs(10)),
        max_snapshot_size: section.read(d, "max_snapshot_size", SIZE, size).unwrap_or(8 << 30),
        stall_timeout: section
            .read(
                d,
                "stall_timeout",
                "a duration from 1s to 1h, such as 30s",
                duration(SECOND..=HOUR),
            )
            .unwrap_or(STALL_TIMEOUT),
        swap: section.read(d, "swap", "whole or rolling", word).unwrap_or_default(),
        cache_dir: section
            .read(d, "cache_dir", "a directory, or nothing", |text| Some(text.to_owned()))
            .filter(|folder| !folder.is_empty())
            .map(PathBuf::from),
        public_keys: trust::read_public_keys(d, &mut section),
    };
    if store.swap == SwapMode::Rolling && store.cache_dir.is_none() {
        let accepted = "whole, or rolling with a store.cache_dir for chunks to be read from";
        d.mistake(swap_line, "store.swap", "is \"rolling\" without store.cache_dir", accepted);
    }
    section.finish(d);
    store
}
