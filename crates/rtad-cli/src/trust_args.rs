//! `--public-key`: minisign keys that a store's records must be signed with.

use clap::Args;

use crate::exit::{CommandFailure, ExitStatus};
use rtad_store::{PublicKey, Store};

use crate::shown::shown;

/// `--public-key`, repeatable.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// Accept only records signed by this minisign key, or by a key of this file, as a pod with
    /// this key in its config does; repeatable, one valid signature is enough
    // Parsed after clap, which would repeat a refused value: it may be the secret key.
    #[arg(long = "public-key", value_name = "KEY|FILE")]
    public_keys: Vec<String>,
}

/// A value of `--public-key` that is no key and no file of keys.
#[derive(Debug, thiserror::Error)]
#[error("--public-key {value}: accepted: a key or a file of keys: {reason}")]
pub struct PublicKeysError {
    value: String,
    reason: String,
}

impl CommandFailure for PublicKeysError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

impl TrustArgs {
    pub(crate) const fn is_given(&self) -> bool {
        !self.public_keys.is_empty()
    }

    /// The store with these keys.
    ///
    /// # Errors
    ///
    /// If a value is no key and no file of keys.
    pub fn applied_to(&self, store: Store) -> Result<Store, PublicKeysError> {
        let mut all = Vec::new();
        for text in &self.public_keys {
            let refuse = |reason| PublicKeysError {
                value: shown(text).to_owned(),
                reason,
            };
            all.extend(keys(text).map_err(refuse)?);
        }
        Ok(store.with_public_keys(all))
    }
}

/// Parses a key, or reads a file of keys.
fn keys(text: &str) -> Result<Vec<PublicKey>, String> {
    if let Ok(key) = text.parse() {
        return Ok(vec![key]);
    }
    let file = std::fs::read_to_string(text).map_err(|error| error.to_string())?;
    PublicKey::all_of(&file).map_err(|error| error.to_string())
}
