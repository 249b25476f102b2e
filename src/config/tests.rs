use std::time::Duration;

use rtad_store::ACCEPTED_URLS;

use super::*;

fn read(text: &str) -> Result<Config, ConfigError> {
    read_under(Some(text), |_| None, &Vec::new())
}

fn read_under(
    text: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
    flags: &Flags,
) -> Result<Config, ConfigError> {
    let vocabulary = Vocabulary { kinds: &[], reserved_names: &[] };
    let (config, mistakes) =
        Config::read(text.map(|text| ("rtad.toml", text)), environment, flags, &vocabulary);
    mistakes.into_result(config)
}

const FULL: &str = r#"
[server]
listen = "0.0.0.0:8080"
admin_listen = "0.0.0.0:9090"
workers = 0
max_connections = 20000
idle_timeout = "75s"
max_body = "64KiB"
max_in_flight = 4096
max_wait = "50ms"
drain_timeout = "20s"

[store]
url = "/var/lib/rtad"
poll_interval = "10s"
max_snapshot_size = "8GiB"
stall_timeout = "30s"
cache_dir = "/var/cache/rtad"
swap = "rolling"

[ids]
blank = ["acme-test-phone"]

[[audience]]
name = "old_users"
required = true
max_age = "48h"

[[strategy]]
name = "new-users"
exclude = ["old_users"]
include = []
no_device = "no_bid"
unavailable = "bid"
"#;

#[test]
fn full_example_is_read() {
    let config = read(FULL).unwrap();
    assert_eq!(config.server.idle_timeout, Duration::from_secs(75));
    assert_eq!(config.server.max_body, 65_536);
    assert_eq!(config.store.max_snapshot_size, 8 << 30);
    assert_eq!(config.store.cache_dir.as_deref(), Some(std::path::Path::new("/var/cache/rtad")));
    assert_eq!(config.store.swap, SwapMode::Rolling);
    assert_eq!(config.ids.blank, ["acme-test-phone"]);
    assert_eq!(config.audiences[0].max_age, Some(Duration::from_secs(48 * 3600)));
    assert_eq!(config.strategies[0].unavailable, Outcome::Bid);
    assert_eq!(config.strategies[0].exclude, ["old_users".parse().unwrap()]);
    assert_eq!(config.audiences[0].name.as_str(), "old_users");
}

#[test]
fn printed_config_reads_back_as_the_same() {
    let config = read(FULL).unwrap();
    assert_eq!(read(&config.to_toml()).unwrap().to_toml(), config.to_toml());
}

#[test]
fn absent_keys_have_defaults() {
    let config = read("[store]\nurl = \"/data\"").unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.admin_listen.to_string(), "127.0.0.1:9090");
    assert_eq!(config.server.max_connections, 20_000);
    assert_eq!(
        (config.store.stall_timeout, config.store.cache_dir),
        (Duration::from_secs(30), None)
    );
    let none = read("[store]\nurl = \"/data\"\ncache_dir = \"\"").unwrap();
    assert_eq!((none.store.cache_dir, none.store.swap), (None, SwapMode::Whole));
    assert!(config.audiences.is_empty() && config.strategies.is_empty());
}

