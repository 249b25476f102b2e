//! Reading and building of `[[platform]]`.

use std::time::Duration;

use http::HeaderName;

use super::Assembly;
use crate::config::ConfigError;

const REST: &str = "[store]\nurl = \"/data\"\n[[audience]]\nname = \"a\"\n\
    [[strategy]]\nname = \"first\"\nexclude = [\"a\"]\n\
                    [[strategy]]\nname = \"new-users\"\nexclude = [\"a\"]\n";

const TENCENT: &str = r#"
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { "T1001" = "new-users", "T1002" = "first" }
bid_cache = "1h"
no_bid_cache = "24h"
"#;

fn read(platforms: &str) -> Result<Assembly, ConfigError> {
    read_at("rtad.toml", &format!("{REST}{platforms}"))
}

fn read_at(path: &str, text: &str) -> Result<Assembly, ConfigError> {
    Assembly::read(Some((path, text)), |_| None, &Vec::new())
}

fn mistakes(platforms: &str) -> Vec<String> {
    read(platforms).unwrap_err().mistakes
}

#[test]
fn platform_ids_map_to_strategies() {
    let assembly = read(TENCENT).unwrap();
    let platform = &assembly.config.platforms[0];
    assert_eq!(
        (platform.kind.as_str(), platform.path.as_str()),
        ("tencent", "/rta/tencent")
    );
    assert_eq!(platform.bid_cache, Some(Duration::from_secs(3600)));
    assert_eq!(
        assembly.platforms[0].strategies().collect::<Vec<_>>(),
        [1, 0]
    );
    let ocean = TENCENT
        .replace("kind = \"tencent\"", "kind = \"ocean\"")
        .replace("T1001", "-7")
        .replace("T1002", "9");
    assert_eq!(
        read(&ocean).unwrap().platforms[0]
            .strategies()
            .collect::<Vec<_>>(),
        [1, 0]
    );
}

#[test]
fn config_without_audiences_and_strategies_serves_nothing() {
    let found = read_at("rtad.toml", "[store]\nurl = \"/data\"\n").unwrap_err();
    let expected = "rtad.toml: audience is missing; accepted: an [[audience]] or a [[strategy]]: \
                    there is nothing to serve";
    assert_eq!(found.mistakes, [expected]);
}

/// Values beyond the bounds of Tencent, which Ocean Engine does not publish.
#[test]
fn values_are_within_the_bounds_of_the_strategys_platforms() {
    let values = "[[audience]]\nname = \"vip\"\n[[strategy]]\nname = \"valued\"\n\
                  exclude = [\"a\"]\n[[strategy.value]]\naudience = \"vip\"\nweight = 5.01\n\
                  cpc_price = 9\n[[strategy.value]]\nweight = 0.2\ncpc_factor = 0.19\n";
    let tencent = TENCENT.replace("\"T1001\" = \"new-users\"", "\"T1001\" = \"valued\"");
    let expected = [
        "rtad.toml:18: [[strategy]] \"valued\": value[0].weight is 5.01; accepted: 0.2 to 5, \
         which the platform tencent accepts",
        "rtad.toml:19: [[strategy]] \"valued\": value[0].cpc_price is 9; accepted: 10 to \
         1000000000, which the platform tencent accepts",
        "rtad.toml:22: [[strategy]] \"valued\": value[1].cpc_factor is 0.19; accepted: 0.2 to 5, \
         which the platform tencent accepts",
    ];
    assert_eq!(mistakes(&format!("{values}{tencent}")), expected);
    read(&format!("{values}{TENCENT}")).unwrap();
}

#[test]
fn numbers_of_tags_are_within_the_bounds_of_the_strategys_platforms() {
    let ocean = TENCENT
        .replace("kind = \"tencent\"", "kind = \"ocean\"")
        .replace("T1001", "7")
        .replace("T1002", "9");
    let tested = "[[experiment]]\nname = \"e\"\n\
                  buckets = [{ name = \"b\", slots = \"0..1\", tag_number = 11 }]\n\
                  [[strategy]]\nname = \"tested\"\n\
                  when = { any = [\"a\", { bucket = \"e:none\" }] }\n";
    // Only strategies without the experiment are mapped.
    read(&format!("{tested}{ocean}")).unwrap();
    let ocean = ocean.replace("\"first\"", "\"tested\"");
    let expected = "[[experiment]] \"e\": buckets[0].tag_number is 11; accepted: 1 to 10, which \
                    the platform tencent accepts";
    let found = mistakes(&format!("{tested}{ocean}"));
    assert!(
        found.len() == 1 && found[0].ends_with(expected),
        "{found:?}"
    );
    let tencent = TENCENT.replace("\"first\"", "\"tested\"");
    read(&format!("{tested}{tencent}")).unwrap();
}

