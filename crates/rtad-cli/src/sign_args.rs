//! `--sign-key` and `--allow-unsigned`: opens a store for writing, with the signer of manifests.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::command_error::CommandError;
use crate::exit::{CommandFailure, ExitStatus};
use rtad_store::write::{Sign, StoreWriter, check_signer};
use rtad_store::{Store, Trust};

use crate::signer::Signer;
use crate::trust_args::TrustArgs;

/// `--sign-key` and `--allow-unsigned`.
#[derive(Debug, Args)]
pub struct SignArgs {
    /// Sign the publication with this minisign secret key; the password of a protected key is read
    /// from the environment variable RTAD_SIGN_PASSWORD
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Without --sign-key: write unsigned files over a signed generation, or roll back to an
    /// unsigned one, although pods with public keys refuse both. With --sign-key and without
    /// --public-key: sign also the content of files that this key has not signed, as at the first
    /// signed build
    #[arg(long)]
    allow_unsigned: bool,
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
    /// Whether files without a signature are allowed.
    pub const fn allows_unsigned(&self) -> bool {
        self.allow_unsigned
    }

    /// Opens the store for writing. A signer without public keys reads only files that it has
    /// signed: it would sign the content of others, such as a delta by an intruder, in its own
    /// name.
    ///
    /// # Errors
    ///
    /// If the store is read-only, the signer is not usable, or there are only public keys.
    pub fn writer(&self, store: Store, trust: &TrustArgs) -> Result<StoreWriter, CommandError> {
        Ok(self.reloadable_writer(store, trust)?.0)
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
        let (store, signer) = self.signer(store, trust)?;
        Ok((self.writer_by(store, signer.clone())?, signer))
    }

    /// As [`Self::writer`]; allows `--public-key` without `--sign-key`, for commands that rarely
    /// sign.
    ///
    /// # Errors
    ///
    /// Those of [`Self::writer`].
    pub fn writer_or_plain(&self, store: Store) -> Result<StoreWriter, CommandError> {
        let (store, signer) = self.optional_signer(store)?;
        self.writer_by(store, signer)
    }

    /// The store as readers will see it that know only the key of `--sign-key`; the same without
    /// one.
    ///
    /// # Errors
    ///
    /// If the key cannot be read.
    pub fn verifying(&self, store: Store) -> Result<Store, CommandError> {
        let Some(key) = &self.sign_key else {
            return Ok(store);
        };
        Ok(store.with_trust(Trust::of_signer(Signer::read(key)?.public_key())))
    }

    /// The writer of a store and signer of [`Self::signer`].
    ///
    /// # Errors
    ///
    /// If the store is read-only.
    pub fn writer_by(
        &self,
        store: Store,
        signer: Option<Arc<Signer>>,
    ) -> Result<StoreWriter, CommandError> {
        let signer = signer.map(|signer| signer as Arc<dyn Sign>);
        let writer = StoreWriter::new(store)?.with_signer(signer);
        Ok(writer.refusing_unsigned(!self.allow_unsigned))
    }

    /// The store as the signer reads it, and the signer, if there is one, checked against the
    /// store's public keys now rather than after an hour of reading.
    ///
    /// # Errors
    ///
    /// If the key cannot be read, if the store's public keys reject its signatures, or if there are
    /// only public keys.
    pub fn signer(
        &self,
        store: Store,
        trust: &TrustArgs,
    ) -> Result<(Store, Option<Arc<Signer>>), CommandError> {
        if self.sign_key.is_none() && trust.is_given() {
            return Err(Unsigned.into());
        }
        self.optional_signer(store)
    }

    fn optional_signer(&self, store: Store) -> Result<(Store, Option<Arc<Signer>>), CommandError> {
        let Some(key) = &self.sign_key else {
            return Ok((store, None));
        };
        let signer = Signer::read(key)?;
        check_signer(&*signer, store.trust())?;
        let store = match store.trust().is_required() || self.allow_unsigned {
            true => store,
            false => store.with_trust(Trust::of_signer(signer.public_key())),
        };
        Ok((store, Some(signer)))
    }
}