#[test]
fn rolling_swap_requires_a_cache() {
    let mistakes = |text: &str| read(text).unwrap_err().mistakes;
    let lone = "rtad.toml:3: store.swap is \"rolling\" without store.cache_dir; accepted: whole, \
        or rolling with a \
                store.cache_dir for chunks to be read from";
    assert_eq!(mistakes("[store]\nurl = \"/data\"\nswap = \"rolling\""), [lone]);
    let empty = "[store]\nurl = \"/data\"\nswap = \"rolling\"\ncache_dir = \"\"";
    assert_eq!(mistakes(empty), [lone]);
    let other = "rtad.toml:3: store.swap is \"slowly\"; accepted: whole or rolling";
    assert_eq!(mistakes("[store]\nurl = \"/data\"\nswap = \"slowly\""), [other]);

    let variables = |name: &str| (name == "RTAD_STORE_SWAP").then(|| "rolling".to_owned());
    let file = |text| read_under(Some(text), variables, &Vec::new());
    let config = file("[store]\nurl = \"/data\"\ncache_dir = \"/cache\"").unwrap();
    assert_eq!(config.store.swap, SwapMode::Rolling);
    let mistakes = file("[store]\nurl = \"/data\"").unwrap_err().mistakes;
    assert!(
        mistakes[0].starts_with("rtad.toml: store.swap is \"rolling\" without"),
        "{mistakes:?}"
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = r#"
[server]
listen = "localhost"
workers = -1
idle_timout = "75s"

[store]
url = "ftp://x"

[[strategy]]
name = "new-users"
exclude = ["old_user"]
"#;
    let mistakes = read(text).unwrap_err().mistakes;
    let expected = [
        "rtad.toml:3: server.listen is \"localhost\"; accepted: an address and port, such as \
         0.0.0.0:8080 or [::1]:8080",
        "rtad.toml:4: server.workers is \"-1\"; accepted: 0 (one per CPU) or a number up to 1024",
        "rtad.toml:5: server.idle_timout is not known; accepted: listen, admin_listen, \
         admin_hosts, workers, max_connections, idle_timeout, max_body, max_buffered, \
         max_in_flight, max_wait, drain_timeout, watch_config, api",
        &format!("rtad.toml:8: store.url is \"ftp://x\"; accepted: {ACCEPTED_URLS}"),
        "rtad.toml:12: strategy[0].exclude has \"old_user\"; accepted: a list of audiences of this \
         file: ",
    ];
    assert_eq!(mistakes, expected);
}

#[test]
fn each_kind_of_mistake_has_a_message() {
    for (text, expected) in [
        ("", "rtad.toml: store.url is missing; accepted: a directory, file:///directory, s3://"),
        (
            "[store]\nurl=\"/d\"\n[sever]\nx=1",
            "rtad.toml:3: sever is not known; accepted: server, store",
        ),
        ("store = 3", "rtad.toml:1: store is not a table; accepted: [store]"),
        ("audience = 3", "rtad.toml:1: audience is not a list of tables; accepted: [[audience]]"),
        ("[store]\nurl=[1]", "rtad.toml:2: store.url is not a single value; accepted: a directory"),
        ("[store]\nurl=\"\"", "rtad.toml:2: store.url is \"\"; accepted: a directory"),
        (
            "[[audience]]\nrequired=true",
            "rtad.toml:1: audience[0].name is missing; accepted: 1 to 64",
        ),
        (
            "[[audience]]\nname=\"../x\"",
            "rtad.toml:2: audience[0].name is \"../x\"; accepted: 1 to 64",
        ),
        (
            "[[audience]]\nname=\"a\"\nrequired=\"yes\"",
            "audience[0].required is \"yes\"; accepted: true or false",
        ),
        (
            "[[audience]]\nname=\"a\"\nmax_age=48",
            "audience[0].max_age is \"48\"; accepted: a duration",
        ),
        ("[[audience]]\nname=\"a\"\n[[audience]]\nname=\"a\"", "audience has the name \"a\" twice"),
        ("[[strategy]]\nname=\"s\"", "rtad.toml:1: strategy[0] names no audience"),
        (
            "[[audience]]\nname=\"a\"\n[[strategy]]\nname=\"s\"\nexclude=\"a\"",
            "strategy[0].exclude is not a list",
        ),
        (
            "[server]\nidle_timeout=\"10h\"",
            "server.idle_timeout is \"10h\"; accepted: a duration from 1s to 1h",
        ),
        (
            "[server]\nlisten=\"127.0.0.1:1\"\nadmin_listen=\"127.0.0.1:1\"",
            "server.admin_listen is server.listen as well",
        ),
        (
            "[server]\nlisten=\"0.0.0.0:1\"\nadmin_listen=\"127.0.0.1:1\"",
            "server.admin_listen is server.listen as well",
        ),
        (
            "[server]\nlisten=\"127.0.0.1:1\"\nadmin_listen=\"[::]:1\"",
            "server.admin_listen is server.listen as well",
        ),
        (
            "[server]\nlisten=\"0.0.0.0:1\"\n[server.api]\nlisten=\"127.0.0.1:1\"",
            "server.api.listen is server.listen as well",
        ),
        (
            "[server]\nmax_body=\"1MiB\"\nmax_buffered=\"1000000\"",
            "server.max_buffered is less than server.max_body; accepted: at least server.max_body",
        ),
        ("[server]\nmax_body=\"0\"", "server.max_body is \"0\"; accepted: a size"),
        ("[server]\nmax_body=64", "server.max_body is \"64\"; accepted: a size from 1KiB"),
        (
            "[store]\npoll_interval=\"0s\"",
            "store.poll_interval is \"0s\"; accepted: a duration from 100ms to 1h",
        ),
        ("[server\n", "rtad.toml:1: syntax "),
    ] {
        let mistakes = read(text).unwrap_err().mistakes;
        assert!(
            mistakes.iter().any(|mistake| mistake.contains(expected)),
            "{text:?} gave {mistakes:#?}"
        );
    }
}

#[test]
fn flag_overrides_environment_overrides_file_overrides_default() {
    let environment = |name: &str| match name {
        "RTAD_LISTEN" => Some("127.0.0.1:1".to_owned()),
        "RTAD_ADMIN_LISTEN" => Some("127.0.0.1:2".to_owned()),
        "RTAD_STORE" => Some("/from-env".to_owned()),
        "RTAD_STORE_POLL_INTERVAL" => Some("3s".to_owned()),
        "RTAD_SERVICE_HOST" => Some("10.0.0.1".to_owned()),
        _ => None,
    };
    let flags = vec![("server.listen", "127.0.0.1:3".to_owned())];
    let config = read_under(Some(FULL), environment, &flags).unwrap();
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.admin_listen.port(), 2);
    assert_eq!(config.store.url, "/from-env");
    assert_eq!(config.store.poll_interval, Duration::from_secs(3));
}

