//! Messages of invalid mappings.

use tempfile::TempDir;

use super::Assembly;
use crate::config::ConfigError;

const PROTO: &str = r#"
syntax = "proto2";
package v;
message Req {
  optional string id = 1;
  repeated string asked = 2;
  optional Device device = 3;
  repeated Did dids = 4;
  optional double score = 5;
  map<string, string> extra = 6;
  optional bool ping = 7;
  optional group Old = 8 { optional string x = 1; }
}
message Device {
  optional string imei = 1;
  optional string imei_md5 = 2;
  optional string oaid = 3;
}
message Did {
  enum Kind { IMEI = 0; OAID = 1; }
  optional Kind type = 1;
  optional string value = 2;
  repeated string more = 3;
}
message Rsp {
  optional int32 code = 1;
  repeated Verdict verdicts = 2;
  repeated string hits = 3;
  optional string joined = 4;
  optional Verdict one = 5;
  optional uint32 seconds = 6;
}
message Verdict {
  optional int64 id = 1;
  optional bool ok = 2;
}
message Strict {
  required string must = 1;
  repeated string hits = 2;
}
"#;

/// A valid config whose lines tests replace.
const MAPPING: &str = r#"
[[platform]]
kind = "custom"
name = "p"
path = "/p"
strategies = { "1" = "new-users" }
body = "protobuf"
proto = "v.proto"
request_message = "v.Req"
response_message = "v.Rsp"
[platform.request]
request_id = "id"
strategies = "asked"
strategies_separator = ","
ping = "ping"
ids = { imei = "device.imei", oaid = ["device.oaid", "device.oaid"] }
[platform.request.id_list]
list = "dids"
value = "value"
type = "type"
kinds = { "IMEI" = "imei", "1" = "oaid" }
[platform.response]
code = { field = "code", bid = 0, no_bid = 1, error = 2 }
verdicts = { list = "verdicts", strategy = "id", accepted = "ok" }
accepted = "hits"
cache = "seconds"
[platform.signature]
mode = "observe"
algorithm = "hmac-sha256"
template = "{id}-{header:x-a}"
in = "query:sign"
timestamp = "body:id"
max_skew = "5m"
secrets = [{ value = "hush" }, { value_file = "secret" }]
"#;

/// The strategy of the mappings.
const STRATEGY: &str = "[[strategy]]\nname = \"new-users\"\nwhen = { os = \"ios\" }\n";

/// Reads a config, with the strategy behind it if it has none.
fn read(text: &str) -> Result<Assembly, ConfigError> {
    let strategy = if text.contains("[[strategy]]") {
        ""
    } else {
        STRATEGY
    };
    let text = &format!("{text}\n{strategy}");

    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("v.proto"), PROTO).unwrap();
    std::fs::write(
        folder.path().join("bad.proto"),
        "syntax = \"proto3\";\nmessage M {\n  strin x = 1;\n}\n",
    )
    .unwrap();
    std::fs::write(
        folder.path().join("worse.proto"),
        "syntax = \"proto3\";\nmessage M {\n  string x 1;\n}\n",
    )
    .unwrap();
    std::fs::write(
        folder.path().join("alone.proto"),
        "syntax = \"proto3\";\nimport \"other.proto\";\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("secret"), "hushed\n").unwrap();
    let file = folder.path().join("rtad.toml");
    let flags = vec![("store.url", "/data".to_owned())];
    let path = file.to_str().unwrap();
    let result = Assembly::read(Some((path, text)), |_| None, &flags);
    result.map_err(|error| {
        let strip = |mistake: String| mistake.replace(&format!("{path}:"), "");
        ConfigError {
            mistakes: error.mistakes.into_iter().map(strip).collect(),
        }
    })
}

