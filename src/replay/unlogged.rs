//! Differences between two configs that the rows do not decide.
//!
//! Each key of the configuration has a [`Treatment`] here. A key without one counts as a gap in
//! every row.

use std::collections::BTreeSet;

use rtad_log::LoggedFacts;
use toml::{Table, Value};

use crate::config::{Difference, differences};
use crate::log::API;

/// How a replay treats a key that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// The decision is made again with it, from facts of the rows.
    Decided,
    /// It changes no answer.
    NoAnswer,
    /// A secret: the log has none, and a new one in its place changes no answer.
    Secret,
    /// The source of the devices: named, and not counted as a change.
    Devices,
    /// A gap.
    Gap(Scope),
}

/// The rows whose answers a key may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those of the platform.
    Platform,
    /// Those of rtad's own API.
    Api,
    /// Those in which a strategy of the cap would bid.
    Cap,
    /// Those with a strategy that reads the audience.
    Audience,
    /// Those with a strategy that reads the experiment, about devices in the bucket.
    Bucket,
    /// Those with a strategy that reads several experiments.
    Experiments,
}

const KEYS: [(Treatment, &[&str]); 12] = [
    (
        Treatment::Decided,
        &[
            // A new name is not in the rows, which replay notes where a decision needs it.
            "audience",
            "audience.name",
            "strategy",
            "strategy.name",
            "strategy.exclude",
            "strategy.valid_from",
            "strategy.valid_until",
            "strategy.days",
            "strategy.hours",
            "strategy.time_zone",
            "strategy.shadow",
            "strategy.no_device",
            "strategy.unavailable",
            "strategy.value",
            "strategy.value.audience",
            "strategy.value.tier",
            "strategy.value.bucket",
            "strategy.value.weight",
            "strategy.value.cpa_price",
            "strategy.value.cpc_price",
            "strategy.value.cpc_factor",
            "strategy.value.quality",
            "strategy.cap",
            "cap",
            "cap.name",
            "experiment",
            "experiment.name",
            // Rows have the number of the rule from a device to its slots.
            "experiment.layer",
            "experiment.unit",
            "experiment.traffic",
            "experiment.buckets",
            "experiment.buckets.name",
            "experiment.buckets.slots",
            "platform",
            "platform.name",
        ],
    ),
    (
        Treatment::NoAnswer,
        &[
            // Reading gives it to the schedules and caps without one of their own.
            "time_zone",
            "server",
            "server.listen",
            "server.admin_listen",
            "server.metrics_listen",
            "server.admin_hosts",
            "server.workers",
            "server.max_connections",
            "server.idle_timeout",
            "server.max_buffered",
            "server.drain_timeout",
            "server.watch_config",
            "store",
            "store.caps_url",
            "store.poll_interval",
            "store.max_snapshot_size",
            "store.swap",
            "store.cache_dir",
            "store.public_keys",
            "store.public_keys_file",
            "ids",
            "audience.required",
            "log",
            "log.to",
            "log.spool",
            "log.key_secret",
            "log.key_secret_file",
            "log.sample",
            "log.always",
            "log.request_ids",
            "log.raw",
            "log.max_rate",
            "log.max_age",
            "log.retention",
            "log.max_size",
            "log.max_spool",
        ],
    ),
    (
        Treatment::Secret,
        &[
            "platform.headers.value",
            "platform.headers.value_file",
            "platform.signature.secrets",
            "platform.signature.secrets.value",
            "platform.signature.secrets.value_file",
        ],
    ),
    (Treatment::Devices, &["store.url", "store.urls"]),
    (
        Treatment::Gap(Scope::All),
        &["server.max_body", "ids.blank"],
    ),
    (
        Treatment::Gap(Scope::Platform),
        &[
            "platform.kind",
            "platform.path",
            "platform.bid_cache",
            "platform.no_bid_cache",
            "platform.headers",
            "platform.headers.name",
            "platform.body",
            "platform.proto",
            "platform.request_message",
            "platform.response_message",
            "platform.request",
            "platform.request.request_id",
            "platform.request.strategies",
            "platform.request.strategies_separator",
            "platform.request.ping",
            "platform.request.id_list",
            "platform.request.id_list.list",
            "platform.request.id_list.value",
            "platform.request.id_list.type",
            "platform.request.id_list.secure",
            "platform.response",
            "platform.response.request_id",
            "platform.response.code",
            "platform.response.code.field",
            "platform.response.code.bid",
            "platform.response.code.no_bid",
            "platform.response.code.error",
            "platform.response.verdicts",
            "platform.response.verdicts.list",
            "platform.response.verdicts.strategy",
            "platform.response.verdicts.accepted",
            "platform.response.verdicts.weight",
            "platform.response.verdicts.cpa_price",
            "platform.response.verdicts.cpc_price",
            "platform.response.verdicts.cpc_factor",
            "platform.response.verdicts.quality",
            "platform.response.verdicts.tag",
            "platform.response.accepted",
            "platform.response.first_accepted",
            "platform.response.accepted_ids",
            "platform.response.cache",
            "platform.signature",
            "platform.signature.mode",
            "platform.signature.algorithm",
            "platform.signature.template",
            "platform.signature.in",
            "platform.signature.prefix",
            "platform.signature.timestamp",
            "platform.signature.max_skew",
        ],
    ),
    (Treatment::Gap(Scope::Platform), &MAPS),
    (
        Treatment::Gap(Scope::Api),
        &["server.api", "server.api.token_files", "server.api.public"],
    ),
    (
        Treatment::Gap(Scope::Cap),
        &["cap.limit", "cap.period", "cap.time_zone"],
    ),
    (Treatment::Gap(Scope::Audience), &["audience.max_age"]),
    (
        Treatment::Gap(Scope::Bucket),
        &["experiment.buckets.tag", "experiment.buckets.tag_number"],
    ),
    (Treatment::Decided, &DECIDED_MAPS),
];

