//! Signing keys for tests.

use std::sync::Arc;

use minisign::KeyPair;

use crate::trust::PublicKey;
use crate::write::Sign;

/// A key pair.
pub struct Key {
    pub(crate) public: PublicKey,
    pair: KeyPair,
}

impl Key {
    pub fn new() -> Arc<Self> {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let public = pair.pk.to_base64().parse().unwrap();
        Arc::new(Self { public, pair })
    }
}

impl Sign for Key {
    fn sign(
        &self,
        bytes: &[u8],
        trusted_comment: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let signed = minisign::sign(
            None,
            &self.pair.sk,
            bytes,
            Some(trusted_comment),
            Some("a test"),
        )?;
        Ok(signed.into_string())
    }

    fn public_key(&self) -> PublicKey {
        self.public.clone()
    }
}
