//! `docs/reference/configuration.md`: generated from the fields, their doc comments and the
//! example.

use documented::DocumentedFieldsOpt;
use testkit::config_reference::{ConfigReference, Finding};
use testkit::reference::assert_current;

use super::*;

/// Text before the generated part.
const TEMPLATE: &str = include_str!("reference.md");
/// Flags of `rtad serve`, by key. A test of the commands holds the list.
const FLAGS: [(&str, &str); 3] = [
    ("server.listen", "--listen"),
    ("server.admin_listen", "--admin-listen"),
    ("store.url", "--store"),
];
/// Tables and their headings.
const TABLES: [(&str, &str); 21] = [
    ("", "Top level"),
    ("server", "`[server]`"),
    ("server.api", "`[server.api]`"),
    ("store", "`[store]`"),
    ("ids", "`[ids]`"),
    ("audience[]", "`[[audience]]`"),
    ("strategy[]", "`[[strategy]]`"),
    ("strategy[].value[]", "`[[strategy.value]]`"),
    ("cap[]", "`[[cap]]`"),
    ("experiment[]", "`[[experiment]]`"),
    ("experiment[].buckets[]", "`[[experiment.buckets]]`"),
    ("log", "`[log]`"),
    ("platform[]", "`[[platform]]`"),
    ("platform[].headers[]", "`platform.headers`"),
    ("platform[].request", "`[platform.request]`"),
    ("platform[].request.id_list", "`[platform.request.id_list]`"),
    ("platform[].response", "`[platform.response]`"),
    ("platform[].response.code", "`platform.response.code`"),
    (
        "platform[].response.verdicts",
        "`platform.response.verdicts`",
    ),
    ("platform[].signature", "`[platform.signature]`"),
    (
        "platform[].signature.secrets[]",
        "`platform.signature.secrets`",
    ),
];
/// Accepted values of several keys, and their names. A longer text comes before its parts.
const NAMED_VALUES: [(&str, &str); 6] = [
    (
        "a directory, file:///directory, s3://bucket/prefix, gs://bucket/prefix, \
         az://container/prefix, oss://bucket/prefix, cos://bucket/prefix, https://host/path or \
         http://host/path",
        "a store",
    ),
    (
        "a directory, file:///directory, s3://bucket/prefix, gs://bucket/prefix, \
         az://container/prefix, oss://bucket/prefix or cos://bucket/prefix",
        "a writable store",
    ),
    (
        "1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit",
        "a name",
    ),
    ("a path of field names, such as device.imei", "a field"),
    (
        "a name of the IANA database, such as Asia/Shanghai",
        "a time zone",
    ),
    (
        "one of md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid, idfa_md5, imei_md5, \
         oaid_md5, android_id_md5, mac_md5, caid_md5, gaid_md5, openid_md5",
        "a kind of id",
    ),
];
/// The table of `[server]` that a reload applies.
const RELOADED: &str = "server.api";

fn read(text: &str) -> Result<(Config, Mistakes), Mistakes> {
    let kinds = crate::platform::KINDS.map(|kind| kind.rules);
    let failures = crate::platform::Failure::ALL.map(crate::platform::Failure::as_str);
    let vocabulary = Vocabulary {
        kinds: &kinds,
        reserved_names: &["decide"],
        failures: &failures,
    };
    Config::read(
        Some(("rtad.toml", text)),
        |_| None,
        &Vec::new(),
        &vocabulary,
        ConfigUse::All,
    )
}