/// Tables whose keys are no keys of the configuration, but ids, kinds of ids and values.
const MAPS: [&str; 4] = [
    "platform.request.ids",
    "platform.request.attributes",
    "platform.request.os_values",
    "platform.request.id_list.kinds",
];

/// A condition, and the ids of a platform, which are compared one by one.
const DECIDED_MAPS: [&str; 2] = ["strategy.when", "platform.strategies"];

/// A difference that leaves answers of some rows open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlogged {
    pub scope: Scope,
    /// Names of the entry: a cap; an experiment and its bucket.
    pub names: Vec<String>,
    /// The gap.
    pub sentence: String,
}

impl Unlogged {
    /// The name at `index`; empty if the entry has fewer.
    pub fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }
}

/// Ids of a platform that name other strategies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RenamedIds {
    platform: String,
    ids: BTreeSet<String>,
}

/// The differences between two configs that rows do not decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnloggedDifferences {
    pub gaps: Vec<Unlogged>,
    renamed: Vec<RenamedIds>,
    /// A sentence that is named, and not counted.
    pub other_store: Option<String>,
}

impl UnloggedDifferences {
    /// Those of the config `new` from the one that decided.
    pub fn between(new: &Table, old: &Table) -> Self {
        let mut found = Self::default();
        for difference in differences(new, old) {
            found.add(difference);
        }

        for new in entries(new, "platform") {
            let name = text(new, "name");
            let mut platforms = entries(old, "platform");
            if let Some(old) = platforms.find(|old| text(old, "name") == name) {
                let ids = renamed_ids(new, old);
                found.renamed.push(RenamedIds {
                    platform: name.to_owned(),
                    ids,
                });
            }
        }

        if tagged_experiments(new, old) != tagged_experiments(old, new) {
            found.gaps.push(Unlogged {
                scope: Scope::Experiments,
                names: Vec::new(),
                sentence: "the order of the experiments differs".to_owned(),
            });
        }
        found
    }

    fn add(&mut self, difference: Difference) {
        let Difference { path, key, names } = difference;
        let sentence = format!("{path} differs");
        match treatment_of(&key) {
            Treatment::Decided | Treatment::NoAnswer | Treatment::Secret => {}
            Treatment::Devices => self.other_store = Some(sentence),
            Treatment::Gap(scope) => self.gaps.push(Unlogged {
                scope,
                names,
                sentence,
            }),
        }
    }

    /// Whether a row asks for an id of its platform that names another strategy.
    pub fn has_renamed_id(&self, platform: &str, facts: &LoggedFacts<'_>) -> bool {
        let Some(renamed) = self.renamed.iter().find(|it| it.platform == platform) else {
            return false;
        };
        match &facts.asked {
            Some(asked) => asked.iter().any(|id| renamed.ids.contains(*id)),
            None => !renamed.ids.is_empty(),
        }
    }
}

impl Unlogged {
    /// Whether it concerns all rows of a platform.
    pub fn is_of_platform(&self, platform: &str) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::Platform => self.names[0] == platform,
            Scope::Api => platform == API,
            Scope::Cap | Scope::Audience | Scope::Bucket | Scope::Experiments => false,
        }
    }
}

/// Whether answers may depend on a key, such as `cap.period`, secrets aside.
pub fn changes_answers(key: &str) -> bool {
    match treatment_of(key) {
        Treatment::Decided | Treatment::Devices | Treatment::Gap(_) => true,
        Treatment::NoAnswer | Treatment::Secret => false,
    }
}

