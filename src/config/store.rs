//! `[store]`: the source of snapshots.

use std::path::PathBuf;
use std::time::Duration;

use rtad_config::Document;
use rtad_config::values::{HOUR, as_size, as_time, size, text, time};
use rtad_store::{ACCEPTED_URLS, PublicKey, STALL_TIMEOUT, Store};
use serde::{Deserialize, Deserializer, Serialize};

use super::trust;

/// The store of snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Store of the snapshots.
    #[serde(
        deserialize_with = "store_url",
        skip_serializing_if = "Option::is_none"
    )]
    pub url: Option<String>,
    /// Stores that mirror each other, in place of `url`: the first one that answers is read.
    #[serde(deserialize_with = "store_urls", skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// Store in which the pods share their [caps](../guides/cap-devices.md): they write below
    /// `.caps/`. Unset = `url`, unless that is over HTTP.
    #[serde(
        deserialize_with = "writable_url",
        skip_serializing_if = "Option::is_none"
    )]
    pub caps_url: Option<String>,
    /// Time between polls, with jitter of up to 10 %. While the store fails, backoff extends it up
    /// to sixfold, with jitter of up to 25 %. The audience of an event window is polled four times
    /// as often, but at most once a second.
    #[serde(
        deserialize_with = "time::<_, _, 100, HOUR>",
        serialize_with = "as_time"
    )]
    pub poll_interval: Duration,
    /// Largest snapshot that is loaded. A larger one is rejected.
    #[serde(deserialize_with = "size::<_, 1>", serialize_with = "as_size")]
    pub max_snapshot_size: u64,
    /// Replacement of the served generation. `whole` reads the new one beside the old one and needs
    /// memory for two snapshots. `rolling` replaces chunk by chunk from the disk, needs memory for
    /// one snapshot and two chunks, and requires `cache_dir`.
    pub swap: SwapMode,
    /// Directory of verified chunks, from which a restart reads; unset = no cache.
    pub cache_dir: Option<PathBuf>,
    /// Minisign public keys. A record must be signed by one of them; with no key, signatures are
    /// not checked. The keys of `public_keys_file` are added.
    #[serde(deserialize_with = "trust::public_keys")]
    pub public_keys: Vec<PublicKey>,
    /// File with further public keys, one a line.
    #[serde(skip_serializing)]
    pub public_keys_file: Option<String>,
    /// Time within which a read must receive 16 KiB. A slower read is aborted and retried. Only
    /// tests change it.
    #[serde(skip)]
    pub stall_timeout: Duration,
}

fn store_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    StoreUrl::deserialize(deserializer).map(|StoreUrl(url)| Some(url))
}

fn store_urls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let urls = Vec::<StoreUrl>::deserialize(deserializer)?;
    Ok(urls.into_iter().map(|StoreUrl(url)| url).collect())
}

/// Accepted values of `store.caps_url`, for messages.
const WRITABLE_URLS: &str = "a directory, file:///directory, s3://bucket/prefix, \
                             gs://bucket/prefix, az://container/prefix, oss://bucket/prefix or \
                             cos://bucket/prefix";

fn writable_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(deserializer, WRITABLE_URLS, |url| {
        Store::is_writable_url(url).then(|| Some(url.to_owned()))
    })
}

struct StoreUrl(String);

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, ACCEPTED_URLS, |url| {
            Store::check_url(url).is_ok().then(|| Self(url.to_owned()))
        })
    }
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

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: None,
            urls: Vec::new(),
            caps_url: None,
            poll_interval: Duration::from_secs(10),
            max_snapshot_size: 8 << 30,
            swap: SwapMode::Whole,
            cache_dir: None,
            public_keys: Vec::new(),
            public_keys_file: None,
            stall_timeout: STALL_TIMEOUT,
        }
    }
}

impl StoreConfig {
    /// The stores, in the order in which they are read.
    pub fn stores(&self) -> &[String] {
        match &self.url {
            Some(url) => std::slice::from_ref(url),
            None => &self.urls,
        }
    }

    fn check_urls(&mut self, d: &mut Document<'_>) {
        if self.urls.is_empty() && !d.has_mistake("store.urls") {
            d.reject("store.urls", "a list of stores");
        }
        if self.url.is_none() {
            return;
        }
        if d.is_outside("store.url") {
            // A flag or variable is over the file.
            self.urls.clear();
        } else {
            d.mistake("store.url", "is beside store.urls", "one of them");
        }
    }

    /// The store of the caps; `None` if there is none that pods can write to.
    pub fn caps_store(&self) -> Option<&str> {
        let url = self.url.as_deref();
        let url = url.filter(|url| Store::is_writable_url(url));
        self.caps_url.as_deref().or(url)
    }

    /// Checks that caps have a store.
    pub(super) fn check_caps_store(&self, d: &mut Document<'_>) {
        if self.caps_store().is_some() || self.stores().is_empty() {
            return;
        }
        let found = match self.url {
            Some(_) => "is missing, and pods cannot write their caps to store.url over HTTP",
            None => "is missing, and pods write their caps to one store, not to store.urls",
        };
        d.mistake("store.caps_url", found, WRITABLE_URLS);
    }

    pub(super) fn check(&mut self, d: &mut Document<'_>) {
        if d.has("store.urls") {
            self.check_urls(d);
        } else {
            d.require("store.url", ACCEPTED_URLS);
        }
        self.cache_dir
            .take_if(|directory| directory.as_os_str().is_empty());
        if self.swap == SwapMode::Rolling && self.cache_dir.is_none() {
            let accepted = "whole, or rolling with a store.cache_dir for chunks to be read from";
            d.mistake(
                "store.swap",
                "is \"rolling\" without store.cache_dir",
                accepted,
            );
        }
        trust::add_keys_of_file(d, &mut self.public_keys, self.public_keys_file.take());
    }
}
