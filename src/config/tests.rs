use std::time::Duration;

use super::*;
use crate::strategy::Outcome;

fn read(text: &str) -> Result<Config, ConfigError> {
    read_under(Some(text), |_| None, &Vec::new())
}

fn read_under(
    text: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
    flags: &Flags,
) -> Result<Config, ConfigError> {
    let vocabulary = Vocabulary {
        kinds: &[],
        reserved_names: &[],
        failures: &[],
    };
    let (config, mistakes) = Config::read(
        text.map(|text| ("rtad.toml", text)),
        environment,
        flags,
        &vocabulary,
        ConfigUse::All,
    )?;
    mistakes.into_result(config)
}

/// The example without its platforms, whose kinds other modules define.
fn example() -> Config {
    read(EXAMPLE.split("[[platform]]").next().unwrap()).unwrap()
}

const STORE: &str = "store.url = \"/d\"\n";
const RULE: &str = "store.url = \"/d\"\n[[audience]]\nname = \"a\"\n[[strategy]]\nname = \"s\"\n\
                    exclude = [\"a\"]\n";
#[test]
fn each_mistake_has_its_line_and_the_accepted_values() {
    let mistakes = |text: &str| {
        let mistakes = read(text).unwrap_err().mistakes;
        assert!(!mistakes.concat().contains("hush"), "{mistakes:?}");
        mistakes
    };
    testkit::mistakes::assert_each("src/config/tests.txt", STORE, mistakes);
}

#[test]
fn printed_config_reads_back_as_the_same() {
    let config = example();
    assert_eq!(config.server.idle_timeout, Duration::from_secs(60));
    assert_eq!(config.server.max_body, 128 << 10);
    assert_eq!(
        config.audiences[0].max_age,
        Some(Duration::from_secs(48 * 3600))
    );
    assert_eq!(config.strategies[0].unavailable, Outcome::Bid);
    assert_eq!(config.strategies[0].exclude, ["old_users".parse().unwrap()]);
    let caps = config.caps[..1].to_vec();
    let strategies = config.strategies[..1].to_vec();
    let printed = Config {
        caps,
        strategies,
        ..config
    }
    .to_toml();
    assert_eq!(read(&printed).unwrap().to_toml(), printed);
}

#[test]
fn absent_keys_have_defaults() {
    let config = read("store = { url = \"/data\", cache_dir = \"\" }").unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.admin_listen.to_string(), "127.0.0.1:9090");
    assert_eq!(
        (config.store.cache_dir, config.store.swap),
        (None, SwapMode::Whole)
    );
    assert!(config.audiences.is_empty() && config.strategies.is_empty());
}

#[test]
fn flag_overrides_environment_overrides_file_overrides_default() {
    let environment = |name: &str| match name {
        "RTAD_LISTEN" => Some("127.0.0.1:1".to_owned()),
        "RTAD_ADMIN_LISTEN" => Some("127.0.0.1:2".to_owned()),
        "RTAD_STORE" => Some("/from-env".to_owned()),
        "RTAD_WORKERS" => Some("3".to_owned()),
        "RTAD_DRAIN_TIMEOUT" => Some("3s".to_owned()),
        // Kubernetes sets such names. Others have no key.
        "RTAD_SERVICE_HOST" | "RTAD_MAX_BODY" => Some("10.0.0.1".to_owned()),
        _ => None,
    };
    let flags = vec![("server.listen", "127.0.0.1:3".to_owned())];
    let file = "server.listen = \"127.0.0.1:4\"\nserver.workers = 4\nstore.url = \"/data\"";
    let config = read_under(Some(file), environment, &flags).unwrap();
    assert_eq!(
        (
            config.server.listen.port(),
            config.server.admin_listen.port()
        ),
        (3, 2)
    );
    assert_eq!(config.server.workers, 3);
    assert_eq!(config.server.drain_timeout, Duration::from_secs(3));
    assert_eq!(config.store.stores(), ["/from-env"]);
    let list = read_under(Some("store.urls = [\"/a\", \"/b\"]"), environment, &flags);
    assert_eq!(list.unwrap().store.stores(), ["/from-env"]);
    assert_eq!(
        read_under(None, environment, &flags)
            .unwrap()
            .server
            .workers,
        3
    );
}

#[test]
fn mistake_names_the_flag_or_variable() {
    let environment = |name: &str| match name {
        "RTAD_WORKERS" => Some("many".to_owned()),
        _ => None,
    };
    let url = "https://me:secret@host/x".to_owned();
    let flags = vec![
        ("server.admin_listen", "here".to_owned()),
        ("store.url", url),
    ];
    let mistakes = read_under(None, environment, &flags).unwrap_err().mistakes;
    let expected = [
        "--admin-listen is \"here\"; accepted: an address and port",
        "RTAD_WORKERS is \"many\"; accepted: a whole number from 0 to 1024",
        // A secret is not repeated.
        "--store is \"https://…\"; accepted: a directory",
    ];
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
    for (mistake, expected) in mistakes.iter().zip(expected) {
        assert!(mistake.starts_with(expected), "{mistake}");
    }
}

