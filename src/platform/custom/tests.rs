//! Mapped platforms, with handwritten request bytes.

mod examples;
mod json;
mod properties;
mod protobuf;
mod shapes;
mod signature;
mod values;

use std::sync::Arc;

use http::HeaderMap;
use tempfile::TempDir;

use super::*;
use crate::config::ConfigError;
use crate::platform::testing::{
    BID, BID_UNAVAILABLE, NO_BID, NO_BID_UNAVAILABLE, Script, fallback, reply, verdicts,
};
use crate::platform::{Platform, RequestHead};
use crate::serve::Assembly;
use crate::strategy::Decision;

/// The common head of the test configs.
const HEAD: &str = r#"
[[audience]]
name = "old"
[[strategy]]
name = "a"
exclude = ["old"]
[[strategy]]
name = "b"
exclude = ["old"]
[[platform]]
kind = "custom"
name = "p"
path = "/p"
strategies = { "1" = "a", "2" = "b" }
"#;
/// For mappings with a field of the cache time.
const CACHE: &str = "bid_cache = \"1h\"\nno_bid_cache = \"2h\"\n";

const PROTO2: &str = r#"
syntax = "proto2";
package t;
enum Kind { IMEI = 0; OAID = 1; }
message Req {
  optional string id = 1;
  repeated int64 asked = 2;
  repeated fixed32 packed = 3 [packed = true];
  optional Device device = 4;
  repeated Did dids = 5;
  optional bool ping = 6;
  optional sint64 time = 7;
  optional group Old = 8 { optional string imei = 9; }
  optional string sign = 10;
  map<string, string> extra = 11;
  optional float score = 12;
}
message Device {
  optional string imei = 1;
  optional string oaid = 2;
  repeated string caid = 3;
  optional uint64 number = 5;
}
message Did {
  optional Kind type = 1;
  optional string value = 2;
  optional bool hashed = 3;
}
message Rsp {
  optional int32 code = 1;
  repeated Verdict verdicts = 2;
  optional string id = 3;
  repeated sint32 accepted = 4 [packed = true];
  optional RequestHead head = 5;
  optional string joined = 6;
  message RequestHead { optional Inner inner = 1; }
  message Inner { optional uint32 cache = 1; }
}
message Verdict {
  optional int64 strategy = 1;
  optional bool accept = 2;
}
"#;

const PROTOBUF: &str = r#"
body = "protobuf"
proto = "p.proto"
request_message = "t.Req"
response_message = "t.Rsp"
[platform.request]
request_id = "id"
strategies = "asked"
ping = "ping"
ids = { imei = "device.imei", oaid = "device.oaid", caid = ["device.caid"], openid = "device.number" }
[platform.request.id_list]
list = "dids"
value = "value"
type = "type"
secure = "hashed"
kinds = { "IMEI" = "imei", "OAID" = "oaid", "OAID/true" = "oaid_md5" }
[platform.response]
request_id = "id"
code = { field = "code", bid = 0, no_bid = 1, error = -5 }
verdicts = { list = "verdicts", strategy = "strategy", accepted = "accept" }
accepted = "accepted"
cache = "head.inner.cache"
"#;

/// A platform, whose files are deleted.
fn platform(proto: &str, mapping: &str) -> Arc<Platform> {
    Arc::clone(&assembly(proto, mapping).platforms[0])
}

fn assembly(proto: &str, mapping: &str) -> Assembly {
    read(proto, mapping).unwrap()
}

/// The mistakes in a mapping.
fn refused(proto: &str, mapping: &str) -> Vec<String> {
    read(proto, mapping).unwrap_err().mistakes
}

fn read(proto: &str, mapping: &str) -> Result<Assembly, ConfigError> {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("p.proto"), proto).unwrap();
    let file = folder.path().join("rtad.toml");
    let flags = vec![("store.url", "/data".to_owned())];
    let cache = if mapping.contains("cache = ") {
        CACHE
    } else {
        ""
    };
    let text = format!("{HEAD}{cache}{mapping}");
    Assembly::read(Some((file.to_str().unwrap(), &text)), |_| None, &flags)
}