fn treatment_of(key: &str) -> Treatment {
    for (treatment, keys) in KEYS {
        if keys.iter().any(|known| is_key(key, known)) {
            return treatment;
        }
    }
    // A key of another version of rtad.
    Treatment::Gap(Scope::All)
}

/// Whether a key is this one, or is inside it if it is a map.
fn is_key(key: &str, known: &str) -> bool {
    let Some(inner) = key.strip_prefix(known) else {
        return false;
    };
    let is_map = MAPS.contains(&known) || DECIDED_MAPS.contains(&known);
    inner.is_empty() || is_map && inner.starts_with('.')
}

fn strategy_ids(platform: &Table) -> Table {
    let ids = platform.get("strategies").and_then(Value::as_table);
    ids.cloned().unwrap_or_default()
}

/// Ids that name another strategy than before. An id that only one of the platforms has is none if
/// its strategy is the other's under no id: then the decision is there or not, as the id is.
fn renamed_ids(new: &Table, old: &Table) -> BTreeSet<String> {
    let new = strategy_ids(new);
    let old = strategy_ids(old);

    let mut renamed = BTreeSet::new();
    for id in new.keys().chain(old.keys()) {
        let differs = match (new.get(id), old.get(id)) {
            (Some(strategy), Some(earlier)) => strategy != earlier,
            (Some(strategy), None) => old.values().any(|other| other == strategy),
            (None, Some(strategy)) => new.values().any(|other| other == strategy),
            (None, None) => false,
        };
        if differs {
            renamed.insert(id.clone());
        }
    }
    renamed
}

/// Names of the experiments with tags in both configs, in the order of this one. The first one in
/// which a device has a tag gives the tag of its answer.
fn tagged_experiments<'t>(config: &'t Table, other: &Table) -> Vec<&'t str> {
    let mut names = Vec::new();
    for experiment in entries(config, "experiment") {
        let name = text(experiment, "name");
        let mut others = entries(other, "experiment");
        let is_tagged = others.any(|other| text(other, "name") == name && has_tag(other));
        if is_tagged && has_tag(experiment) {
            names.push(name);
        }
    }
    names
}

fn has_tag(experiment: &Table) -> bool {
    entries(experiment, "buckets").any(|bucket| bucket.keys().any(|key| key.starts_with("tag")))
}

fn entries<'t>(table: &'t Table, key: &str) -> impl Iterator<Item = &'t Table> {
    let list = table.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_table)
}

