//! `--sign-key`: opens a store for writing, with the signer of records.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::command_error::CommandError;
use crate::exit::{CommandFailure, ExitStatus};
use rtad_store::write::{Sign, StoreWriter, check_signer};
use rtad_store::{Store, Trust};

use crate::signer::Signer;
use crate::trust_args::TrustArgs;

/// `--sign-key`.
#[derive(Debug, Args)]
pub struct SignArgs {
    /// Sign with this minisign secret key, as every write to a signed audience must be; the
    /// password of a protected key is read from the environment variable RTAD_SIGN_PASSWORD
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
    /// Opens the store for writing. A signer without public keys reads only records that it has
    /// signed: it would sign the content of others, such as a delta by an intruder, in its own
    /// name.
    ///
    /// # Errors
    ///
    /// If the store is read-only, the signer is not usable, or there are only public keys.
    pub fn writer(&self, store: Store, trust: &TrustArgs) -> Result<StoreWriter, CommandError> {
        let (writer, _) = self.reloadable_writer(store, trust)?;
        Ok(writer)
    }

    /// As [`Self::writer`], with the signer, whose key a process that runs for long can reread.
    ///
    /// # Errors
    ///
    /// Those of [`Self::writer`].
    pub fn reloadable_writer(
        &self,
        store: Store,
        trust: &TrustArgs,
    ) -> Result<(StoreWriter, Option<Arc<Signer>>), CommandError> {
        if self.sign_key.is_none() && trust.is_given() {
            return Err(Unsigned.into());
        }
        self.any_writer(store)
    }

    /// As [`Self::writer`]; allows `--public-key` without `--sign-key`, for commands that rarely
    /// write a record.
    ///
    /// # Errors
    ///
    /// Those of [`Self::writer`].
    pub fn writer_or_plain(&self, store: Store) -> Result<StoreWriter, CommandError> {
        let (writer, _) = self.any_writer(store)?;
        Ok(writer)
    }

    /// The signer is checked against the store's public keys now, not after an hour of reading.
    fn any_writer(
        &self,
        mut store: Store,
    ) -> Result<(StoreWriter, Option<Arc<Signer>>), CommandError> {
        let Some(key) = &self.sign_key else {
            return Ok((StoreWriter::new(store)?, None));
        };
        let signer = Signer::read(key)?;
        check_signer(&*signer, store.trust())?;
        if !store.trust().is_required() {
            store = store.with_trust(Trust::of_signer(signer.public_key()));
        }

        let writer =
            StoreWriter::new(store)?.with_signer(Some(Arc::clone(&signer) as Arc<dyn Sign>));
        Ok((writer, Some(signer)))
    }
}
