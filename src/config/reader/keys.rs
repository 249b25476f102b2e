//! Keys that the reader knows: the list behind `docs/reference/configuration.md`.

use std::cell::RefCell;

/// A key, listed when the reader first asks for it.
#[derive(Debug, Clone)]
pub(in crate::config) struct Key {
    /// Its table, without indices: `platform[].request`.
    pub(in crate::config) table: String,
    /// Its name within the table.
    pub(in crate::config) name: String,
    /// The accepted values, as messages name them.
    pub(in crate::config) accepted: String,
    /// Whether the table is rejected without it.
    pub(in crate::config) is_required: bool,
    /// The environment variable that takes precedence over it.
    pub(in crate::config) variable: Option<String>,
}

thread_local! {
    static KEYS: RefCell<Vec<Key>> = const { RefCell::new(Vec::new()) };
}

/// Lists a key of the table at `path`.
pub(super) fn add(path: &str, name: &str, accepted: &str, has_variable: bool) {
    let table = without_indices(path);
    KEYS.with_borrow_mut(|keys| match find(keys, &table, name) {
        // Another body format reads the key only to know it.
        Some(known) if known.accepted.is_empty() => known.accepted = accepted.to_owned(),
        Some(_) => {}
        None => keys.push(Key {
            name: name.to_owned(),
            accepted: accepted.to_owned(),
            is_required: false,
            variable: has_variable.then(|| super::variable(&table, name)).flatten(),
            table,
        }),
    });
}

/// Marks a listed key as required.
pub(super) fn set_required(path: &str, name: &str) {
    let table = without_indices(path);
    KEYS.with_borrow_mut(|keys| {
        find(keys, &table, name).expect("a key is read first").is_required = true;
    });
}

/// Every key that this thread has read, in the order of the first reading.
pub(in crate::config) fn all() -> Vec<Key> {
    KEYS.with_borrow(Clone::clone)
}

fn find<'a>(keys: &'a mut [Key], table: &str, name: &str) -> Option<&'a mut Key> {
    keys.iter_mut().find(|key| key.table == table && key.name == name)
}

/// `platform[2].request` as `platform[].request`.
fn without_indices(path: &str) -> String {
    path.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
