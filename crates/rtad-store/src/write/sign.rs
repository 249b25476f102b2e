//! Signatures: making them, through the caller's signer.

use object_store::path::Path;

use crate::error::StoreError;
use crate::trust::{Trust, trusted_comment};

/// A signer. The secret key stays with the implementation.
pub trait Sign: Send + Sync {
    /// The text of the `.minisig` file for these bytes: a prehashed signature with this trusted
    /// comment.
    ///
    /// # Errors
    ///
    /// The reason that nothing was signed.
    fn sign(
        &self,
        bytes: &[u8],
        trusted_comment: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>>;
}

/// Checks that the public keys, if there are any, accept the signer's signatures: before work is
/// begun that pods would refuse.
///
/// # Errors
///
/// [`StoreError::Signature`], or [`StoreError::Sign`].
pub fn check_signer(signer: &dyn Sign, trust: &Trust) -> Result<(), StoreError> {
    signature_of(signer, trust, &Path::from("a test of the key"), b"").map(drop)
}

/// The signature of a file that is about to be written, accepted by the public keys.
pub(super) fn signature_of(
    signer: &dyn Sign,
    trust: &Trust,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let signed = signer.sign(bytes, &trusted_comment(path));
    let signature =
        signed.map_err(|source| StoreError::Sign { path: path.to_string(), source })?.into_bytes();
    let refuse = |source| StoreError::Signature { path: path.to_string(), source };
    trust.check(path, bytes, Some(&signature)).map_err(refuse)?;
    Ok(signature)
}
