//! Trust: the signatures that make a manifest or a delta acceptable. No I/O.
//!
//! Next to a signed file lies `{file}.minisig`, as the tool `minisign` writes it (prehashed, its
//! default). Its trusted comment is `rtad {path}`, with the file's path in the store, so that a
//! file which was signed for one path is refused at any other: another audience's manifest, or an
//! older one under a newer number.
//!
//! * The signature is written first: a reader that sees the file sees its signature.
//! * With public keys a file is verified before anything parses it (`read/signed.rs`); any one of
//!   them is enough, so that keys can be changed without a gap. Without any, nothing is verified
//!   and no signature is read.
//! * Signatures are made by the caller of the write side ([`crate::write::Sign`]).
//!
//! `CURRENT` is not signed: it changes under conditions that only the store can see, and names its
//! manifest by a digest. An intruder with write access can therefore choose among the generations
//! that were signed and have not expired, and leave out deltas; but add no device and change no
//! filter.

mod key;

use std::sync::Arc;

use minisign_verify::Signature;
use object_store::path::Path;

pub use key::{ACCEPTED_KEYS, PublicKey, PublicKeyError};

use super::layout::{delta_path, manifest_path};
use rtad_core::snapshot::{AudienceName, DeltaEntry};

/// Of a signature's file. One of ours has about 350.
pub const MAX_SIGNATURE_BYTES: u64 = 4096;

/// A file as it was read, with its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Those of its signature; `None` if it has none, or if no signature is required.
    pub signature: Option<Vec<u8>>,
}

/// The accepted signers. Cheap to clone; none by default: then no signature is
/// required.
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
        self.check(
            &manifest_path(audience, generation),
            &manifest.bytes,
            manifest.signature.as_deref(),
        )
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
    pub(crate) fn check(
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
                Err(minisign_verify::Error::UnexpectedAlgorithm) => {
                    refused = SignatureError::Legacy
                }
                Err(_) => refused = SignatureError::Invalid,
            }
        }
        Err(refused)
    }
}

/// Whether the signature, which is verified, was made for this path.
fn is_for(path: &Path, signature: &Signature) -> Result<(), SignatureError> {
    let (found, expected) = (signature.trusted_comment(), trusted_comment(path));
    if found == expected {
        return Ok(());
    }
    Err(SignatureError::Place { found: found.chars().take(200).collect(), expected })
}

/// The trusted comment of the signature of the file at `path`.
pub(crate) fn trusted_comment(path: &Path) -> String {
    format!("rtad {path}")
}

/// A signature that does not make its file acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is none.
    #[error(
        "is not signed, and public keys are configured: publish with `rtad-loader build --sign-key`"
    )]
    Missing,
    /// More than a signature has.
    #[error("its signature has more than {limit} bytes")]
    TooLarge {
        /// The limit.
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
    /// The file of another path.
    #[error("is signed as {found:?}, expected {expected:?}: it was put here from elsewhere")]
    Place {
        /// The trusted comment.
        found: String,
        /// The expected one.
        expected: String,
    },
}

#[cfg(test)]
mod tests;
