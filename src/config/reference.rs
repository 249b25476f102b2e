//! `docs/reference/configuration.md`: generated from the keys that the reader knows, the defaults
//! that it fills in, and the doc comments of the config's fields.

use documented::DocumentedFieldsOpt;
use testkit::reference::{assert_current, wrap};

use super::reader::keys::{self, Key};
use super::*;

/// Text before the generated part.
const TEMPLATE: &str = include_str!("reference.md");
/// Every table, each key with a value other than its default.
const EVERY_TABLE: &str = include_str!("reference.toml");
/// Every table with its required keys only.
const REQUIRED_ONLY: &str = r#"
store.url = "."
audience = [{ name = "a" }]
strategy = [{ name = "s", exclude = ["a"], cap = { unique_devices = 1, per = "day" } }]
cap_leases = { backend = "redis://localhost" }

[[platform]]
kind = "custom"
name = "p"
path = "/p"
strategies = { "1" = "s" }
body = "json"
request = { ids = { imei = "imei" } }
response = { accepted = "accepted" }
signature = { algorithm = "md5", template = "{secret}", in = "query:sign", secrets = [{ value = "s" }] }
"#;

/// Keys that are checked outside `Section::require`.
const ALSO_REQUIRED: [&str; 3] =
    ["store.url", "platform[].strategies", "platform[].signature.secrets"];
/// Keys that REQUIRED_ONLY has because one of several must be given, or for the keys in them, and
/// their defaults.
const ONE_OF_SEVERAL: [(&str, &str); 6] = [
    ("strategy[].exclude", "`[]`"),
    ("strategy[].cap", "unset"),
    ("cap_leases.backend", "unset"),
    ("platform[].signature", "unset"),
    ("platform[].request.ids", "unset"),
    ("platform[].response.accepted", "unset"),
];
/// Flags of `rtad serve`, by key. A test of the commands holds the list.
const FLAGS: [(&str, &str); 4] = [
    ("server.listen", "--listen"),
    ("server.admin_listen", "--admin-listen"),
    ("server.workers", "--workers"),
    ("store.url", "--store"),
];
/// Tables and their headings.
const TABLES: [(&str, &str); 17] = [
    ("server", "`[server]`"),
    ("server.api", "`[server.api]`"),
    ("store", "`[store]`"),
    ("ids", "`[ids]`"),
    ("audience[]", "`[[audience]]`"),
    ("strategy[]", "`[[strategy]]`"),
    ("strategy[].cap", "`[strategy.cap]`"),
    ("cap_leases", "`[cap_leases]`"),
    ("platform[]", "`[[platform]]`"),
    ("platform[].headers[]", "`platform.headers`"),
    ("platform[].request", "`[platform.request]`"),
    ("platform[].request.id_list", "`[platform.request.id_list]`"),
    ("platform[].response", "`[platform.response]`"),
    ("platform[].response.code", "`platform.response.code`"),
    ("platform[].response.verdicts", "`platform.response.verdicts`"),
    ("platform[].signature", "`[platform.signature]`"),
    ("platform[].signature.secrets[]", "`platform.signature.secrets`"),
];
/// Keys of a table that takes a restart, which a reload applies.
const RELOADED: [&str; 2] = ["server.api.token_files", "server.api.public"];
/// Keys of `kind = "custom"` in `[[platform]]` itself.
const CUSTOM: [&str; 7] =
    ["body", "proto", "request_message", "response_message", "request", "response", "signature"];

fn read(text: &str) -> Config {
    let kinds = crate::platform::KINDS.map(|kind| kind.rules);
    let vocabulary = Vocabulary { kinds: &kinds, reserved_names: &[] };
    let file = Some(("rtad.toml", text));
    let (config, mistakes) = Config::read(file, |_| None, &Vec::new(), &vocabulary);
    mistakes.into_result(config).unwrap()
}

/// Looks a key up in every table of that path.
fn values<'a>(config: &'a toml::Value, table: &str, key: &str) -> Vec<&'a toml::Value> {
    let mut tables = vec![config];
    for part in table.split('.') {
        let of_part = |table: &'a toml::Value| table.get(part.trim_end_matches("[]"));
        tables = tables.into_iter().filter_map(of_part).collect();
        if part.ends_with("[]") {
            tables = tables.into_iter().filter_map(|list| list.as_array()).flatten().collect();
        }
    }
    let is_secret = |value: &&toml::Value| value.as_str() == Some("<redacted>");
    tables.into_iter().filter_map(|table| table.get(key)).filter(|it| !is_secret(it)).collect()
}

