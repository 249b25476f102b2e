//! Secret minisign key that signs records.
//!
//! Read from a file that `minisign -G` wrote. The password of a protected key comes from the
//! environment, because every process can read a command line. No message or `Debug` shows either.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use minisign::{SecretKey, SecretKeyBox};

use crate::command_error::CommandError;
use crate::exit::{CommandFailure, ExitStatus};
use parking_lot::RwLock;
use rtad_store::write::{Sign, check_signer};
use rtad_store::{PublicKey, Trust};

use crate::shown::shown;

/// Environment variable with the password of a protected key.
const PASSWORD: &str = "RTAD_SIGN_PASSWORD";
/// Largest key file that is read; a key file has 262 bytes.
const MAX_KEY_BYTES: u64 = 4096;
/// First characters of a protected key: its algorithm and `Sc`, for scrypt, in base64.
const PROTECTED: &str = "RWRTY";
/// First bytes of a key without a password: its algorithm, no derivation, BLAKE2b.
const UNPROTECTED: &[u8] = b"Ed\0\0B2";
/// Size of a decoded key, and of the checksum at its end.
const KEY_BYTES: usize = 158;
const CHECKSUM_BYTES: usize = 32;

/// An unusable secret key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SignError {
    #[error("--sign-key {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "--sign-key {path}: not a minisign secret key; create one with `minisign -G`, or with \
`minisign -G -W` for a key without a password"
    )]
    NotAKey { path: String },
    #[error(
        "--sign-key {path}: the key is protected by a password; set the environment variable \
         {PASSWORD}"
    )]
    NoPassword { path: String },
    #[error("--sign-key {path}: {PASSWORD} is not its password")]
    WrongPassword { path: String },
    #[error("--sign-key {path}: unlocking the key needs more memory or time than allowed")]
    TooExpensive { path: String },
}

impl CommandFailure for SignError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

/// A secret key and its file. Shared by all threads.
pub struct Signer {
    path: PathBuf,
    key: RwLock<SecretKey>,
}

impl Signer {
    /// Reads and unlocks the key. A protected key takes about a second and the memory its
    /// parameters name: 1 GiB by minisign's default.
    pub(crate) fn read(path: &Path) -> Result<Arc<Self>, SignError> {
        let shown = shown(&path.display().to_string()).to_owned();
        let mut text = String::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(MAX_KEY_BYTES).read_to_string(&mut text));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(SignError::NotAKey { path: shown });
            }
            Err(source) => {
                return Err(SignError::Read {
                    path: shown,
                    source,
                });
            }
        }

        let is_protected = text
            .lines()
            .nth(1)
            .is_some_and(|key| key.starts_with(PROTECTED));
        let boxed = SecretKeyBox::from(text);
        let key = match (is_protected, std::env::var(PASSWORD)) {
            (false, _) => unprotected(boxed).ok_or(SignError::NotAKey { path: shown })?,
            (true, Err(_)) => return Err(SignError::NoPassword { path: shown }),
            (true, Ok(password)) => {
                boxed
                    .into_secret_key(Some(password))
                    .map_err(|error| match error.kind() {
                        minisign::ErrorKind::Verify => SignError::WrongPassword { path: shown },
                        minisign::ErrorKind::KDF => SignError::TooExpensive { path: shown },
                        _ => SignError::NotAKey { path: shown },
                    })?
            }
        };

        Ok(Arc::new(Self {
            path: path.to_owned(),
            key: RwLock::new(key),
        }))
    }

    /// Rereads the file, and signs with its key from now on. Costs as much as the first reading. An
    /// error leaves the old key.
    ///
    /// # Errors
    ///
    /// If the key cannot be read, or if the public keys reject its signatures.
    pub fn reload(&self, trust: &Trust) -> Result<(), CommandError> {
        let read = Arc::into_inner(Self::read(&self.path)?).expect("nobody else has it");
        check_signer(&read, trust)?;
        *self.key.write() = read.key.into_inner();
        Ok(())
    }
}

/// Decodes a key without a password. The reference implementation leaves the checksum of such a
/// key empty, which the library rejects. The key then counts as valid if its own public half
/// verifies its signature.
fn unprotected(key: SecretKeyBox) -> Option<SecretKey> {
    if let Ok(key) = key.clone().into_unencrypted_secret_key() {
        return Some(key);
    }
    let text = key.into_string();
    let bytes = BASE64_STANDARD
        .decode(text.lines().nth(1)?.trim_end())
        .ok()?;
    let is_whole = bytes.len() == KEY_BYTES && bytes.starts_with(UNPROTECTED);
    if !is_whole || bytes[KEY_BYTES - CHECKSUM_BYTES..] != [0; CHECKSUM_BYTES] {
        return None;
    }
    let key = SecretKey::from_bytes(&bytes).ok()?;
    let public = minisign::PublicKey::from_secret_key(&key).ok()?;
    let signature = minisign::sign(None, &key, &b"a test"[..], Some(""), Some("")).ok()?;
    minisign::verify(
        &public,
        &signature,
        std::io::Cursor::new(b"a test"),
        true,
        false,
        false,
    )
    .ok()?;

    Some(key)
}

impl Sign for Signer {
    fn sign(
        &self,
        bytes: &[u8],
        trusted_comment: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let comment = concat!("signature by rtad ", env!("CARGO_PKG_VERSION"));
        Ok(minisign::sign(
            None,
            &self.key.read(),
            bytes,
            Some(trusted_comment),
            Some(comment),
        )?
        .into_string())
    }

    fn public_key(&self) -> PublicKey {
        minisign::PublicKey::from_secret_key(&self.key.read())
            .expect("a secret key ends with its public half")
            .to_base64()
            .parse()
            .expect("minisign writes a public key")
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}