#[test]
fn effective_config_round_trips_without_secrets() {
    let assembly = read(MAPPING).unwrap();
    let text = assembly.config.to_toml();
    assert!(!text.contains("hush"), "{text}");
    assert!(
        text.contains("<redacted>") && text.contains("value_file = \"secret\""),
        "{text}"
    );
    // With the secret restored, the output is a valid config.
    let mistakes = read(&text).unwrap_err().mistakes;
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let again =
        read(&text.replace("<redacted>", "hush")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(again.config.to_toml(), text);
    for line in MAPPING.lines().filter(|line| line.contains(" = \"")) {
        let (key, value) = line.split_once(" = ").unwrap();
        if !value.starts_with(['{', '[']) {
            assert!(
                text.lines().any(|written| written.trim() == line),
                "{key} in\n{text}"
            );
        }
    }
}

#[test]
fn json_needs_no_schema() {
    let text = r#"
[[platform]]
kind = "custom"
name = "p"
path = "/p"
strategies = { "1" = "new-users" }
body = "json"
request = { ids = { imei = "a.b" } }
response = { accepted = "hits" }
"#;
    let written = read(text).unwrap().config.to_toml();
    assert_eq!(read(&written).unwrap().config.to_toml(), written);
    let mistakes = read(&text.replace("\"a.b\"", "[\"a.b\", \"a\"]"))
        .unwrap_err()
        .mistakes;
    assert_eq!(
        mistakes,
        ["8: [[platform]] \"p\": request.ids.imei[1] is \"a\": \
             is a value for one key and an object for another; accepted: \
          paths of which none is a prefix of another"]
    );
    let mistakes = read(&text.replace("body", "proto = \"x\"\nbody"))
        .unwrap_err()
        .mistakes;
    assert!(
        mistakes.iter().any(
            |mistake| mistake.starts_with("7: [[platform]] \"p\": proto is not known for body")
        ),
        "{mistakes:?}"
    );
}

#[test]
fn each_mistake_has_its_message() {
    let mistakes = |text: &str| {
        let mistakes = read(text).unwrap_err().mistakes;
        mistakes
            .iter()
            .map(|mistake| mistake.trim().to_owned())
            .collect()
    };
    testkit::mistakes::assert_each("src/serve/assemble/tests/custom.txt", MAPPING, mistakes);
}

#[test]
fn platform_without_a_no_bid_or_ids_is_a_mistake() {
    let text = r#"
[[platform]]
kind = "custom"
name = "p"
path = "/p"
strategies = { "1" = "new-users" }
body = "json"
request = { request_id = "id" }
response = { code = { field = "code", bid = 0, no_bid = 0 } }
"#;
    let mistakes = read(text).unwrap_err().mistakes;
    assert_eq!(
        mistakes,
        [
            "8: [[platform]] \"p\": request maps no id; accepted: ids or id_list",
            "9: [[platform]] \"p\": response cannot express a no-bid; accepted: code with a no_bid \
                other than bid, verdicts, accepted, first_accepted or accepted_ids",
        ]
    );
    let mistakes = read(
        "[[platform]]\nkind = \"custom\"\nname = \"p\"\npath = \"/p\"\nstrategies \
        = { \"1\" = \"new-users\" }\nbody = \"json\"",
    )
    .unwrap_err()
    .mistakes;
    assert_eq!(
        mistakes,
        [
            "1: [[platform]] \"p\": request is missing; accepted: [platform.request] with \
                request_id, strategies, ids and so on",
            "1: [[platform]] \"p\": response is missing; accepted: [platform.response] with code, \
                verdicts, accepted and so on",
        ]
    );
}

#[test]
fn secret_in_a_template_is_in_no_mistake() {
    for template in [
        "{id}pasted-secret{",
        "pasted-secret}",
        "pasted-secret{ids}",
        "{query:}pasted-secret",
    ] {
        let text = MAPPING.replacen("{id}-{header:x-a}", template, 1);
        let mistakes = read(&text).unwrap_err().to_string();
        assert!(!mistakes.contains("pasted"), "{mistakes}");
    }
    let text = MAPPING
        .replacen("{id}-{header:x-a}", "{id}pasted-secret", 1)
        .replacen("hmac-sha256", "md5", 1);
    let mistakes = read(&text).unwrap_err().to_string();
    assert!(
        mistakes.contains("has no {secret}") && !mistakes.contains("pasted"),
        "{mistakes}"
    );
}

#[test]
fn strategy_id_must_fit_packed_lists_and_requested_numbers() {
    let proto = "syntax = \"proto3\"; message Q { repeated uint32 asked = 1; string i = 2; } \
        message R { repeated int32 hits = 1; }";
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("n.proto"), proto).unwrap();
    let text = r#"
[[platform]]
kind = "custom"
name = "p"
path = "/p"
strategies = { "5000000000" = "new-users", "-1" = "new-users" }
body = "protobuf"
proto = "n.proto"
request_message = "Q"
response_message = "R"
request = { strategies = "asked", ids = { imei = "i" } }
response = { accepted = "hits" }
[[strategy]]
name = "new-users"
when = { os = "ios" }
"#;
    let file = folder.path().join("rtad.toml");
    let flags = vec![("store.url", "/data".to_owned())];
    let found = Assembly::read(Some((file.to_str().unwrap(), text)), |_| None, &flags);
    let found = found.unwrap_err().to_string();
    for expected in [
        "response.accepted is \"hits\": it cannot hold strategy \"5000000000\"; accepted: \
            strategy ids from -2147483648 to 2147483647, ",
        "request.strategies is \"asked\": it cannot hold strategy ",
        "accepted: strategy ids from 0 to 4294967295, ",
    ] {
        assert!(found.contains(expected), "{expected}\n{found}");
    }
}
