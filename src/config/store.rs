//! `[store]`: the source of snapshots.

use std::path::PathBuf;
use std::time::Duration;

use rtad_store::{ACCEPTED_URLS, PublicKey, STALL_TIMEOUT, Store};
use serde::{Deserialize, Serialize};

use super::reader::Document;
use super::trust;
use super::values::{HOUR, SECOND, SIZE, as_duration, as_size, duration, size, word};

/// Where snapshots come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreConfig {
    /// One of [`ACCEPTED_URLS`]. Changing it takes a restart.
    pub url: String,
    /// Time between polls, give or take a tenth.
    #[serde(serialize_with = "as_duration")]
    pub poll_interval: Duration,
    /// Larger snapshots are refused, in bytes.
    #[serde(serialize_with = "as_size")]
    pub max_snapshot_size: u64,
    /// A read without progress for so long is given up and made again. Changing it takes a restart.
    #[serde(serialize_with = "as_duration")]
    pub stall_timeout: Duration,
    /// How a new generation comes to be served. `rolling` needs a `cache_dir`.
    pub swap: SwapMode,
    /// Where verified chunks are kept for the next start; unset = nowhere. Changing it takes a
    /// restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_dir: Option<PathBuf>,
    /// Manifests must be signed by any one of these; none = nothing needs to be signed. Those of
    /// `public_keys_file` are among them. Changing them takes a restart.
    pub public_keys: Vec<PublicKey>,
}

/// How a new generation comes to be served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwapMode {
    /// All of it is read beside the old one, and served from one moment to the next: memory for two
    /// snapshots.
    #[default]
    Whole,
    /// Chunk by chunk, once all are on the disk: memory for one snapshot and two chunks.
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
