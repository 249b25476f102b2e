//! Trust: verification of the signatures of manifests and deltas. No I/O.
//!
//! The signature of a file is `{file}.minisig`, as the tool `minisign` writes it (prehashed, its
//! default). Its trusted comment is `rtad {path}`, with the file's path in the store. So a file
//! signed for one path is refused at any other: another audience's manifest, or an older one under
//! a newer number.
//!
//! * The signature is written first: a reader that sees the file sees its signature.
//! * A store with public keys verifies a file before it is parsed (`read/signed.rs`). Any one key
//!   is enough, so keys can be rotated. A store without keys reads no signature.
//! * Signatures are made by the caller of the write side ([`crate::write::Sign`]).
//!
//! `CURRENT` is not signed: it is replaced by conditional puts, and names its manifest by a digest.
//! An intruder with write access can therefore choose among signed, unexpired generations and leave
//! out deltas, but cannot add a device or change a filter.

mod key;

use std::sync::Arc;

use minisign_verify::Signature;
use object_store::path::Path;

pub use key::{ACCEPTED_KEYS, PublicKey, PublicKeyError};

use super::layout::{delta_path, manifest_path};
use rtad_core::snapshot::{AudienceName, DeltaEntry};

/// Largest signature file; rtad's have about 350 bytes.
pub const MAX_SIGNATURE_BYTES: u64 = 4096;

/// A file as it was read, with its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// The signature's bytes; `None` if there is none, or none is required.
    pub signature: Option<Vec<u8>>,
}

/// The accepted public keys. Cheap to clone. The default has no keys and requires no signature.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    keys: Arc<[PublicKey]>,
    /// Whether the only key is the signer's own, because no public key was named.
    is_signers: bool,
}

impl Trust {
    /// Requires signatures by any one of these keys; none if there are no keys.
    pub fn new(keys: impl Into<Arc<[PublicKey]>>) -> Self {
        Self {
            keys: keys.into(),
            is_signers: false,
        }
    }

    /// Requires signatures by the writer's own key: a signer must not sign the content of others.
    pub fn of_signer(key: PublicKey) -> Self {
        Self {
            keys: [key].into(),
            is_signers: true,
        }
    }

    /// Whether files must be signed.
    pub fn is_required(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Verifies a manifest's signature. Costs a hash of the bytes and about 0.1 ms.
    ///
    /// # Errors
    ///
    /// [`SignatureError`], unless no signature is required.
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

    /// Verifies a delta's signature.
    ///
    /// # Errors
    ///
    /// [`SignatureError`], unless no signature is required.
    pub fn check_delta(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
        delta: &Signed,
    ) -> Result<(), SignatureError> {
        self.check(
            &delta_path(audience, entry),
            &delta.bytes,
            delta.signature.as_deref(),
        )
    }

    /// Verifies the signature of a file at `path`.
    pub(crate) fn check(
        &self,
        path: &Path,
        bytes: &[u8],
        signature: Option<&[u8]>,
    ) -> Result<(), SignatureError> {
        if !self.is_required() {
            return Ok(());
        }
        self.verify(path, bytes, signature)
            .map_err(|error| match error {
                SignatureError::Missing | SignatureError::UnknownKey if self.is_signers => {
                    SignatureError::NotBySigner
                }
                error => error,
            })
    }

    fn verify(
        &self,
        path: &Path,
        bytes: &[u8],
        signature: Option<&[u8]>,
    ) -> Result<(), SignatureError> {
        let text = signature.ok_or(SignatureError::Missing)?;
        let text = str::from_utf8(text).map_err(|_| SignatureError::Malformed)?;
        let signature = Signature::decode(text).map_err(|_| SignatureError::Malformed)?;
        let mut refused = SignatureError::UnknownKey;
        for key in self.keys.iter() {
            match key.verify(bytes, &signature) {
                Ok(()) => return check_path(path, &signature),
                // Key ids may collide: another key may still verify it.
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

/// Checks that a verified signature was made for this path.
fn check_path(path: &Path, signature: &Signature) -> Result<(), SignatureError> {
    let (found, expected) = (signature.trusted_comment(), trusted_comment(path));
    if found == expected {
        return Ok(());
    }
    Err(SignatureError::WrongPath {
        found: found.chars().take(200).collect(),
        expected,
    })
}

/// The trusted comment of the signature of the file at `path`.
pub fn trusted_comment(path: &Path) -> String {
    format!("rtad {path}")
}

/// A missing or refused signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is no signature.
    #[error(
        "is not signed, and public keys are configured: publish with `rtad-loader build --sign-key`"
    )]
    Missing,
    /// The signature's file is too large.
    #[error("its signature has more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The file is not a minisign signature.
    #[error("its signature is malformed: expected a minisign signature")]
    Malformed,
    /// Signed as minisign did by default before version 0.10.
    #[error("its signature is of the old kind, without prehashing: sign it with a newer minisign")]
    Legacy,
    /// The signer's key is not accepted.
    #[error("is signed by a key that is not among the public keys")]
    UnknownKey,
    /// The signer's own key is the only one accepted, and has not signed it.
    #[error(
        "is not signed by the key of --sign-key, which must not sign it unread: name the keys that \
         may have signed it with --public-key; `build --allow-unsigned` signs it as it is"
    )]
    NotBySigner,
    /// The file, the signature or the trusted comment was changed.
    #[error("its signature is wrong: the file or its signature was changed")]
    Invalid,
    /// The signature is for another path.
    #[error("is signed as {found:?}, expected {expected:?}: it was moved here from another path")]
    WrongPath {
        /// The trusted comment.
        found: String,
        /// The expected one.
        expected: String,
    },
}

#[cfg(test)]
mod tests;
