//! Signatures: who may say what pods serve.
//!
//! Next to a file that is signed lies `{file}.minisig`, as the tool `minisign` writes it (prehashed, its default). Its trusted
//! comment is `rtad {path}`, with the file's place in the store, so that a file which was signed for one place is refused in any
//! other: another audience's manifest, or an older one under a newer number.
//!
//! * The signature is written first. Whoever sees the file sees its signature.
//! * With public keys a file is verified before anything parses it ([`Store::read_signed`]); any one of them is enough, so that
//!   keys can be changed without a gap. Without any, nothing is verified and no signature is read.
//! * How a signature is made is its caller's ([`Sign`]): no secret key is known here.
//!
//! `CURRENT` is not signed: it changes under conditions that only the store can see, and names its manifest by a digest. So
//! whoever can write to the store can choose among the generations that were signed and have not expired, and leave out deltas; but
//! add no device and change no filter.
//!
//! [`Store::read_signed`]: super::Store::read_signed

mod io;
mod key;

use std::sync::Arc;

use minisign_verify::Signature;
use object_store::path::Path;

pub use io::Signed;
pub use key::{ACCEPTED_KEYS, PublicKey, PublicKeyError};

use super::deltas::delta_path;
use super::manifest_path;
use rtad_core::snapshot::{AudienceName, DeltaEntry};

/// Of a signature's file. One of ours has about 350.
pub const MAX_SIGNATURE_BYTES: u64 = 4096;

/// Makes signatures. The secret stays with whoever implements it.
pub trait Sign: Send + Sync {
    /// The text of the `.minisig` file for these bytes: a prehashed signature with this trusted comment.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from signing.
    fn sign(
        &self,
        bytes: &[u8],
        trusted_comment: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>>;
}

/// Whose signatures count. Cheap to clone; by default nobody's, and then nothing needs to be signed.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<[PublicKey]>);

impl Trust {
    /// Files must be signed by any one of these; with none, nothing needs to be.
    pub fn new(keys: impl Into<Arc<[PublicKey]>>) -> Self {
        Self(keys.into())
    }

    /// Whether files must be signed.
    pub fn is_required(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether a manifest may be parsed. Hashes the bytes, and takes some 0.1 ms besides.
    ///
    /// # Errors
    ///
    /// [`SignatureError`], unless nothing needs to be signed.
    pub fn check_manifest(
        &self,
        audience: &AudienceName,
        generation: u64,
        manifest: &Signed,
    ) -> Result<(), SignatureError> {
        self.check(&manifest_path(audience, generation), &manifest.bytes, manifest.signature.as_deref())
    }

    /// The same of a delta.
    ///
    /// # Errors
    ///
    /// [`SignatureError`], unless nothing needs to be signed.
    pub fn check_delta(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
        delta: &Signed,
    ) -> Result<(), SignatureError> {
        self.check(&delta_path(audience, entry), &delta.bytes, delta.signature.as_deref())
    }

    /// Whether what was read at `path` may be parsed.
    pub(super) fn check(
        &self,
        path: &Path,
        bytes: &[u8],
        signature: Option<&[u8]>,
    ) -> Result<(), SignatureError> {
        if !self.is_required() {
            return Ok(());
        }
        let text = signature.ok_or(SignatureError::Missing)?;
        let text = str::from_utf8(text).map_err(|_| SignatureError::Malformed)?;
        let signature = Signature::decode(text).map_err(|_| SignatureError::Malformed)?;
        let mut refused = SignatureError::UnknownKey;
        for key in self.0.iter() {
            match key.verify(bytes, &signature) {
                Ok(()) => return is_for(path, &signature),
                // Two keys may have one number: another's failure is not yet the last word.
                Err(minisign_verify::Error::UnexpectedKeyId) => {}
                Err(minisign_verify::Error::UnexpectedAlgorithm) => refused = SignatureError::Legacy,
                Err(_) => refused = SignatureError::Invalid,
            }
        }
        Err(refused)
    }
}

/// Whether the signature, which is verified, was made for this place.
fn is_for(path: &Path, signature: &Signature) -> Result<(), SignatureError> {
    let (found, expected) = (signature.trusted_comment(), trusted_comment(path));
    if found == expected {
        return Ok(());
    }
    Err(SignatureError::Place { found: found.chars().take(200).collect(), expected })
}

/// What the signature of the file at `path` says besides.
pub(super) fn trusted_comment(path: &Path) -> String {
    format!("rtad {path}")
}

/// Where the signature of the file at `path` lies.
pub(super) fn signature_path(path: &Path) -> Path {
    Path::from(format!("{path}.minisig"))
}

/// A signature that does not make its file acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is none.
    #[error("is not signed, and public keys are configured: publish with `rtad-loader build --sign-key`")]
    Missing,
    /// More than a signature has.
    #[error("its signature has more than {limit} bytes")]
    TooLarge {
        /// What is read at most.
        limit: u64,
    },
    /// Not what minisign writes.
    #[error("its signature is not one of minisign's")]
    Malformed,
    /// Signed as minisign did by default before version 0.10.
    #[error("its signature is of the old kind, without prehashing: sign it with a newer minisign")]
    Legacy,
    /// By somebody else.
    #[error("is signed by a key that is not among the public keys")]
    UnknownKey,
    /// The file, the signature or the trusted comment was changed.
    #[error("its signature is wrong: the file or its signature was changed")]
    Invalid,
    /// The file of another place.
    #[error("is signed as {found:?}, expected {expected:?}: it was put here from elsewhere")]
    Place {
        /// The trusted comment.
        found: String,
        /// What it should be.
        expected: String,
    },
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
