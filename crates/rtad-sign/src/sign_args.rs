//! `--sign-key`: opens a store for writing, with the signer of manifests.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_store::Store;
use rtad_store::write::{Sign, StoreWriter, check_signer};

use crate::signer::Signer;
use crate::trust_args::TrustArgs;

/// `--sign-key`.
#[derive(Debug, Args)]
pub struct SignArgs {
    /// Sign the publication with this minisign secret key; the password of a protected key is read
    /// from the environment variable RTAD_SIGN_PASSWORD
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
}

/// `--public-key` without `--sign-key`.
#[derive(Debug, thiserror::Error)]
#[error(
    "--public-key without --sign-key: pods that require that key would reject the unsigned \
     publication; omit --public-key or give both"
)]
struct Unsigned;

impl CommandFailure for Unsigned {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

impl SignArgs {
    /// Opens the store for writing.
    ///
    /// # Errors
    ///
    /// If the store is read-only, or the signer is not usable.
    pub fn writer(&self, store: Store, trust: &TrustArgs) -> Result<StoreWriter, CommandError> {
        let signer = self.signer(&store, trust)?;
        Ok(StoreWriter::new(store)?.with_signer(signer))
    }

    /// As [`Self::writer`], with the signer, whose key a process that runs for long can reread.
    ///
    /// # Errors
    ///
    /// If the store is read-only, or the signer is not usable.
    pub fn reloadable_writer(
        &self,
        store: Store,
        trust: &TrustArgs,
    ) -> Result<(StoreWriter, Option<Arc<Signer>>), CommandError> {
        let signer = self.required_signer(&store, trust)?;
        let writer = StoreWriter::new(store)?.with_signer(signer.clone().map(as_sign));
        Ok((writer, signer))
    }

    /// Opens the store for writing; allows `--public-key` without `--sign-key`, for commands that
    /// rarely sign.
    ///
    /// # Errors
    ///
    /// If the store is read-only, or the signer is not usable.
    pub fn writer_or_plain(&self, store: Store) -> Result<StoreWriter, CommandError> {
        let signer = self.optional_signer(&store)?.map(as_sign);
        Ok(StoreWriter::new(store)?.with_signer(signer))
    }

    /// The signer, if there is one, checked against the store's public keys now rather than after
    /// an hour of reading.
    ///
    /// # Errors
    ///
    /// If the key cannot be read, if the store's public keys reject its signatures, or if there are
    /// only public keys.
    pub fn signer(
        &self,
        store: &Store,
        trust: &TrustArgs,
    ) -> Result<Option<Arc<dyn Sign>>, CommandError> {
        Ok(self.required_signer(store, trust)?.map(as_sign))
    }

    fn required_signer(
        &self,
        store: &Store,
        trust: &TrustArgs,
    ) -> Result<Option<Arc<Signer>>, CommandError> {
        if self.sign_key.is_none() && trust.is_given() {
            return Err(Unsigned.into());
        }
        self.optional_signer(store)
    }

    fn optional_signer(&self, store: &Store) -> Result<Option<Arc<Signer>>, CommandError> {
        let Some(key) = &self.sign_key else { return Ok(None) };
        let signer = Signer::read(key)?;
        check_signer(&*signer, store.trust())?;
        Ok(Some(signer))
    }
}

fn as_sign(signer: Arc<Signer>) -> Arc<dyn Sign> {
    signer
}