/// The adapter of its platform, built again, to set its clock.
fn custom(assembly: &Assembly) -> Custom {
    let ids = assembly.platforms[0].strategy_ids().collect();
    Custom::build(&assembly.config.platforms[0], ids, &[], &[]).unwrap()
}

/// The answer, and what was read.
fn asked(
    platform: &Platform,
    body: &[u8],
    decisions: &[Decision],
) -> (Result<Bytes, Failure>, Script) {
    let mut script = Script::deciding(decisions);
    let answer = reply(
        &*platform.adapter,
        Bytes::copy_from_slice(body),
        &mut script,
    );
    (answer, script)
}

/// The answer of an adapter at a time, and what was read.
fn asked_at(
    custom: &Custom,
    admission: Admission,
    head: RequestHead<'_>,
    body: &[u8],
    now: Duration,
) -> (Result<Bytes, Failure>, Script) {
    let body = Bytes::copy_from_slice(body);
    let (mut script, mut read) = (Script::deciding(&[BID, BID]), Read::default());
    let result = custom.read_at(
        &Request {
            admission,
            head,
            body: &body,
        },
        &mut read,
        || now,
    );
    (script.answer(custom, &read, result), script)
}

#[test]
fn requested_strategies_decide_once_and_are_echoed() {
    let platform = platform(PROTO2, PROTOBUF);
    // asked 1, 9, 1, 2
    let (answer, script) = asked(
        &platform,
        b"\x10\x01\x10\x09\x10\x01\x10\x02",
        &[BID, NO_BID],
    );
    let verdicts =
        b"\x12\x04\x08\x01\x10\x01\x12\x04\x08\x09\x10\x00\x12\x04\x08\x01\x10\x01\x12\x04\x08\x02\
            \x10\x00";
    let expected = [
        &b"\x08\x00"[..],
        verdicts,
        b"\x22\x01\x02",
        b"\x2a\x05\x0a\x03\x08\x90\x1c",
    ]
    .concat();
    assert_eq!(answer.unwrap(), expected);
    assert_eq!(script.asked, [0, 1]);
    assert_eq!(
        script.notes,
        ["strategy: 1", "strategy: 9", "strategy: 1", "strategy: 2"]
    );
}

#[test]
fn request_without_strategies_gets_all_verdicts() {
    let platform = platform(PROTO2, PROTOBUF);
    let (answer, script) = asked(&platform, b"\x0a\x01r", &[NO_BID, NO_BID]);
    let expected = [
        &b"\x08\x01\x12\x04\x08\x01\x10\x00\x12\x04\x08\x02\x10\x00\x1a\x01r"[..],
        b"\x2a\x05\x0a\x03\x08\xa0\x38",
    ];
    assert_eq!(answer.unwrap(), expected.concat());
    assert_eq!(script.asked, [0, 1]);
}

#[test]
fn unavailable_decision_carries_no_cache_time() {
    let platform = platform(PROTO2, PROTOBUF);
    let (answer, _) = asked(&platform, b"\x10\x01", &[NO_BID_UNAVAILABLE, BID]);
    assert_eq!(answer.unwrap(), b"\x08\x01\x12\x04\x08\x01\x10\x00"[..]);
}

#[test]
fn ping_is_answered_without_a_decision() {
    let platform = platform(PROTO2, PROTOBUF);
    let (answer, script) = asked(&platform, b"\x22\x03\x0a\x01i\x0a\x01r\x30\x01", &[]);
    assert_eq!(answer.unwrap(), b"\x08\x00\x1a\x01r"[..]);
    assert!(script.ids.is_empty() && script.asked.is_empty());
    let (answer, script) = asked(&platform, b"\x10\x01\x30\x00", &[BID, BID]);
    assert!(
        answer.is_ok() && script.asked == [0],
        "a false ping field is not a ping"
    );
}

