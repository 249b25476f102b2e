//! Reading and writing signed files: the one way in and the one way out for everything that decides what pods serve.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{GetOptions, PutMode};

use super::super::read::read_small_by;
use super::super::{Store, StoreError};
use super::{MAX_SIGNATURE_BYTES, PublicKey, Sign, SignatureError, Trust, signature_path, trusted_comment};
use rtad_core::snapshot::AudienceName;

/// A file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Those of its signature; `None` if it has none, or if nobody wanted to know.
    pub signature: Option<Vec<u8>>,
}

impl Store {
    /// The same store, of which a file is believed only if it is signed by one of these keys; none = whatever is there is believed.
    #[must_use]
    pub fn with_public_keys(self, keys: impl Into<Arc<[PublicKey]>>) -> Self {
        Self { trust: Trust::new(keys), ..self }
    }

    /// The same store, in which what is published is signed.
    #[must_use]
    pub fn with_signer(self, signer: Arc<dyn Sign>) -> Self {
        Self { signer: Some(signer), ..self }
    }

    #[cfg(test)]
    pub(crate) fn without_signer(self) -> Self {
        Self { signer: None, ..self }
    }

    /// Whether what is published is signed.
    pub const fn signs(&self) -> bool {
        self.signer.is_some()
    }

    /// Whose signatures count.
    pub const fn trust(&self) -> &Trust {
        &self.trust
    }

    /// That what the signer signs is accepted by the public keys, if there are both: asked before work is begun that pods
    /// would refuse.
    ///
    /// # Errors
    ///
    /// [`StoreError::Signature`], or [`StoreError::Sign`].
    pub fn check_signer(&self) -> Result<(), StoreError> {
        self.signature_of(&Path::from("a test of the key"), b"").map(drop)
    }

    /// Reads a file whole, never more than `limit` bytes of it, and verifies its signature if there are public keys. `what` it
    /// is, for messages.
    ///
    /// # Errors
    ///
    /// The store's own, [`StoreError::Manifest`] if it is too large, [`StoreError::Signature`].
    pub(crate) async fn read_signed(
        &self,
        path: &Path,
        limit: u64,
        what: &'static str,
    ) -> Result<Signed, StoreError> {
        let objects = self.objects(path)?;
        let options = GetOptions::default();
        let bytes = read_small_by(&*objects, path, limit, what, options, self.stall_timeout).await?.0;
        self.with_signature(path, bytes).await
    }

    /// A file that was read from `path`, with its signature, verified, if there are public keys.
    ///
    /// # Errors
    ///
    /// The store's own, [`StoreError::Signature`].
    pub(crate) async fn with_signature(&self, path: &Path, bytes: Vec<u8>) -> Result<Signed, StoreError> {
        if !self.trust.is_required() {
            return Ok(Signed { bytes, signature: None });
        }
        let objects = self.objects(path)?;
        let refuse = |source| StoreError::Signature { path: path.to_string(), source };
        let (place, options) = (signature_path(path), GetOptions::default());
        let limit = MAX_SIGNATURE_BYTES;
        let read =
            read_small_by(&*objects, &place, limit, "the signature", options, self.stall_timeout).await;
        let signature = match read {
            Ok((signature, _)) => Some(signature),
            Err(StoreError::NotFound { .. }) => None,
            Err(StoreError::Manifest { .. }) => return Err(refuse(SignatureError::TooLarge { limit })),
            Err(error) => return Err(error),
        };
        self.trust.check(path, &bytes, signature.as_deref()).map_err(refuse)?;
        Ok(Signed { bytes, signature })
    }

    /// The signature of a file to be, if there is a signer; `None` otherwise.
    fn signature_of(&self, path: &Path, bytes: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(signer) = &self.signer else {
            // Who would not believe it must not write it.
            return match self.trust.is_required() {
                true => {
                    Err(StoreError::Signature { path: path.to_string(), source: SignatureError::Missing })
                }
                false => Ok(None),
            };
        };
        let signed = signer.sign(bytes, &trusted_comment(path));
        let signature =
            signed.map_err(|source| StoreError::Sign { path: path.to_string(), source })?.into_bytes();
        let refuse = |source| StoreError::Signature { path: path.to_string(), source };
        self.trust.check(path, bytes, Some(&signature)).map_err(refuse)?;
        Ok(Some(signature))
    }

    /// Writes a file, and its signature before it if there is a signer. For files that are never changed: their names must tell
    /// all their contents apart, as a generation's number or a digest does.
    ///
    /// With [`PutMode::Create`] the signature is written on that condition too, so that of two who write the same name one has
    /// written both, and one nothing. It may then lie there without its file if its writer is killed: such a name is not to be
    /// had any more until a gc removes the signature.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if it is there already, [`StoreError::Sign`], the store's own.
    pub(crate) async fn put_signed(
        &self,
        audience: &AudienceName,
        path: &Path,
        bytes: Vec<u8>,
        mode: PutMode,
    ) -> Result<(), StoreError> {
        if let Some(signature) = self.signature_of(path, &bytes)? {
            self.put_if(audience, &signature_path(path), signature, mode.clone()).await?;
        }
        self.put_if(audience, path, bytes, mode).await.map(|_| ())
    }

    /// Writes a file's signature again as it is, if it has one, so that it is as young as the file is about to be.
    pub(crate) async fn refresh_signature(
        &self,
        audience: &AudienceName,
        path: &Path,
    ) -> Result<(), StoreError> {
        let path = signature_path(path);
        let objects = self.objects(&path)?;
        match super::super::read_small(&*objects, &path, MAX_SIGNATURE_BYTES, "the signature").await {
            Ok((signature, _)) => self.put(audience, &path, signature, PutMode::Overwrite).await.map(|_| ()),
            Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