#[test]
fn changed_keys_that_need_a_restart_are_listed() {
    let old = example();
    let mut new = old.clone();
    new.strategies.clear();
    assert!(new.needs_restart(&old).is_empty());
    new.server.workers = 3;
    new.store.url = Some("/elsewhere".to_owned());
    assert_eq!(new.needs_restart(&old), ["server", "store.url"]);
}

#[test]
fn ports_may_be_equal_on_different_addresses() {
    for (listen, admin) in [
        ("127.0.0.1:1", "127.0.0.2:1"),
        ("0.0.0.0:1", "[::1]:1"),
        ("0.0.0.0:1", "127.0.0.1:2"),
        ("0.0.0.0:0", "0.0.0.0:0"),
    ] {
        let text = format!("{STORE}server = {{ listen = {listen:?}, admin_listen = {admin:?} }}");
        assert!(read(&text).is_ok(), "{listen} {admin}");
    }
}

#[test]
fn caps_are_shared_in_a_store_that_pods_write_to() {
    let caps_store = |store: &str| {
        let config = read(&format!("[store]\n{store}")).unwrap();
        config.store.caps_store().map(str::to_owned)
    };
    let expected = |url: &str| Some(url.to_owned());
    assert_eq!(caps_store("url = \"/d\""), expected("/d"));
    assert_eq!(caps_store("urls = [\"s3://b\", \"/d\"]"), None);
    assert_eq!(caps_store("url = \"https://h\""), None);
    let both = "url = \"https://h\"\ncaps_url = \"oss://b/rtad\"";
    assert_eq!(caps_store(both), expected("oss://b/rtad"));
}

#[test]
fn zone_of_the_file_is_that_of_schedules_and_caps_without_their_own() {
    let rules = |zone: &str, own: &str| {
        let caps = format!(
            "[[cap]]\nname = \"c\"\nlimit = 7\nperiod = \"day\"\n{own}\n\
             [[strategy]]\nname = \"timed\"\nexclude = [\"a\"]\nhours = [\"09:00-18:00\"]\n{own}\n\
             [[strategy]]\nname = \"dated\"\nexclude = [\"a\"]\n\
             valid_from = \"2026-12-01T00:00:00+08:00\"\n"
        );
        format!("{zone}\n{RULE}{caps}")
    };
    let zones = |text: &str| {
        let config = read(text).unwrap();
        let strategy = |index: usize| config.strategies[index].time_zone.clone();
        assert_eq!((strategy(0), strategy(2)), (None, None));
        [config.caps[0].time_zone.clone(), strategy(1)].map(Option::unwrap)
    };
    let file = "time_zone = \"asia/shanghai\"";
    let own = "time_zone = \"Asia/Tokyo\"";
    assert_eq!(zones(&rules(file, "")), ["Asia/Shanghai"; 2]);
    assert_eq!(zones(&rules(file, own)), ["Asia/Tokyo"; 2]);
    assert_eq!(zones(&rules("", own)), ["Asia/Tokyo"; 2]);

    let mistakes = read(&rules("", "")).unwrap_err().mistakes;
    let accepted = "time_zone is missing; accepted: a name of the IANA database, such as \
                    Asia/Shanghai, here or before all tables, for the whole file";
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    for (mistake, table) in mistakes
        .iter()
        .zip(["[[cap]] \"c\"", "[[strategy]] \"timed\""])
    {
        assert!(
            mistake.contains(table) && mistake.ends_with(accepted),
            "{mistakes:?}"
        );
    }
}

#[test]
fn holdout_that_gets_ads_and_unread_experiment_are_warned_about() {
    let experiments = "[[experiment]]\nname = \"ads\"\n\
                       buckets = [{ name = \"holdout\", slots = \"0..1000\" }]\n\
                       [[experiment]]\nname = \"price\"\n\
                       buckets = [{ name = \"high\", slots = \"0..5000\" }]\n";
    let warnings = |strategies: &str| {
        let config = read(&format!("{RULE}{strategies}\n{experiments}")).unwrap();
        config.warnings(&[])
    };
    let unread = |name| {
        format!(
            "no strategy reads the experiment {name}: its buckets change no decision and no value"
        )
    };
    assert_eq!(warnings(""), [unread("ads"), unread("price")]);

    let value = "[[strategy.value]]\nbucket = \"price:high\"\nweight = 2";
    let refused = "when = { none = [{ bucket = \"ads:holdout\" }] }\n";
    assert!(warnings(&format!("{refused}{value}")).is_empty());

    let open = "[[strategy]]\nname = \"open\"\nexclude = [\"a\"]\n\
                [[strategy]]\nname = \"in-it\"\nwhen = { bucket = \"ads:holdout\" }\n";
    let expected =
        "the condition of open, in-it does not refuse ads:holdout: its devices may get ads";
    assert_eq!(warnings(&format!("{refused}{value}\n{open}")), [expected]);
}
