//! Keys that tests make, and sign manifests with.

use std::sync::Arc;

use minisign::{KeyPair, SecretKey, SecretKeyBox};
use rtad_store::PublicKey;
use rtad_store::write::Sign;

/// A key pair.
pub(crate) struct Key {
    pub(crate) public: PublicKey,
    secret: SecretKey,
}

impl Key {
    pub(crate) fn new() -> Arc<Self> {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        Arc::new(Self { public: pair.pk.to_base64().parse().unwrap(), secret: pair.sk })
    }

    /// The same one each time, for processes that have nothing else in common.
    pub(crate) fn fixed() -> Arc<Self> {
        let secret = SecretKeyBox::from(include_str!("../minisign/checked.key").to_owned());
        let public = PublicKey::all_of(include_str!("../minisign/checked.pub")).unwrap().remove(0);
        Arc::new(Self { public, secret: secret.into_unencrypted_secret_key().unwrap() })
    }

    /// The signature's file for bytes at this place in the store.
    pub(crate) fn signature(&self, bytes: &[u8], place: &str) -> Vec<u8> {
        self.sign(bytes, &format!("rtad {place}")).unwrap().into_bytes()
    }
}

impl Sign for Key {
    fn sign(
        &self,
        bytes: &[u8],
        trusted_comment: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let signed = minisign::sign(None, &self.secret, bytes, Some(trusted_comment), Some("a test"))?;
        Ok(signed.into_string())
    }
}
