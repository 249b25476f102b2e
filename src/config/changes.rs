//! Changed and removed keys of a configuration, for log lines of a reload. Values are not named.

use toml::{Table, Value};

use super::{Config, PlatformConfig, Secret, SignatureConfig};

/// Stands for changes that the keys do not show: secrets, and files that keys name.
const CONTENTS: &str = "contents of secrets or files";

/// A difference between two configs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key with names of entries, such as `cap.daily.period`; an entry alone if only
    /// one of the configs has it.
    pub path: String,
    /// The key without them: `cap.period`.
    pub key: String,
    /// The names: `new-users`.
    pub names: Vec<String>,
}

impl Config {
    /// The keys that differ from `other`, such as `strategy.new-users.exclude`.
    pub fn changed_keys(&self, other: &Self) -> Vec<String> {
        let mut changed = Vec::new();
        for difference in differences(&self.to_table(), &other.to_table()) {
            changed.push(difference.path);
        }
        if changed.is_empty() && self.fingerprint != other.fingerprint {
            changed.push(CONTENTS.to_owned());
        }
        changed
    }

    /// The config as a table, with defaults and without secrets.
    pub fn to_table(&self) -> Table {
        Table::try_from(self).expect("plain values serialize")
    }

    /// The parts of the `old` config that this one lacks as soon as it is served, such as
    /// `strategy.new-users` or `strategy.new-users.exclude: 1 of 2 entries`. A removed secret is
    /// counted, whether or not another one replaces it; so is a path, a mapping of a strategy id, and
    /// a stricter mode of signatures.
    pub fn removals(&self, old: &Self) -> Vec<String> {
        let mut removals = Vec::new();
        add_removals("", &self.to_table(), &old.to_table(), &mut removals);
        let awaits_restart = self.needs_restart(old);
        removals.retain(|removal| {
            let mut keys = awaits_restart.iter();
            removal.starts_with("server.api") || !keys.any(|key| removal.starts_with(key))
        });

        let tokens = (&self.server.api.tokens, &old.server.api.tokens);
        add_secrets("server.api.token_files", tokens.0, tokens.1, &mut removals);
        for platform in &old.platforms {
            let mut served = self.platforms.iter();
            if let Some(new) = served.find(|served| served.name == platform.name) {
                add_platform(new, platform, &mut removals);
            }
        }
        removals
    }
}

/// Values in whose place another one is served, and secrets.
fn add_platform(new: &PlatformConfig, old: &PlatformConfig, removals: &mut Vec<String>) {
    let table = format!("platform.{}", old.name);
    if new.path != old.path {
        removals.push(format!("{table}.path"));
    }

    for (id, strategy) in &old.strategies {
        let found = new.strategies.get(id);
        if found.is_some_and(|found| found != strategy) {
            removals.push(format!("{table}.strategies.{id}"));
        }
    }

    let headers = format!("{table}.headers");
    add_secrets(&headers, &new.secrets(), &old.secrets(), removals);

    if let (Some(new), Some(old)) = (&new.signature, &old.signature) {
        if new.mode > old.mode {
            removals.push(format!("{table}.signature.mode"));
        }
        let key = format!("{table}.signature.secrets");
        add_secrets(&key, &secrets_of(new), &secrets_of(old), removals);
    }
}

fn secrets_of(signature: &SignatureConfig) -> Vec<Secret> {
    let secrets = signature.secrets.iter();
    secrets.map(|secret| secret.secret.clone()).collect()
}

fn add_removals(prefix: &str, new: &Table, old: &Table, removals: &mut Vec<String>) {
    for (key, old) in old {
        let path = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        let Some(new) = new.get(key) else {
            removals.push(path);
            continue;
        };

        match (new, old) {
            (Value::Table(new), Value::Table(old)) => add_removals(&path, new, old, removals),
            (Value::Array(new_list), Value::Array(old_list)) => match (named(new), named(old)) {
                (Some(new), Some(old)) => add_removals(&path, &new, &old, removals),
                _ => {
                    let missing = old_list.iter().filter(|entry| !new_list.contains(entry));
                    add_count(&path, missing.count(), old_list.len(), "entries", removals);
                }
            },
            _ => {}
        }
    }
}

fn add_secrets(key: &str, new: &[Secret], old: &[Secret], removals: &mut Vec<String>) {
    let missing = old.iter().filter(|secret| !new.contains(secret)).count();
    add_count(key, missing, old.len(), "secrets", removals);
}

fn add_count(key: &str, missing: usize, total: usize, noun: &str, removals: &mut Vec<String>) {
    if missing > 0 {
        removals.push(format!("{key}: {missing} of {total} {noun}"));
    }
}

/// The differences between two configs, which may be of several versions of rtad.
pub fn differences(new: &Table, old: &Table) -> Vec<Difference> {
    let root = Difference {
        path: String::new(),
        key: String::new(),
        names: Vec::new(),
    };
    let mut found = Vec::new();
    add_differences(&root, false, new, old, &mut found);
    found
}