#[test]
fn mistake_names_the_flag_or_variable() {
    let environment = |name: &str| (name == "RTAD_MAX_BODY").then(|| "big".to_owned());
    let url = "https://me:secret@host/x".to_owned();
    let flags = vec![("server.admin_listen", "here".to_owned()), ("store.url", url)];
    let mistakes = read_under(None, environment, &flags).unwrap_err().mistakes;
    assert_eq!(
        mistakes,
        [
            "--admin-listen: found \"here\"; accepted: an address and port, such as 0.0.0.0:8080 \
             or [::1]:8080",
            "RTAD_MAX_BODY: found \"big\"; accepted: a size from 1KiB, such as 64KiB",
            // A secret is not repeated.
            &format!("--store: found \"https://…@host/x\"; accepted: {ACCEPTED_URLS}"),
        ]
    );
}

#[test]
fn changed_keys_that_need_a_restart_are_listed() {
    let old = read(FULL).unwrap();
    let mut new = old.clone();
    new.strategies.clear();
    assert!(new.needs_restart(&old).is_empty());
    new.server.workers = 3;
    new.store.url = "/elsewhere".to_owned();
    assert_eq!(new.needs_restart(&old), ["server", "store.url"]);
}

#[test]
fn single_brackets_are_one_mistake() {
    let text = "[store]\nurl=\"/d\"\n[audience]\nname=\"a\"\n[strategy]\nname=\"s\"\n\
                exclude=[\"a\"]";
    assert_eq!(
        read(text).unwrap_err().mistakes,
        [
            "rtad.toml:3: audience is a single table, [audience]; accepted: [[audience]]",
            "rtad.toml:5: strategy is a single table, [strategy]; accepted: [[strategy]]",
        ]
    );
}

#[test]
fn mistake_is_one_line_whatever_its_key() {
    let text = "[store]\nurl=\"/d\"\n\"a\\nb\"=1\n[\"c\\u001b\"]";
    assert_eq!(
        read(text).unwrap_err().mistakes,
        [
            "rtad.toml:3: store.a\\nb is not known; accepted: url, poll_interval, \
             max_snapshot_size, stall_timeout, swap, cache_dir, public_keys, public_keys_file",
            "rtad.toml:4: c\\u{1b} is not known; accepted: server, store, ids, audience, \
             strategy, cap_leases, platform",
        ]
    );
}

#[test]
fn ports_may_be_equal_on_different_addresses() {
    for (listen, admin) in [
        ("127.0.0.1:1", "127.0.0.2:1"),
        ("0.0.0.0:1", "[::1]:1"),
        ("0.0.0.0:1", "127.0.0.1:2"),
        ("0.0.0.0:0", "0.0.0.0:0"),
    ] {
        let text =
            format!("[store]\nurl=\"/d\"\n[server]\nlisten=\"{listen}\"\nadmin_listen=\"{admin}\"");
        assert!(read(&text).is_ok(), "{listen} {admin}");
    }
}

#[test]
fn invalid_audience_name_is_one_mistake() {
    let text = "[store]\nurl=\"/d\"\n[[audience]]\nname=\"Old\"\n[[strategy]]\nname=\"s\"\n\
                exclude=[\"Old\"]";
    let mistakes = read(text).unwrap_err().mistakes;
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(mistakes[0].contains("audience[0].name is \"Old\""), "{mistakes:?}");
}

/// A strategy with these lines of `[strategy.cap]`.
fn cap(lines: &str) -> Result<Option<CapConfig>, ConfigError> {
    let rules = "[[audience]]\nname=\"a\"\n[[strategy]]\nname=\"s\"\nexclude=[\"a\"]";
    let config = read(&format!("[store]\nurl=\"/d\"\n{rules}\n[strategy.cap]\n{lines}"))?;
    Ok(config.strategies[0].cap.clone())
}

#[test]
fn cap_has_defaults_and_the_database_spelling_of_its_zone() {
    let hourly = cap("unique_devices = 1_000_000\nper = \"hour\"").unwrap().unwrap();
    assert_eq!((hourly.capacity(), hourly.time_zone.as_str()), (1_000_000, "UTC"));
    let daily = "unique_devices = 7\nper = \"day\"\ntime_zone = \"asia/shanghai\"\nshare = 0.5";
    let daily = cap(daily).unwrap().unwrap();
    assert_eq!((daily.capacity(), daily.time_zone.as_str()), (3, "Asia/Shanghai"));
}