#[test]
fn unreadable_body_gets_error_code_and_unavailable_answers() {
    let platform = platform(PROTO2, PROTOBUF);
    for body in [&b"\x0a\x05r"[..], b""] {
        let (answer, script) = asked(&platform, body, &[BID]);
        assert_eq!(answer, Err(Failure::BadBody));
        assert!(
            script.ids.is_empty() && script.asked.is_empty(),
            "a truncated body has no effect"
        );
    }
    let answer = fallback(&*platform.adapter, &[BID_UNAVAILABLE, NO_BID_UNAVAILABLE]);
    let minus_five = b"\x08\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    let verdicts = b"\x12\x04\x08\x01\x10\x01\x12\x04\x08\x02\x10\x00\x22\x01\x02";
    assert_eq!(answer, [&minus_five[..], verdicts].concat());
    assert_eq!(
        platform.adapter.refusal(),
        minus_five[..],
        "an unauthorized caller sees no strategy"
    );
    assert_eq!(platform.content_type(), Some("application/x-protobuf"));
}

#[test]
fn strategies_and_ids_of_a_request_are_limited() {
    let platform = platform(PROTO2, PROTOBUF);
    let most = b"\x10\x01".repeat(crate::platform::read::MAX_ASKED);
    let (answer, script) = asked(&platform, &most, &[BID, BID]);
    assert!(answer.is_ok());
    assert_eq!(script.asked, [0]);
    let (answer, _) = asked(&platform, &[&most[..], b"\x10\x01"].concat(), &[BID, BID]);
    assert_eq!(answer, Err(Failure::BadBody));
    let caid = b"\x22\x03\x1a\x01c".repeat(2000);
    let (answer, script) = asked(&platform, &caid, &[BID, BID]);
    assert!(answer.is_ok());
    assert_eq!(
        script.ids.len(),
        crate::platform::MAX_READ_IDS + 1,
        "one more than the limit shows that there are too many"
    );
}

#[test]
fn debug_output_hides_ids() {
    let value = Value::Bytes(b"868049039501257");
    assert_eq!(
        format!("{value:?} {:?}", Value::Uint(868_049_039_501_257)),
        "Value(hidden) Value(hidden)"
    );
}

#[test]
fn length_prefix_of_long_answers_grows() {
    let proto = "syntax = \"proto3\"; message Q { string i = 1; repeated string s = 2; } \
                 message R { H head = 1; } message H { repeated V v = 1; } message V { string s = \
                 1; int32 ok = 2; }";
    let mapping = r#"
body = "protobuf"
proto = "p.proto"
request_message = "Q"
response_message = "R"
request = { ids = { imei = "i" }, strategies = "s" }
response = { verdicts = { list = "head.v", strategy = "s", accepted = "ok" } }
"#;
    let strategy = [b'x'; 200];
    let body = [&b"\x12\xc8\x01"[..], &strategy].concat();
    let (answer, _) = asked(&platform(proto, mapping), &body, &[BID, BID]);
    let expected = [
        &b"\x0a\xd0\x01\x0a\xcd\x01\x0a\xc8\x01"[..],
        &strategy,
        b"\x10\x00",
    ]
    .concat();
    assert_eq!(answer.unwrap(), expected);
}

/// The answer to a batch, of which these ids get bids, and the id and strategies of each device
/// that was decided.
fn answered(
    platform: &Platform,
    body: &[u8],
    bids: impl Fn(&[u8]) -> bool,
) -> (String, Vec<String>) {
    let (headers, body) = (HeaderMap::new(), Ok(Bytes::copy_from_slice(body)));
    let head = RequestHead {
        headers: &headers,
        query: None,
    };
    let (mut read, mut decided) = (Read::default(), Vec::new());
    let answered = platform.respond(
        Admission::Granted,
        head,
        &body,
        &mut read,
        |read, answered| {
            let [id] = &read.ids[..] else {
                panic!("a device of one id")
            };
            let asked: Vec<_> = read
                .asked
                .iter()
                .map(|asked| asked.id.to_string())
                .collect();
            decided.push(format!("{} {}", id.value, asked.join(" ")));
            let decision = if bids(id.value.text(&mut Digits::new())) {
                BID
            } else {
                NO_BID
            };
            answered.extend(verdicts(read, &[decision, NO_BID]));
        },
    );
    (String::from_utf8(answered.bytes.to_vec()).unwrap(), decided)
}