/// The doc comment of the field that holds a key.
fn description(table: &str, key: &str) -> Option<&'static str> {
    fn of<T: DocumentedFieldsOpt>(field: &str) -> Option<&'static str> {
        T::get_field_docs(field).ok()
    }
    match (table, key) {
        ("", _) => of::<Config>(key),
        ("server", _) => of::<ServerConfig>(key),
        ("server.api", _) => of::<ApiConfig>(key),
        ("store", _) => of::<StoreConfig>(key),
        ("ids", _) => of::<IdsConfig>(key),
        ("audience[]", _) => of::<AudienceConfig>(key),
        ("strategy[]", "value") => of::<StrategyConfig>("values"),
        ("strategy[]", _) => of::<StrategyConfig>(key),
        ("strategy[].value[]", _) => of::<ValueConfig>(key),
        ("cap[]", _) => of::<CapConfig>(key),
        ("experiment[]", _) => of::<ExperimentConfig>(key),
        ("experiment[].buckets[]", _) => of::<BucketConfig>(key),
        ("log", _) => of::<LogConfig>(key),
        ("platform[]", _) => of::<PlatformConfig>(key),
        ("platform[].headers[]", _) => of::<HeaderConfig>(key),
        ("platform[].signature.secrets[]", _) => of::<SecretConfig>(key),
        ("platform[].request", _) => of::<RequestConfig>(key),
        ("platform[].request.id_list", "type") => of::<IdListConfig>("kind"),
        ("platform[].request.id_list", _) => of::<IdListConfig>(key),
        ("platform[].response", _) => of::<ResponseConfig>(key),
        ("platform[].response.code", _) => of::<CodeConfig>(key),
        ("platform[].response.verdicts", _) => of::<VerdictsConfig>(key),
        ("platform[].signature", "in") => of::<SignatureConfig>("source"),
        ("platform[].signature", _) => of::<SignatureConfig>(key),
        _ => None,
    }
}

/// Where else a key can be set, and how a change is applied.
fn facts(path: &str, needs_restart: &[&str]) -> Vec<String> {
    let mut facts = Vec::new();
    let variable = VARIABLES.iter().find(|(key, _)| *key == path);
    facts.extend(variable.map(|(_, variable)| format!("**environment:** `{variable}`")));
    let flag = FLAGS.iter().find(|(key, _)| *key == path);
    facts.extend(flag.map(|(_, flag)| format!("**flag:** `{flag}`")));
    let is_restart = |prefix: &&str| {
        *prefix == path
            || path.starts_with(&format!("{prefix}."))
            || path == format!("{prefix}_file")
    };
    let takes_restart = needs_restart.iter().any(is_restart) && !path.starts_with(RELOADED);
    if takes_restart {
        facts.push("**restart**".to_owned());
    }
    facts
}

#[test]
fn configuration_reference_is_current() {
    let mut needs_restart = read(EXAMPLE).unwrap().0.needs_restart(&Config::default());
    // The example can have one of the two.
    needs_restart.push("store.urls");
    let reference = ConfigReference {
        example: EXAMPLE,
        tables: &TABLES,
        named_values: &NAMED_VALUES,
        read: &|text| {
            let (mut config, mistakes) = match read(text) {
                Ok(read) => read,
                Err(mistakes) => (Config::default(), mistakes),
            };
            let findings = mistakes.list().iter().map(|mistake| Finding {
                key: mistake.location.key().to_owned(),
                found: mistake.found.clone(),
                // Names of the example are no part of the reference.
                accepted: mistake
                    .accepted
                    .split(": new-users")
                    .next()
                    .unwrap()
                    .to_owned(),
            });
            // A zone that is that of the file was not given.
            let file_zone = config.time_zone.clone();
            let of_caps = config.caps.iter_mut().map(|cap| &mut cap.time_zone);
            let of_strategies = config.strategies.iter_mut().map(|it| &mut it.time_zone);
            for zone in of_caps.chain(of_strategies) {
                if *zone == file_zone {
                    *zone = None;
                }
            }
            (toml::Value::try_from(config).unwrap(), findings.collect())
        },
        describe: &description,
        facts: &|path| facts(path, &needs_restart),
    };
    let page = TEMPLATE.to_owned() + "\n" + reference.page().trim_end() + "\n";
    assert_current("rtad", "configuration.md", &page);
}
