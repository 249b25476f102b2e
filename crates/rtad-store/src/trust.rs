//! Trust: verification of the signatures of records. No I/O.
//!
//! The signature of a record's content follows it in the same object, as the tool `minisign` writes
//! it (prehashed, its default). Its trusted comment is `rtad {path}`, with the record's path in the
//! store. So a record signed for one path is refused at any other: another audience, or an older
//! state under a newer number.
//!
//! * A reader with public keys takes only records that one of them has signed; one is enough, so
//!   keys can be rotated. A reader without keys reads no signature.
//! * All other files are named by a record, or by each other, by SHA-256.
//! * Signatures are made by the caller of the write side ([`crate::write::Sign`]).
//!
//! An intruder with write access to the store can therefore change nothing that a pod takes, but
//! the audiences of event windows, whose segments and tables are not signed. It can withhold what
//! is new, and stop writers, by a record of its own.

mod key;

use std::sync::Arc;

use minisign_verify::Signature;
use object_store::path::Path;

pub use key::{ACCEPTED_KEYS, PublicKey, PublicKeyError};

/// Largest signature file; rtad's have about 350 bytes.
pub const MAX_SIGNATURE_BYTES: u64 = 4096;

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

    /// Verifies the signature of a record at `path`. Costs a hash of the bytes and about 0.1 ms.
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
        let bytes_of_text = signature.ok_or(SignatureError::Missing)?;
        let text = str::from_utf8(bytes_of_text).map_err(|_| SignatureError::Malformed)?;
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
    let found = signature.trusted_comment();
    let expected = trusted_comment(path);
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
        "is not signed, and public keys are configured: whoever writes to a signed audience needs \
         --sign-key; to begin signing, publish to a new audience"
    )]
    Missing,
    /// The text after the record is no minisign signature.
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
        "is not signed by the key of --sign-key, which must not sign the content of others: name \
         the keys that may have signed it with --public-key; to begin signing, publish to a new \
         audience"
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
