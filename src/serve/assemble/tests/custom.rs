//! Messages of invalid mappings.

mod paths;

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
encoding = "upper-hex"
in = "query:sign"
timestamp = "body:id"
timestamp_unit = "s"
max_skew = "5m"
secrets = [{ value = "hush" }, { value_file = "secret" }]
"#;

fn read(text: &str) -> Result<Assembly, ConfigError> {
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
        ConfigError { mistakes: error.mistakes.into_iter().map(strip).collect() }
    })
}

#[test]
fn effective_config_round_trips_without_secrets() {
    let assembly = read(MAPPING).unwrap();
    let text = assembly.config.to_toml();
    assert!(!text.contains("hush"), "{text}");
    assert!(text.contains("<redacted>") && text.contains("value_file = \"secret\""), "{text}");
    // With the secret restored, the output is a valid config.
    let mistakes = read(&text).unwrap_err().mistakes;
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let again =
        read(&text.replace("<redacted>", "hush")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(again.config.to_toml(), text);
    for line in MAPPING.lines().filter(|line| line.contains(" = \"")) {
        let (key, value) = line.split_once(" = ").unwrap();
        if !value.starts_with(['{', '[']) {
            assert!(text.lines().any(|written| written.trim() == line), "{key} in\n{text}");
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
response = { accepted = "hits", strategies_as = "number" }
"#;
    let written = read(text).unwrap().config.to_toml();
    assert_eq!(read(&written).unwrap().config.to_toml(), written);
    let mistakes = read(&text.replace("\"a.b\"", "[\"a.b\", \"a\"]")).unwrap_err().mistakes;
    assert_eq!(
        mistakes,
        ["8: platform[0].request.ids.imei[1] is \"a\": \
             is a value for one key and an object for another; accepted: \
          paths of which none is a prefix of another"]
    );
    let mistakes = read(&text.replace("\"1\"", "\"one\"")).unwrap_err().mistakes;
    assert_eq!(
        mistakes,
        ["9: platform[0].response has strategies_as = \"number\", \
             which does not fit strategy \"one\"; accepted: strategy \
             ids from -9223372036854775808 to 18446744073709551615, \
             without a plus or leading zeros"]
    );
    let mistakes = read(&text.replace("body", "proto = \"x\"\nbody")).unwrap_err().mistakes;
    assert!(
        mistakes
            .iter()
            .any(|mistake| mistake.starts_with("7: platform[0].proto is not known for body")),
        "{mistakes:?}"
    );
}

#[test]
fn schema_and_key_mistakes_have_messages() {
    for (line, instead, expected) in [
        (
            "v.proto",
            "none.proto",
            "8: platform[0].proto is \"none.proto\": there is no such file; accepted: a .proto \
                file that compiles",
        ),
        (
            "v.proto",
            "bad.proto",
            "8: platform[0].proto is \"bad.proto\": bad.proto:3:3: name 'strin' is not defined; \
                accepted: a .proto file that compiles",
        ),
        (
            "v.proto",
            "worse.proto",
            "8: platform[0].proto is \"worse.proto\": worse.proto:3:12: expected '=', but found \
                '1'; accepted: a .proto file that compiles",
        ),
        (
            "v.proto",
            "alone.proto",
            "8: platform[0].proto is \"alone.proto\": alone.proto:2:1: import 'other.proto' not \
                found; accepted: a .proto file that compiles",
        ),
        (
            "v.Req",
            "v.Request",
            "9: platform[0].request_message is \"v.Request\": there is no such message; accepted: \
                v.Req, v.Req.Old, v.Device, v.Did, v.Rsp, v.Verdict, v.Strict",
        ),
        (
            "v.Rsp",
            "v.Strict",
            "22: platform[0].response maps nothing to Strict.must; accepted: a mapping of every \
                required field",
        ),
        ("\"protobuf\"", "\"xml\"", "7: platform[0].body is \"xml\"; accepted: protobuf or json"),
        (
            "request_message = \"v.Req\"",
            "",
            "2: platform[0].request_message is missing; accepted: a message's full name",
        ),
        (
            "strategies = \"asked\"",
            "",
            "14: platform[0].request.strategies_separator is given without strategies; accepted: \
                both, or strategies alone",
        ),
        (
            "max_skew = \"5m\"",
            "",
            "27: platform[0].signature has one of timestamp and max_skew; \
             accepted: both, or neither",
        ),
        ("secrets =", "secret =", "27: platform[0].signature.secrets is missing; accepted: a list"),
        (
            "\"observe\"",
            "\"maybe\"",
            "28: platform[0].signature.mode is \"maybe\"; accepted: enforce, observe or off",
        ),
        (
            "hmac-sha256",
            "md4",
            "29: platform[0].signature.algorithm is \"md4\"; accepted: md5, sha1, sha256 or \
                hmac-sha256",
        ),
        (
            "bid = 0",
            "bid = \"no\"",
            "23: platform[0].response.code.bid is \"no\"; accepted: a whole number",
        ),
        (
            ", no_bid = 1",
            "",
            "23: platform[0].response.code.no_bid is missing; accepted: a whole number",
        ),
    ] {
        assert!(MAPPING.contains(line), "{line}");
        let mistakes = read(&MAPPING.replacen(line, instead, 1)).unwrap_err().mistakes;
        let mistakes: Vec<&str> = mistakes.iter().map(|mistake| mistake.trim()).collect();
        assert!(mistakes.contains(&expected), "{instead}\n{expected}\n{mistakes:#?}");
        assert!(
            mistakes.iter().all(|mistake| !mistake.contains('\n')),
            "one line each: {mistakes:#?}"
        );
    }
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
            "8: platform[0].request maps no id; accepted: ids or id_list",
            "9: platform[0].response cannot express a no-bid; accepted: code with a no_bid other \
                than bid, verdicts, or accepted",
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
            "1: platform[0].request is missing; accepted: [platform.request] with request_id, \
                strategies, ids and so on",
            "1: platform[0].response is missing; accepted: [platform.response] with code, \
                verdicts, accepted and so on",
        ]
    );
}