/// Adds the differences between two tables at a place; `is_list` if their keys are names.
fn add_differences(
    at: &Difference,
    is_list: bool,
    new: &Table,
    old: &Table,
    found: &mut Vec<Difference>,
) {
    let mut keys: Vec<&String> = new.keys().chain(old.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let mut inner = at.clone();
        push_part(&mut inner.path, key);
        if is_list {
            inner.names.push(key.clone());
        } else {
            push_part(&mut inner.key, key);
        }

        match (new.get(key), old.get(key)) {
            (Some(new), Some(old)) if new == old => {}
            (Some(Value::Table(new)), Some(Value::Table(old))) => {
                add_differences(&inner, false, new, old, found);
            }
            (new, old) => match (named_or_none(new), named_or_none(old)) {
                (Some(new), Some(old)) => add_differences(&inner, true, &new, &old, found),
                _ => found.push(inner),
            },
        }
    }
}

fn push_part(path: &mut String, part: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(part);
}

/// [`named`], with no table for a missing value.
fn named_or_none(value: Option<&Value>) -> Option<Table> {
    match value {
        Some(value) => named(value),
        None => Some(Table::new()),
    }
}

/// A list of tables by their `name`; `None` for another value.
fn named(value: &Value) -> Option<Table> {
    let mut named = Table::new();
    for table in value.as_array()? {
        let name = table.get("name")?.as_str()?;
        named.insert(name.to_owned(), table.clone());
    }
    Some(named)
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

    #[test]
    fn removals_are_what_a_reload_takes_away() {
        let config = |text: &str| toml::from_str::<Config>(text).unwrap();
        let mut old = config(
            "[server]\nwatch_config = \"1m\"\n[server.api]\ntoken_files = [\"a\", \"b\"]\n\
             [[audience]]\nname = \"a\"\n[[audience]]\nname = \"b\"\n\
             [[strategy]]\nname = \"s\"\nexclude = [\"a\", \"b\"]\nwhen = { os = \"ios\" }\n\
             cap = \"c\"\n[[cap]]\nname = \"c\"\nlimit = 10\nperiod = \"day\"\n\
             [[strategy]]\nname = \"t\"\nexclude = [\"a\"]\n\
             [[platform]]\nkind = \"tencent\"\nname = \"p\"\npath = \"/p\"\n\
             headers = [{ name = \"X-Key\", value = \"one\" }]\nstrategies = { A = \"s\", B = \"t\" }",
        );
        old.platforms[0].headers[0].secret = Secret::new("one");
        old.server.api.tokens = vec![Secret::new("a"), Secret::new("b")];
        let mut new = config(
            "[server.api]\ntoken_files = [\"a\", \"c\"]\n[[audience]]\nname = \"b\"\n\
             [[strategy]]\nname = \"s\"\nexclude = [\"b\"]\n\
             [[platform]]\nkind = \"tencent\"\nname = \"p\"\npath = \"/p\"\n\
             headers = [{ name = \"X-Key\", value = \"two\" }]\nstrategies = { A = \"s\" }",
        );
        new.platforms[0].headers[0].secret = Secret::new("two");
        new.server.api.tokens = vec![Secret::new("a"), Secret::new("c")];
        let expected = [
            "audience.a",
            "cap.c",
            "platform.p.strategies.B",
            "server.api.token_files: 1 of 2 entries",
            "strategy.s.cap",
            "strategy.s.exclude: 1 of 2 entries",
            "strategy.s.when",
            "strategy.t",
            "server.api.token_files: 1 of 2 secrets",
            "platform.p.headers: 1 of 1 secrets",
        ];
        assert_eq!(new.removals(&old), expected);
        assert_eq!(old.removals(&old), [""; 0]);
        let none = config("");
        assert!(none.removals(&old).contains(&"server.api".to_owned()));
    }

    #[test]
    fn values_that_take_the_place_of_others_are_removals() {
        let config = |path: &str, strategies: &str, mode: &str| {
            let text = format!(
                "[[platform]]\nkind = \"custom\"\nname = \"p\"\npath = \"{path}\"\n\
                 strategies = {{ A = \"s\", B = \"{strategies}\" }}\n\
                 [platform.signature]\nmode = \"{mode}\"\nalgorithm = \"md5\"\n\
                 template = \"{{secret}}\"\nin = \"query:sign\"\n\
                 secrets = [{{ value = \"one\" }}, {{ value = \"two\" }}]\n"
            );
            toml::from_str::<Config>(&text).unwrap()
        };
        let with_secrets = |mut config: Config, secrets: [&str; 2]| {
            let signature = config.platforms[0].signature.as_mut().unwrap();
            for (entry, secret) in signature.secrets.iter_mut().zip(secrets) {
                entry.secret = Secret::new(secret);
            }
            config
        };
        let old = with_secrets(config("/a", "t", "enforce"), ["one", "two"]);
        for mode in ["observe", "off"] {
            let new = with_secrets(config("/b", "s", mode), ["one", "three"]);
            let expected = [
                "platform.p.path",
                "platform.p.strategies.B",
                "platform.p.signature.mode",
                "platform.p.signature.secrets: 1 of 2 secrets",
            ];
            assert_eq!(new.removals(&old), expected);
            assert_eq!(old.removals(&new).len(), 3, "stricter is no removal");
        }
        assert_eq!(old.removals(&old), [""; 0]);
    }
}
