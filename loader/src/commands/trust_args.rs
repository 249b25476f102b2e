//! Whose signatures count, for a command that reads a store.

use clap::Args;

use rtad::store::{PublicKey, Store};

/// `--public-key`, as often as there are keys.
#[derive(Debug, Args)]
pub(super) struct TrustArgs {
    /// Believe only what is signed by this minisign key, or a key of this file, as a pod does whose config names it; may be
    /// given several times, any one is enough
    #[arg(long = "public-key", value_name = "KEY|FILE", value_parser = keys)]
    public_keys: Vec<Keys>,
}

/// Of one `--public-key`.
#[derive(Debug, Clone)]
struct Keys(Vec<PublicKey>);

impl TrustArgs {
    /// Whether any key was given.
    pub(super) const fn is_given(&self) -> bool {
        !self.public_keys.is_empty()
    }

    /// The store, with these keys.
    pub(super) fn applied_to(&self, store: Store) -> Store {
        let keys = self.public_keys.iter().flat_map(|Keys(keys)| keys);
        store.with_public_keys(keys.cloned().collect::<Vec<_>>())
    }
}

/// What is no key is taken for a path.
fn keys(text: &str) -> Result<Keys, String> {
    if let Ok(key) = text.parse() {
        return Ok(Keys(vec![key]));
    }
    let file = std::fs::read_to_string(text).map_err(|error| format!("neither a key nor a file: {error}"))?;
    PublicKey::all_of(&file).map(Keys).map_err(|error| error.to_string())
}
