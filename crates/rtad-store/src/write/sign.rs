//! Signing, through the caller's signer.

use object_store::path::Path;

use crate::error::StoreError;
use crate::trust::{PublicKey, Trust, trusted_comment};

/// A signer. The secret key stays in the implementation.
pub trait Sign: Send + Sync {
    /// The text that `minisign` writes for these bytes, prehashed, with this trusted comment.
    ///
    /// # Errors
    ///
    /// The reason that nothing was signed.
    fn sign(
        &self,
        bytes: &[u8],
        trusted_comment: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>>;

    /// The public half of the key.
    fn public_key(&self) -> PublicKey;
}

/// Checks that the public keys, if any, accept the signer, before any work is done.
///
/// # Errors
///
/// [`StoreError::Signature`], or [`StoreError::Sign`].
pub fn check_signer(signer: &dyn Sign, trust: &Trust) -> Result<(), StoreError> {
    signature_of(signer, trust, &Path::from("a test of the key"), b"").map(drop)
}

/// The signature of a file, checked against the public keys.
pub fn signature_of(
    signer: &dyn Sign,
    trust: &Trust,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let signed = signer.sign(bytes, &trusted_comment(path));
    let signature = signed
        .map_err(|source| StoreError::Sign {
            path: path.to_string(),
            source,
        })?
        .into_bytes();
    let checked = trust.check(path, bytes, Some(&signature));
    checked.map_err(|source| StoreError::Signature {
        path: path.to_string(),
        source,
    })?;
    Ok(signature)
}
