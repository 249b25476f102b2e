//! A `[[window]]` with a `backend`.

use rtad_redis::RedisConfig;

use super::{Reader, RemoteConfig, WindowTable, length};

/// A window in Redis: what Redis decides must not be configured here.
pub(super) fn remote(
    table: &WindowTable,
    is_followed: bool,
    reader: &mut Reader<'_>,
) -> Option<RemoteConfig> {
    let given = [
        ("capacity", table.capacity.is_some()),
        ("fpr", table.fpr.is_some()),
        ("when_full", table.when_full.is_some()),
        ("durability", table.durability.is_some()),
        ("sync_interval", table.sync_interval.is_some()),
        ("checkpoint_interval", table.checkpoint_interval.is_some()),
    ];
    for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
        reader.mistake(key, "none with backend: the server decides", "a value");
    }
    if table.count.is_some_and(|count| count > 1) {
        let expected = "1 with backend: a counter cannot tell a repeated request from an event";
        reader.mistake("count", expected, "more");
    }
    if is_followed {
        reader.mistake("backend", "none for a window that an [[audience]] follows", "a value");
    }
    let url = match (&table.backend, &table.backend_file) {
        (Some(url), None) => url.clone(),
        (None, Some(path)) => match std::fs::read_to_string(path) {
            Ok(text) => text.trim().to_owned(),
            Err(error) => {
                let found = format!("{}: {error}", path.display());
                reader.mistake("backend_file", "a readable file with a URL", &found);
                return None;
            }
        },
        _ => {
            reader.mistake("backend_file", "no backend beside it", "both");
            return None;
        }
    };
    let (name, length) = (reader.name(&table.name), length(table, reader));
    let mut redis = RedisConfig::new(url, name.as_ref()?.as_str());
    redis.ca_file.clone_from(&table.backend_ca_file);
    if let Some(namespace) = &table.namespace {
        redis.namespace.clone_from(namespace);
    }
    // Its message shows no password. Connecting is lazy: this only reads the URL.
    if let Err(error) = redis.validate() {
        reader.mistakes.push(format!("{}: backend: {error}", reader.table));
        return None;
    }
    Some(RemoteConfig { name: name?, length: length?, redis })
}
