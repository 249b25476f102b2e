//! `[log]`: the decision log.

use std::path::PathBuf;
use std::time::Duration;

use rtad_config::values::{DAY, HOUR, SECOND, as_size, as_time, number, size, text, time};
use rtad_config::{Document, Secret};
use rtad_store::folder::{ACCEPTED_FOLDERS, Folder};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::Vocabulary;
use crate::strategy::Reason;

/// Least bytes of the secret.
pub const LEAST_SECRET: usize = 16;
/// Stands for every failure in `always`.
pub const ANY_FAILURE: &str = "failure";

/// The decision log. A change takes a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Folder of the files. Pods may share it.
    #[serde(deserialize_with = "folder")]
    pub to: String,
    /// Directory of files that wait for their upload. Unset = `log` in `store.cache_dir`. Not used
    /// if `to` is a directory.
    pub spool: Option<PathBuf>,
    /// Secret of the devices' HMACs: at least 16 bytes, the same for all pods. Either this or
    /// `key_secret_file` is required.
    pub key_secret: Option<Secret>,
    /// File that holds the secret alone. It is read again with each file of the log: a new secret
    /// needs no restart.
    pub key_secret_file: Option<String>,
    /// Share of devices whose requests are logged, from 0 to 1.
    #[serde(deserialize_with = "share")]
    pub sample: f64,
    /// Requests that are logged whatever their device: `failure` for every answer to a platform
    /// that ignores the ids, the cause of one, or the reason of a decision. A cause that does not
    /// change the answer, such as `too_many_ids`, counts if it is named.
    pub always: Vec<String>,
    /// Requests that are logged whatever their device, by their own ids: traces.
    pub request_ids: Vec<String>,
    /// Bodies and query strings in the log: `never`, or `sampled` for every logged row. They hold
    /// device ids.
    pub raw: RawBodies,
    /// Most rows of a pod in a second. Further ones are dropped and counted.
    #[serde(deserialize_with = "number::<_, _, 1, 10_000_000>")]
    pub max_rate: u32,
    /// Age at which a file is closed. A kill of the process loses at most the rows of this time.
    #[serde(
        deserialize_with = "time::<_, _, SECOND, HOUR>",
        serialize_with = "as_time"
    )]
    pub max_age: Duration,
    /// Age at which a file is deleted, by the time in its name. The newest file stays.
    #[serde(
        deserialize_with = "time::<_, _, HOUR, { 3660 * DAY }>",
        serialize_with = "as_time"
    )]
    pub retention: Duration,
    /// Size of the folder's files, the oldest of which are deleted above it.
    #[serde(deserialize_with = "size::<_, 1_048_576>", serialize_with = "as_size")]
    pub max_size: u64,
    /// Size of the files that wait for their upload, the oldest of which are deleted above it.
    #[serde(deserialize_with = "size::<_, 1_048_576>", serialize_with = "as_size")]
    pub max_spool: u64,
    /// Path of the secret's file.
    #[serde(skip)]
    pub secret_path: Option<PathBuf>,
    /// The secret at the start.
    #[serde(skip)]
    pub secret: Secret,
}

/// Bodies and query strings in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawBodies {
    /// None.
    #[default]
    Never,
    /// Those of all logged rows.
    Sampled,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            to: String::new(),
            spool: None,
            key_secret: None,
            key_secret_file: None,
            sample: 0.01,
            always: vec![ANY_FAILURE.to_owned()],
            request_ids: Vec::new(),
            raw: RawBodies::Never,
            max_rate: 10_000,
            max_age: Duration::from_secs(60),
            retention: Duration::from_secs(30 * 86_400),
            max_size: 64 << 30,
            max_spool: 1 << 30,
            secret_path: None,
            secret: Secret::default(),
        }
    }
}

impl LogConfig {
    pub(super) fn check(
        &mut self,
        d: &mut Document<'_>,
        cache_dir: Option<&PathBuf>,
        vocabulary: &Vocabulary<'_>,
    ) {
        d.require("log.to", ACCEPTED_FOLDERS);
        self.read_secret(d);

        let mut words = vec![ANY_FAILURE];
        words.extend(vocabulary.failures);
        words.extend(Reason::ALL.map(Reason::as_str));
        for (index, word) in self.always.iter().enumerate() {
            if !words.contains(&word.as_str()) {
                d.reject(
                    &format!("log.always[{index}]"),
                    &format!("one of {}", words.join(", ")),
                );
            }
        }

        for (index, field) in self.request_ids.iter().enumerate() {
            if !field.is_empty() {
                continue;
            }
            // It would be the id of every request without one.
            d.reject(
                &format!("log.request_ids[{index}]"),
                "a string that is not empty",
            );
        }

        let is_directory = Folder::directory(&self.to).is_some();
        if self.spool.is_none() && !is_directory {
            match cache_dir {
                Some(cache_dir) => self.spool = Some(cache_dir.join("log")),
                None => d.mistake(
                    "log.to",
                    "is a bucket, without log.spool and store.cache_dir",
                    "log.spool, a directory for files that wait for their upload",
                ),
            }
        }
    }

    fn read_secret(&mut self, d: &mut Document<'_>) {
        self.secret_path = self.key_secret_file.as_ref().map(|file| d.beside(file));
        let secret = self.key_secret.as_ref().map(Secret::expose);
        let keys = ["key_secret", "key_secret_file"];
        let Some(secret) = d.either("log", keys, secret, &self.key_secret_file) else {
            return;
        };

        if secret.len() < LEAST_SECRET {
            let found = format!("has a secret of {} bytes", secret.len());
            d.mistake(
                "log",
                &found,
                &format!("at least {LEAST_SECRET} random bytes"),
            );
        }
        self.secret = Secret::new(secret);
    }

    /// Whether a change from `other` takes a restart: any does but that of a secret's file.
    pub(super) fn needs_restart(log: Option<&Self>, other: Option<&Self>) -> bool {
        log.map(Self::without_secret) != other.map(Self::without_secret)
    }

    fn without_secret(&self) -> Self {
        Self {
            secret: Secret::default(),
            ..self.clone()
        }
    }

    /// Directory in which the files are written.
    pub fn directory(&self) -> PathBuf {
        Folder::directory(&self.to)
            .or_else(|| self.spool.clone())
            .unwrap_or_default()
    }
}

fn folder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer, ACCEPTED_FOLDERS, |url| {
        Folder::check_url(url).is_ok().then(|| url.to_owned())
    })
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match f64::deserialize(deserializer) {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(D::Error::custom("a number from 0 to 1")),
    }
}