/// The doc comment of the field that holds a key.
fn description(table: &str, key: &str) -> String {
    fn of<T: DocumentedFieldsOpt>(field: &str) -> Option<&'static str> {
        T::get_field_docs(field).ok()
    }
    let docs = match (table, key) {
        ("server", _) => of::<ServerConfig>(key),
        ("server.api", _) => of::<ApiConfig>(key),
        ("store", "public_keys_file") => Some(
            "File with further public keys, one a line. A relative path starts at the directory \
             of the configuration file.",
        ),
        ("store", _) => of::<StoreConfig>(key),
        ("ids", _) => of::<IdsConfig>(key),
        ("audience[]", _) => of::<AudienceConfig>(key),
        ("strategy[]", _) => of::<StrategyConfig>(key),
        ("strategy[].cap", _) => of::<CapConfig>(key),
        ("cap_leases", _) => of::<LeasesConfig>(key),
        ("platform[]", _) => of::<PlatformConfig>(key).or(of::<CustomConfig>(key)),
        ("platform[].headers[]", "name") => of::<HeaderConfig>("spelling"),
        ("platform[].headers[]" | "platform[].signature.secrets[]", _) => of::<SecretConfig>(key),
        ("platform[].request", _) => of::<RequestConfig>(key),
        ("platform[].request.id_list", "type") => of::<IdListConfig>("kind"),
        ("platform[].request.id_list", _) => of::<IdListConfig>(key),
        ("platform[].response", _) => of::<ResponseConfig>(key),
        ("platform[].response.code", _) => of::<CodeConfig>(key),
        ("platform[].response.verdicts", _) => of::<VerdictsConfig>(key),
        ("platform[].signature", "in") => of::<SignatureConfig>("source"),
        ("platform[].signature", _) => of::<SignatureConfig>(key),
        _ => None,
    };
    let docs = docs.unwrap_or_else(|| panic!("{table}.{key}: a field with a doc comment"));
    // Links of rustdoc are code here.
    wrap(&docs.replace("[`", "`").replace("`]", "`"))
}

/// Text with tables in braces as code: Markdown would read them as attributes.
fn with_code(text: &str) -> String {
    let (mut out, mut depth) = (String::new(), 0);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '{' {
            depth += 1;
            if depth == 1 && !out.ends_with('}') {
                out.push('`');
            }
        }
        out.push(letter);
        if letter == '}' {
            depth -= 1;
            if depth == 0 && letters.peek() != Some(&'{') {
                out.push('`');
            }
        }
    }
    out
}

fn is_required(Key { table, name, is_required, .. }: &Key) -> bool {
    *is_required || ALSO_REQUIRED.contains(&format!("{table}.{name}").as_str())
}

/// A key's part of the page.
fn entry(key: &Key, defaults: &toml::Value, needs_restart: &[&str]) -> String {
    let Key { table, name, accepted, variable, .. } = key;
    let path = format!("{table}.{name}");
    // Names of the sample config are no part of the reference.
    let accepted = match path.as_str() {
        "platform[].strategies" => "a table { \"id of the platform\" = \"name of a strategy\" }",
        _ => accepted.split(": old_users").next().unwrap(),
    };
    let given = ONE_OF_SEVERAL.iter().find(|(key, _)| *key == path);
    let default = match values(defaults, table, name).first() {
        _ if is_required(key) => "none, required".to_owned(),
        _ if given.is_some() => given.unwrap().1.to_owned(),
        Some(value) => format!("`{value}`"),
        None => "unset".to_owned(),
    };
    let mut facts =
        vec![format!("**Value:** {}", with_code(accepted)), format!("**Default:** {default}")];
    facts.extend(variable.as_ref().map(|variable| format!("**Environment:** `{variable}`")));
    let flag = FLAGS.iter().find(|(key, _)| *key == path);
    facts.extend(flag.map(|(_, flag)| format!("**Flag:** `{flag}`")));
    let is_restart = |prefix: &&str| {
        path == **prefix
            || path.starts_with(&format!("{prefix}."))
            || path == format!("{prefix}_file")
    };
    let is_reloaded = RELOADED.contains(&path.as_str());
    let applied =
        if !is_reloaded && needs_restart.iter().any(is_restart) { "restart" } else { "reload" };
    facts.push(format!("**Applied by:** {applied}"));
    let facts: String = facts
        .into_iter()
        .map(|fact| format!("- {}\n", wrap(&fact).replace('\n', "\n  ")))
        .collect();
    format!("### `{name}`\n\n{}\n\n{facts}\n", description(table, name))
}

#[test]
fn configuration_reference_is_current() {
    let (every, required) = (read(EVERY_TABLE), read(REQUIRED_ONLY));
    let needs_restart = every.needs_restart(&required);
    let [all, defaults] = [&every, &required].map(|config| toml::Value::try_from(config).unwrap());
    let keys = keys::all();
    let mut page = TEMPLATE.to_owned() + "\n";
    for (table, heading) in TABLES {
        page.push_str(&format!("## {heading}\n\n"));
        let (custom, plain): (Vec<&Key>, Vec<&Key>) = keys
            .iter()
            .filter(|key| key.table == table)
            .partition(|key| table == "platform[]" && CUSTOM.contains(&key.name.as_str()));
        assert!(!plain.is_empty(), "{table}: a table that the reader knows");
        for key in plain {
            page.push_str(&entry(key, &defaults, &needs_restart));
        }
        for (index, key) in custom.into_iter().enumerate() {
            if index == 0 {
                page.push_str("## `[[platform]]` of `kind = \"custom\"`\n\n");
            }
            page.push_str(&entry(key, &defaults, &needs_restart));
        }
    }
    for key in &keys {
        let Key { table, name, .. } = key;
        let is_listed = page.contains(&format!("### `{name}`"));
        assert!(is_listed, "{table}.{name}: a table of TABLES");
        let default = values(&defaults, table, name);
        let differs =
            is_required(key) || default.is_empty() || values(&all, table, name) != default;
        assert!(differs, "{table}.{name}: a value in reference.toml other than the default");
    }
    assert_current("rtad", "configuration.md", &(page.trim_end().to_owned() + "\n"));
}
