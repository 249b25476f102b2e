//! Whose signatures count, for a command that reads a store; and whose is given, for one that writes.

use std::path::PathBuf;

use clap::Args;

use rtad_store::{PublicKey, Store};

use super::{CommandError, Target, UsageError};
use crate::sign::Signer;

/// `--public-key`, as often as there are keys.
#[derive(Debug, Args)]
pub(super) struct TrustArgs {
    /// Believe only what is signed by this minisign key, or a key of this file, as a pod does whose config names it; may be
    /// given several times, any one is enough
    #[arg(long = "public-key", value_name = "KEY|FILE", value_parser = keys)]
    public_keys: Vec<Keys>,
}

/// Of one `--public-key`.
#[derive(Debug, Clone)]
struct Keys(Vec<PublicKey>);

impl TrustArgs {
    /// Whether any key was given.
    pub(super) const fn is_given(&self) -> bool {
        !self.public_keys.is_empty()
    }

    /// The store, with these keys.
    pub(super) fn applied_to(&self, store: Store) -> Store {
        let keys = self.public_keys.iter().flat_map(|Keys(keys)| keys);
        store.with_public_keys(keys.cloned().collect::<Vec<_>>())
    }
}

/// What is no key is taken for a path.
fn keys(text: &str) -> Result<Keys, String> {
    if let Ok(key) = text.parse() {
        return Ok(Keys(vec![key]));
    }
    let file = std::fs::read_to_string(text).map_err(|error| format!("neither a key nor a file: {error}"))?;
    PublicKey::all_of(&file).map(Keys).map_err(|error| error.to_string())
}

/// `--sign-key`.
#[derive(Debug, Args)]
pub(super) struct SignArgs {
    /// Sign what is published with this secret key of minisign; its password, if it has one, is read from the environment
    /// variable RTAD_SIGN_PASSWORD
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
}

impl SignArgs {
    /// The target's store, with the signer if there is one.
    pub(super) fn open(&self, target: &Target) -> Result<Store, CommandError> {
        self.signing(target.open()?, &target.trust)
    }

    /// A store, with the signer if there is one. A key that does not fit ends this here, not after an hour of reading.
    pub(super) fn signing(&self, store: Store, trust: &TrustArgs) -> Result<Store, CommandError> {
        if self.sign_key.is_none() && trust.is_given() {
            return Err(UsageError::Unsigned.into());
        }
        self.signing_or_plain(store)
    }

    /// The same for a command that rarely signs anything.
    pub(super) fn open_or_plain(&self, target: &Target) -> Result<Store, CommandError> {
        self.signing_or_plain(target.open()?)
    }

    fn signing_or_plain(&self, store: Store) -> Result<Store, CommandError> {
        let Some(key) = &self.sign_key else { return Ok(store) };
        let store = store.with_signer(Signer::read(key)?);
        store.check_signer()?;
        Ok(store)
    }
}
