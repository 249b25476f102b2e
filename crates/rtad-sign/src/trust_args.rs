//! `--public-key`: minisign keys that a store's manifests must be signed with.

use clap::Args;

use rtad_store::{PublicKey, Store};

/// `--public-key`, repeatable.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// Accept only manifests signed by this minisign key, or by a key of this file, as a pod with
    /// this key in its config does; repeatable, one valid signature is enough
    #[arg(long = "public-key", value_name = "KEY|FILE", value_parser = keys)]
    public_keys: Vec<PublicKeys>,
}

#[derive(Debug, Clone)]
struct PublicKeys(Vec<PublicKey>);

impl TrustArgs {
    pub(crate) const fn is_given(&self) -> bool {
        !self.public_keys.is_empty()
    }

    /// The store with these keys.
    pub fn applied_to(&self, store: Store) -> Store {
        let keys = self.public_keys.iter().flat_map(|PublicKeys(keys)| keys);
        store.with_public_keys(keys.cloned().collect::<Vec<_>>())
    }
}

/// Parses a key, or reads a file of keys.
fn keys(text: &str) -> Result<PublicKeys, String> {
    if let Ok(key) = text.parse() {
        return Ok(PublicKeys(vec![key]));
    }
    let file = std::fs::read_to_string(text)
        .map_err(|error| format!("accepted: a key or a file of keys: {error}"))?;
    PublicKey::all_of(&file).map(PublicKeys).map_err(|error| error.to_string())
}
