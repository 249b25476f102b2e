//! Changed keys of a configuration, for the log line of a reload. Values are not named.

use toml::{Table, Value};

use super::Config;

/// Stands for changes that the keys do not show: secrets, and files that keys name.
const CONTENTS: &str = "contents of secrets or files";

impl Config {
    /// The keys that differ from `other`, such as `strategy.new-users.exclude`.
    pub fn changed_keys(&self, other: &Self) -> Vec<String> {
        let table = |config: &Self| Table::try_from(config).expect("plain values serialize");
        let mut changed = Vec::new();
        compare_tables("", &table(self), &table(other), &mut changed);
        if changed.is_empty() && self.fingerprint != other.fingerprint {
            changed.push(CONTENTS.to_owned());
        }
        changed
    }
}

fn compare_tables(prefix: &str, new: &Table, old: &Table, changed: &mut Vec<String>) {
    let mut keys: Vec<&String> = new.keys().chain(old.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let path = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        match (new.get(key), old.get(key)) {
            (Some(new), Some(old)) if new == old => {}
            (Some(Value::Table(new)), Some(Value::Table(old))) => {
                compare_tables(&path, new, old, changed);
            }
            (new, old) => {
                match (
                    new.map_or(Some(Table::new()), named),
                    old.map_or(Some(Table::new()), named),
                ) {
                    (Some(new), Some(old)) => compare_tables(&path, &new, &old, changed),
                    _ => changed.push(path),
                }
            }
        }
    }
}

/// A list of tables by their `name`; `None` for another value.
fn named(value: &Value) -> Option<Table> {
    let tables = value.as_array()?.iter();
    let named = tables.map(|table| Some((table.get("name")?.as_str()?.to_owned(), table.clone())));
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_keys_are_named_without_values() {
        let config = |text: &str| toml::from_str::<Config>(text).unwrap();
        let old = config(
            "[store]\nurl = \"./a\"\n[[audience]]\nname = \"a\"\n[[audience]]\nname = \"b\"\n\
             [[strategy]]\nname = \"s\"\nexclude = [\"a\"]",
        );
        let mut new = config(
            "[store]\nurl = \"./a\"\npoll_interval = \"1m\"\n[[audience]]\nname = \"b\"\n\
             max_age = \"1d\"\n[[audience]]\nname = \"c\"\n\
             [[strategy]]\nname = \"s\"\nexclude = [\"b\"]",
        );
        let expected = [
            "audience.a",
            "audience.b.max_age",
            "audience.c",
            "store.poll_interval",
            "strategy.s.exclude",
        ];
        assert_eq!(new.changed_keys(&old), expected);
        assert!(new.changed_keys(&new).is_empty());
        let same = new.clone();
        new.fingerprint = 1;
        assert_eq!(new.changed_keys(&same), [CONTENTS]);
    }
}
