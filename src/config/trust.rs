//! `public_keys` and `public_keys_file` of `[store]`: the keys that sign manifests.
//!
//! No signature is verified without keys. A file without a key is therefore a mistake;
//! only `public_keys = []` disables verification.

use rtad_config::Document;
use rtad_config::values::hidden;
use rtad_store::{ACCEPTED_KEYS, PublicKey};
use serde::{Deserialize, Deserializer};

/// A key of the list. Messages do not show a wrong one: it may be the secret key.
struct ListedKey(PublicKey);

impl<'de> Deserialize<'de> for ListedKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        hidden(deserializer, ACCEPTED_KEYS, |text| {
            text.parse().ok().map(Self)
        })
    }
}

pub fn public_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PublicKey>, D::Error> {
    let keys = Vec::<ListedKey>::deserialize(deserializer)?;
    Ok(keys.into_iter().map(|ListedKey(key)| key).collect())
}

/// Adds the keys of the file, and removes duplicates.
pub fn add_keys_of_file(
    d: &mut Document<'_>,
    public_keys: &mut Vec<PublicKey>,
    file: Option<String>,
) {
    const FILE: &str = "store.public_keys_file";

    if let Some(file) = file
        && let Some(contents) = d.read_file(FILE, &file)
    {
        match PublicKey::all_of(&String::from_utf8_lossy(&contents)) {
            Ok(keys) => public_keys.extend(keys),
            Err(_) => {
                let path = d.beside(file).display().to_string();
                let found = format!("is {path:?}: has no key, or a line that is not a key");
                let accepted = format!("a file with one key per line, each {ACCEPTED_KEYS}");
                d.mistake(FILE, &found, &accepted);
            }
        }
    }

    let mut unique: Vec<PublicKey> = Vec::with_capacity(public_keys.len());
    for key in std::mem::take(public_keys) {
        if !unique.contains(&key) {
            unique.push(key);
        }
    }
    *public_keys = unique;
}

#[cfg(test)]
mod tests;
