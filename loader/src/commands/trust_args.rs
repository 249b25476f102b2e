//! Flags for signatures: public keys for reading a store, a secret key for writing.

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
    /// Accept only manifests signed by this minisign key, or by a key of this file, as a pod with
    /// this key in its
    /// config does; repeatable, one valid signature is enough
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

/// Parses a key, or reads a file of keys.
fn keys(text: &str) -> Result<Keys, String> {
    if let Ok(key) = text.parse() {
        return Ok(Keys(vec![key]));
    }
    let file = std::fs::read_to_string(text)
        .map_err(|error| format!("accepted: a key or a file of keys: {error}"))?;
    PublicKey::all_of(&file).map(Keys).map_err(|error| error.to_string())
}

/// `--sign-key`.
#[derive(Debug, Args)]
pub(super) struct SignArgs {
    /// Sign the publication with this minisign secret key; the password of a protected key is read
    /// from the
    /// environment variable RTAD_SIGN_PASSWORD
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
}

impl SignArgs {
    /// Opens the target's store for writing, with the signer if there is one.
    pub(super) fn open(&self, target: &Target) -> Result<StoreWriter, CommandError> {
        self.writer(target.open()?, &target.trust)
    }

    /// Opens the store for writing; allows `--public-key` without `--sign-key`, for commands that
    /// rarely sign.
    pub(super) fn open_or_plain(&self, target: &Target) -> Result<StoreWriter, CommandError> {
        let store = target.open()?;
        let signer = self.optional_signer(&store)?;
        Ok(StoreWriter::new(store)?.with_signer(signer))
    }

    /// Write access to `store`, with the signer if there is one.
    pub(super) fn writer(
        &self,
        store: Store,
        trust: &TrustArgs,
    ) -> Result<StoreWriter, CommandError> {
        let signer = self.signer(&store, trust)?;
        Ok(StoreWriter::new(store)?.with_signer(signer))
    }

    /// The signer, if there is one, checked against the store's public keys now rather than after
    /// an
    /// hour of reading.
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
