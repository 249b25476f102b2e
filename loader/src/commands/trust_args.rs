//! Signature flags: trusted public keys for reading, the secret key for writing.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use rtad_store::write::{Sign, StoreWriter, check_signer};
use rtad_store::{PublicKey, Store};

use super::context::Target;
use super::error::{CommandError, UsageError};
use crate::sign::Signer;

/// `--public-key`, repeatable.
#[derive(Debug, Args)]
pub(super) struct TrustArgs {
    /// Accept only files signed by this minisign key, or by a key of this file, as pods with that
    /// key do;
    /// repeatable, any one is enough
    #[arg(long = "public-key", value_name = "KEY|FILE", value_parser = keys)]
    public_keys: Vec<Keys>,
}

/// Keys of one `--public-key`.
#[derive(Debug, Clone)]
struct Keys(Vec<PublicKey>);

impl TrustArgs {
    /// Whether any key was given.
    pub(super) const fn is_given(&self) -> bool {
        !self.public_keys.is_empty()
    }

    /// The store with these keys.
    pub(super) fn applied_to(&self, store: Store) -> Store {
        let keys = self.public_keys.iter().flat_map(|Keys(keys)| keys);
        store.with_public_keys(keys.cloned().collect::<Vec<_>>())
    }
}

/// Parses a key; any other text is a path.
fn keys(text: &str) -> Result<Keys, String> {
    if let Ok(key) = text.parse() {
        return Ok(Keys(vec![key]));
    }
    let file = std::fs::read_to_string(text)
        .map_err(|error| format!("neither a key nor a file: {error}"))?;
    PublicKey::all_of(&file).map(Keys).map_err(|error| error.to_string())
}

/// `--sign-key`.
#[derive(Debug, Args)]
pub(super) struct SignArgs {
    /// Sign published files with this minisign secret key; its password, if any, comes from the
    /// environment
    /// variable RTAD_SIGN_PASSWORD
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
}

impl SignArgs {
    /// Opens the target's store for writing, with the signer if there is one.
    pub(super) fn open(&self, target: &Target) -> Result<StoreWriter, CommandError> {
        self.writer(target.open()?, &target.trust)
    }

    /// The same for commands that rarely sign.
    pub(super) fn open_or_plain(&self, target: &Target) -> Result<StoreWriter, CommandError> {
        let store = target.open()?;
        let signer = self.optional_signer(&store)?;
        Ok(StoreWriter::new(store)?.with_signer(signer))
    }

    /// Write side of a store, with the signer if there is one.
    pub(super) fn writer(
        &self,
        store: Store,
        trust: &TrustArgs,
    ) -> Result<StoreWriter, CommandError> {
        let signer = self.signer(&store, trust)?;
        Ok(StoreWriter::new(store)?.with_signer(signer))
    }

    /// The signer, checked against the store's public keys, so that a wrong key is an error before
    /// hours of reading.
    pub(super) fn signer(
        &self,
        store: &Store,
        trust: &TrustArgs,
    ) -> Result<Option<Arc<dyn Sign>>, CommandError> {
        if self.sign_key.is_none() && trust.is_given() {
            return Err(UsageError::Unsigned.into());
        }
        self.optional_signer(store)
    }

    fn optional_signer(&self, store: &Store) -> Result<Option<Arc<dyn Sign>>, CommandError> {
        let Some(key) = &self.sign_key else { return Ok(None) };
        let signer = Signer::read(key)?;
        check_signer(&*signer, store.trust())?;
        Ok(Some(signer))
    }
}