/// A leased cap with these lines of `[cap_leases]`.
fn leases(lines: &str) -> Result<Config, ConfigError> {
    let rules = "[[audience]]\nname=\"a\"\n[[strategy]]\nname=\"s\"\nexclude=[\"a\"]";
    let cap = "unique_devices = 8\nper = \"hour\"\nleased = true";
    read(&format!("[store]\nurl=\"/d\"\n{rules}\n[strategy.cap]\n{cap}\n{lines}"))
}

#[test]
fn leased_cap_has_the_whole_capacity_and_prints_no_password() {
    let config = leases("[cap_leases]\nbackend = \"rediss://me:pass%2Fword@cache:1/2\"").unwrap();
    let cap = config.strategies[0].cap.as_ref().unwrap();
    assert_eq!((cap.capacity(), cap.share, cap.leased), (8, None, true));
    let server = config.cap_leases.as_ref().unwrap();
    assert_eq!(server.redis.url, "rediss://me:pass%2Fword@cache:1/2");
    assert_eq!(server.server(), "rediss://<redacted>@cache:1/2");
    let printed = format!("{} {config:?}", config.to_toml());
    assert!(printed.contains("<redacted>@cache") && !printed.contains("%2F"), "{printed}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("url");
    std::fs::write(&file, "redis://:secret@cache\n").unwrap();
    let config = leases(&format!("[cap_leases]\nbackend_file = {file:?}")).unwrap();
    assert_eq!(config.cap_leases.unwrap().redis.url, "redis://:secret@cache");
}

/// A reload compares fingerprints, and connects anew with another CA.
#[test]
fn replaced_ca_file_of_leases_is_another_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let with_new_ca = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        std::fs::write(&file, ca.pem()).unwrap();
        leases(&format!("[cap_leases]\nbackend = \"rediss://h\"\nbackend_ca_file = {file:?}"))
            .unwrap()
    };
    let [one, other] = [with_new_ca(), with_new_ca()];
    assert_ne!(one.fingerprint, other.fingerprint);
    assert_ne!(one.cap_leases.unwrap().ca, other.cap_leases.unwrap().ca);
}

#[test]
fn mistakes_of_leases_name_the_accepted_values() {
    for (lines, expected) in [
        ("", "strategy \"s\": cap.leased is true without a server; accepted: [cap_leases]"),
        ("share = 0.5", "strategy[0].cap.share is beside leased = true; accepted: one of share"),
        ("[cap_leases]", "cap_leases needs exactly one of backend and backend_file"),
        (
            "[cap_leases]\nbackend = \"http://me:pass@h\"",
            "cap_leases is not accepted: Redis config: url: scheme: expected redis, rediss",
        ),
        ("[cap_leases]\nbackend_file = \"/nowhere\"", "cap_leases.backend_file is \"/nowhere\""),
        (
            "[cap_leases]\nbackend = \"redis://h\"\nnamespace = \"a:b\"",
            "cap_leases.namespace is \"a:b\"; accepted: 1 to 64 of a-z, 0-9, _ and -",
        ),
        (
            "[cap_leases]\nbackend = \"rediss://h\"\nbackend_ca_file = \"/nowhere\"",
            "cap_leases is not accepted: Redis config: ca_file /nowhere: ",
        ),
        ("[cap_leases]\nbackend = \"redis://h\"\nblock = 1", "cap_leases.block is not known"),
        ("[cap_leases]\nbackend = \"redis://<redacted>@h\"", "cap_leases is redacted"),
    ] {
        let mistakes = leases(lines).unwrap_err().mistakes.join("\n");
        assert!(mistakes.contains(expected) && !mistakes.contains("pass@"), "{lines}: {mistakes}");
    }
}

#[test]
fn mistakes_of_a_cap_name_the_accepted_values() {
    let lines = "unique_devices = 0\nper = \"week\"\ntime_zone = \"CST\"\nshare = 1.5\nshares = 1";
    let mistakes = cap(lines).unwrap_err().mistakes;
    for expected in [
        "strategy[0].cap.unique_devices is \"0\"; accepted: a number from 1 to 1000000000",
        "strategy[0].cap.per is \"week\"; accepted: hour or day",
        "strategy[0].cap.time_zone is \"CST\"; accepted: a name of the IANA database",
        "strategy[0].cap.share is \"1.5\"; accepted: a number over 0, up to 1",
        "strategy[0].cap.shares is not known",
    ] {
        assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{mistakes:?}");
    }
    let missing = cap("share = 1").unwrap_err().mistakes.join("\n");
    assert!(missing.contains("cap.unique_devices is missing"), "{missing}");
    assert!(missing.contains("cap.per is missing"), "{missing}");
}
