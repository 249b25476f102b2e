//! `public_keys` and `public_keys_file` of `[store]`: the keys that sign manifests.
//!
//! Without keys, signatures are not verified. So a file or variable without a key is a mistake;
//! only `public_keys = []` disables verification.

use super::reader::{Document, Section};
use rtad_store::{ACCEPTED_KEYS, PublicKey};

/// The keys of the list and the file, without duplicates.
pub(super) fn read_public_keys(d: &mut Document<'_>, section: &mut Section) -> Vec<PublicKey> {
    let accepted = format!("a list, each {ACCEPTED_KEYS}");
    let mut keys = section.read_list_unshown(d, "public_keys", &accepted, |text| text.parse().ok());
    let line = section.line_of("public_keys_file");
    let file = section.read(d, "public_keys_file", "a path", |text| Some(text.to_owned()));
    if let Some(file) = file {
        let path = d.beside(&file);
        let text = std::fs::read_to_string(&path).inspect(|text| d.saw(text.as_bytes()));
        let found = match text.map(|text| PublicKey::all_of(&text)) {
            Ok(Ok(more)) => {
                keys.extend(more);
                None
            }
            Ok(Err(_)) => Some("has no key, or a line that is not a key".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(found) = found {
            let found = format!("is {:?}: {found}", path.display().to_string());
            let accepted = format!("a file with one key per line, each {ACCEPTED_KEYS}");
            d.mistake(line, "store.public_keys_file", &found, &accepted);
        }
    }
    let mut unique: Vec<PublicKey> = Vec::with_capacity(keys.len());
    for key in keys {
        if !unique.contains(&key) {
            unique.push(key);
        }
    }
    unique
}

#[cfg(test)]
mod tests;