fn text<'t>(table: &'t Table, key: &str) -> &'t str {
    table.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Deserialize;
    use serde::de::value::Error;
    use serde::de::{Deserializer, Error as _, Visitor};
    use serde::forward_to_deserialize_any;

    use super::*;
    use crate::config::{
        ApiConfig, AudienceConfig, BucketConfig, CapConfig, CodeConfig, Config, ExperimentConfig,
        HeaderConfig, IdListConfig, IdsConfig, LogConfig, PlatformConfig, RequestConfig,
        ResponseConfig, SecretConfig, ServerConfig, SignatureConfig, StoreConfig, StrategyConfig,
        ValueConfig, VerdictsConfig,
    };

    /// Learns the keys of a struct.
    struct KeysOf<'k>(&'k mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for KeysOf<'_> {
        type Error = Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            keys: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Error> {
            *self.0 = keys;
            Err(Error::custom("only the keys were asked for"))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("a struct"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
            ignored_any
        }
    }

    fn add_keys<T: for<'de> Deserialize<'de>>(table: &str, keys: &mut BTreeSet<String>) {
        let mut of_struct: &[&str] = &[];
        let _ = T::deserialize(KeysOf(&mut of_struct));
        assert!(!of_struct.is_empty(), "{table}");
        for key in of_struct {
            keys.insert(format!("{table}{key}"));
        }
    }

    /// A new key needs a treatment: can the rows of a log decide it, or is it a gap?
    #[test]
    fn each_key_of_the_config_has_a_treatment() {
        let mut keys = BTreeSet::new();
        add_keys::<Config>("", &mut keys);
        add_keys::<ServerConfig>("server.", &mut keys);
        add_keys::<ApiConfig>("server.api.", &mut keys);
        add_keys::<StoreConfig>("store.", &mut keys);
        add_keys::<IdsConfig>("ids.", &mut keys);
        add_keys::<AudienceConfig>("audience.", &mut keys);
        add_keys::<StrategyConfig>("strategy.", &mut keys);
        add_keys::<ValueConfig>("strategy.value.", &mut keys);
        add_keys::<CapConfig>("cap.", &mut keys);
        add_keys::<ExperimentConfig>("experiment.", &mut keys);
        add_keys::<BucketConfig>("experiment.buckets.", &mut keys);
        add_keys::<LogConfig>("log.", &mut keys);
        add_keys::<PlatformConfig>("platform.", &mut keys);
        add_keys::<HeaderConfig>("platform.headers.", &mut keys);
        add_keys::<RequestConfig>("platform.request.", &mut keys);
        add_keys::<IdListConfig>("platform.request.id_list.", &mut keys);
        add_keys::<ResponseConfig>("platform.response.", &mut keys);
        add_keys::<CodeConfig>("platform.response.code.", &mut keys);
        add_keys::<VerdictsConfig>("platform.response.verdicts.", &mut keys);
        add_keys::<SignatureConfig>("platform.signature.", &mut keys);
        add_keys::<SecretConfig>("platform.signature.secrets.", &mut keys);

        let mut treated = BTreeSet::new();
        for (_, known) in KEYS {
            for key in known {
                assert!(
                    treated.insert((*key).to_owned()),
                    "{key} has two treatments"
                );
            }
        }
        let untreated: Vec<_> = keys.difference(&treated).collect();
        assert!(untreated.is_empty(), "{untreated:?} have no treatment");
        let unknown: Vec<_> = treated.difference(&keys).collect();
        assert!(unknown.is_empty(), "{unknown:?} are no keys");
    }

    fn between(old: &str, new: &str) -> UnloggedDifferences {
        UnloggedDifferences::between(&new.parse().unwrap(), &old.parse().unwrap())
    }

    #[test]
    fn another_store_and_another_secret_are_no_gaps() {
        let found = between("[store]\nurl = \"a\"", "[store]\nurl = \"b\"");
        assert_eq!(found.other_store.as_deref(), Some("store.url differs"));
        assert!(found.gaps.is_empty(), "{found:?}");

        let platform =
            "[[platform]]\nname = \"p\"\nheaders = [{ name = \"k\", value_file = \"a\" }]";
        let found = between(platform, &platform.replace("\"a\"", "\"b\""));
        assert!(found.gaps.is_empty(), "{found:?}");
        let found = between(platform, "[[platform]]\nname = \"p\"\nheaders = []");
        assert_eq!(found.gaps[0].sentence, "platform.p.headers.k differs");
    }

    #[test]
    fn order_matters_for_experiments_with_tags_alone() {
        let one = "[[experiment]]\nname = \"a\"\nbuckets = [{ name = \"x\", tag = \"t\" }]\n";
        let other = one.replace("\"a\"", "\"b\"");
        let found = between(&format!("{one}{other}"), &format!("{other}{one}"));
        assert_eq!(found.gaps[0].scope, Scope::Experiments);
        assert_eq!(found.gaps.len(), 1, "{found:?}");

        let untagged = other.replace(", tag = \"t\"", "");
        let found = between(&format!("{one}{untagged}"), &format!("{untagged}{one}"));
        assert!(found.gaps.is_empty(), "{found:?}");
    }

    #[test]
    fn key_of_another_version_is_a_gap() {
        let cap = "[[cap]]\nname = \"c\"\nperiod = \"day\"\n";
        let found = between(cap, &format!("{cap}smoothed = true\n"));
        let gap = &found.gaps[0];
        assert_eq!(
            (gap.scope, &gap.names[..]),
            (Scope::All, &["c".to_owned()][..])
        );
        assert_eq!(gap.sentence, "cap.c.smoothed differs");
    }

    #[test]
    fn only_an_id_that_stands_for_another_strategy_is_renamed() {
        let renamed = |old: &str, new: &str| {
            let platform = |ids: &str| format!("strategies = {{ {ids} }}").parse().unwrap();
            Vec::from_iter(renamed_ids(&platform(new), &platform(old)))
        };
        let none: [&str; 0] = [];
        assert_eq!(renamed("A = \"s\"", "A = \"s\""), none);
        assert_eq!(renamed("A = \"s\"", "A = \"s\", B = \"t\""), none);
        assert_eq!(renamed("A = \"s\", B = \"t\"", "A = \"s\""), none);
        assert_eq!(renamed("A = \"s\"", "A = \"s\", B = \"s\""), ["B"]);
        assert_eq!(renamed("A = \"s\", B = \"s\"", "A = \"s\""), ["B"]);
        assert_eq!(renamed("A = \"s\"", "B = \"s\""), ["A", "B"]);
        let swapped = "B = \"s\", A = \"t\"";
        assert_eq!(renamed("A = \"s\", B = \"t\"", swapped), ["A", "B"]);
    }
}
