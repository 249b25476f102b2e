//! Signed files: reading a file with its signature, and verifying it.

use object_store::GetOptions;
use object_store::path::Path;

use super::small::read_small_by;
use super::store::Store;
use crate::error::StoreError;
use crate::layout::signature_path;
use crate::trust::{MAX_SIGNATURE_BYTES, SignatureError, Signed};

impl Store {
    /// Reads a file of at most `limit` bytes, and verifies its signature if there are public keys.
    /// Messages name it `what`.
    ///
    /// # Errors
    ///
    /// A store error, [`StoreError::Manifest`] if it is too large, [`StoreError::Signature`].
    pub(crate) async fn read_signed(
        &self,
        path: &Path,
        limit: u64,
        what: &'static str,
    ) -> Result<Signed, StoreError> {
        let objects = self.objects(path).await?;
        let options = GetOptions::default();
        let bytes = read_small_by(&*objects, path, limit, what, options, self.stall_timeout)
            .await?
            .0;
        self.with_signature(path, bytes).await
    }

    /// Adds the verified signature to a file from `path`, if there are public keys.
    ///
    /// # Errors
    ///
    /// A store error, [`StoreError::Signature`].
    pub(crate) async fn with_signature(
        &self,
        path: &Path,
        bytes: Vec<u8>,
    ) -> Result<Signed, StoreError> {
        if !self.trust.is_required() {
            return Ok(Signed {
                bytes,
                signature: None,
            });
        }
        let objects = self.objects(path).await?;
        let refuse = |source| StoreError::Signature {
            path: path.to_string(),
            source,
        };
        let (at, options) = (signature_path(path), GetOptions::default());
        let limit = MAX_SIGNATURE_BYTES;
        let read = read_small_by(
            &*objects,
            &at,
            limit,
            "the signature",
            options,
            self.stall_timeout,
        )
        .await;
        let signature = match read {
            Ok((signature, _)) => Some(signature),
            Err(StoreError::NotFound { .. }) => None,
            Err(StoreError::Manifest { .. }) => {
                return Err(refuse(SignatureError::TooLarge { limit }));
            }
            Err(error) => return Err(error),
        };
        self.trust
            .check(path, &bytes, signature.as_deref())
            .map_err(refuse)?;
        Ok(Signed { bytes, signature })
    }
}