#[test]
fn settings_that_platforms_lack_are_warned_about() {
    let tested = "[[experiment]]\nname = \"e\"\n\
                  buckets = [{ name = \"b\", slots = \"0..10000\", tag = \"t\" }]\n\
                  [[strategy]]\nname = \"tested\"\n\
                  when = { os = \"ios\", slot = \"7\", bucket = \"e:b\", \
                  any = [{ region = \"1\" }, { absent = \"region\" }] }\n\
                  [[strategy.value]]\nweight = 1.5\nquality = 2\n";
    let warnings = |platform: &str| {
        let api = "[server.api]\npublic = true\n";
        let assembly = read(&format!("{tested}{platform}{api}"));
        assembly.unwrap().warnings()
    };
    let tencent = TENCENT.replace("\"first\"", "\"tested\"");
    let slot = "the condition of tested reads slot, which the platform tencent never sends: \
                decisions are unavailable where the rest of the condition leaves it open";
    let lost = |key| format!("no platform of tested takes its {key}: only /v1/decide shows it");
    assert_eq!(warnings(&tencent), [slot.to_owned(), lost("quality")]);
    // Another platform takes the number.
    let ocean = "[[platform]]\nkind = \"ocean\"\nname = \"ocean\"\npath = \"/o\"\n\
                 strategies = { \"1\" = \"tested\" }\n";
    assert_eq!(warnings(&format!("{tencent}{ocean}")), [slot]);
    // No platform has the strategy.
    assert!(warnings(TENCENT).is_empty());
    let custom = "[[platform]]\nkind = \"custom\"\nname = \"tencent\"\npath = \"/c\"\n\
                  strategies = { \"1\" = \"tested\" }\nbody = \"json\"\n\
                  request = { request_id = \"id\", ids = { oaid = \"oaid\" }, \
                  attributes = { os = \"os\" } }\n\
                  response = { code = { field = \"code\", bid = 0, no_bid = 1 } }\n";
    let tag = "no platform of e takes the tag of b: map tag";
    let all = [
        slot.to_owned(),
        lost("weight"),
        lost("quality"),
        tag.to_owned(),
    ];
    assert_eq!(warnings(custom), all);
}

#[test]
fn each_mistake_has_its_message() {
    testkit::mistakes::assert_each("src/serve/assemble/tests/platforms.txt", TENCENT, mistakes);
}

#[test]
fn secret_from_config_or_file_is_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rtad.toml");
    std::fs::write(directory.path().join("token"), "from-file\n").unwrap();
    std::fs::write(directory.path().join("empty"), "\n").unwrap();
    let with = |header: &str| {
        let text = format!("{REST}{TENCENT}headers = [{header}]\n");
        read_at(path.to_str().unwrap(), &text)
    };
    let good =
        "{ name = \"X-A\", value = \"in-config\" }, { name = \"X-B\", value_file = \"token\" }";
    let assembly = with(good).unwrap();
    let admits = |name: &'static str, value: &'static str| {
        let headers = [(HeaderName::from_static(name), value.parse().unwrap())]
            .into_iter()
            .collect();
        assembly.platforms[0].access.admits(&headers)
    };
    assert!(admits("x-a", "in-config") && admits("x-b", "from-file"));
    assert!(!admits("x-a", "<redacted>") && !admits("x-b", "token") && !admits("x-a", "from-file"));
    let printed = assembly.config.to_toml();
    assert!(
        !printed.contains("in-config") && !printed.contains("from-file"),
        "{printed}"
    );
    assert!(
        printed.contains("value = \"<redacted>\"") && printed.contains("value_file = \"token\""),
        "{printed}"
    );
    // The placeholder of a secret must not grant access.
    let mistakes = read_at(path.to_str().unwrap(), &printed)
        .unwrap_err()
        .mistakes;
    assert!(
        mistakes.len() == 1 && mistakes[0].contains("headers[0] is redacted"),
        "{mistakes:?}"
    );
    let text = with("{ name = \"X-B\", value_file = \"token\" }")
        .unwrap()
        .config
        .to_toml();
    assert_eq!(
        read_at(path.to_str().unwrap(), &text)
            .unwrap()
            .config
            .to_toml(),
        text
    );
    assert!(!format!("{assembly:?}").contains("in-config"));

    for (header, expected) in [
        (
            "{ name = \"X-A\" }",
            "headers[0] needs exactly one of value and value_file",
        ),
        (
            "{ name = \"X-A\", value = \"secret1\", value_file = \"token\" }",
            "headers[0] needs exactly one of value and value_file",
        ),
        (
            "{ name = \"X A\", value = \"secret1\" }",
            "headers[0].name is \"X A\"; accepted: a header's name",
        ),
        ("{ value = \"secret1\" }", "headers[0].name is missing"),
        (
            "{ name = \"X-A\", value = \"\" }",
            "headers[0] has a secret that is empty",
        ),
        (
            "{ name = \"X-A\", value = \"secret1\\u0001\" }",
            "headers[0] has a secret that is empty or not printable",
        ),
        (
            "{ name = \"X-A\", value_file = \"empty\" }",
            "headers[0] has a secret that is empty",
        ),
        (
            "{ name = \"X-A\", value = \"secret1 \" }",
            "headers[0] has a secret that begins or ends with a space",
        ),
        (
            "{ name = \"X-A\", value_file = \"none\" }",
            "none\": No such file or directory",
        ),
        (
            "{ name = \"X-A\", value = [\"secret1\"] }",
            "headers[0].value has a value that is not one",
        ),
        (
            "{ name = \"X-A\", value = \"secret1\", secret = \"secret1\" }",
            "headers[0].secret is not known",
        ),
    ] {
        let mistakes = with(header).unwrap_err().mistakes;
        assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
        assert!(
            mistakes[0].contains(expected) && !mistakes[0].contains("secret1"),
            "{header} gave {mistakes:#?}"
        );
    }
}
