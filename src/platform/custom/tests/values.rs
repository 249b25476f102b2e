//! Values of bids in mapped fields.

use super::*;
use crate::platform::testing::bid_with;

const RULES: &str = r#"
[[audience]]
name = "old"
[[audience]]
name = "vip"
[[strategy]]
name = "a"
exclude = ["old"]
[[strategy.value]]
audience = "vip"
weight = 2.5
cpa_price = 3000
cpc_factor = 0.5
[[strategy.value]]
cpa_price = 200
[[strategy]]
name = "b"
exclude = ["old"]
[[platform]]
kind = "custom"
name = "p"
path = "/p"
strategies = { "1" = "a", "2" = "b" }
"#;

const PROTO: &str = r#"
syntax = "proto3";
package t;
message Req { repeated int64 asked = 1; }
message Rsp { repeated Verdict verdicts = 1; }
message Verdict {
  int64 strategy = 1;
  bool accept = 2;
  Price price = 3;
  double factor = 4;
  string name = 5;
}
message Price { float weight = 1; sint32 cpa = 2; }
"#;

const PROTOBUF_MAPPING: &str = r#"
body = "protobuf"
proto = "p.proto"
request_message = "t.Req"
response_message = "t.Rsp"
request = { strategies = "asked", ids = { md5 = "asked" } }
[platform.response.verdicts]
list = "verdicts"
strategy = "strategy"
accepted = "accept"
weight = "price.weight"
cpa_price = "price.cpa"
cpc_factor = "factor"
"#;

fn read(mapping: &str) -> Result<Assembly, ConfigError> {
    read_with(RULES, mapping)
}

fn read_with(rules: &str, mapping: &str) -> Result<Assembly, ConfigError> {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("p.proto"), PROTO).unwrap();
    let file = folder.path().join("rtad.toml");
    let flags = vec![("store.url", "/data".to_owned())];
    let text = format!("{rules}{mapping}");
    Assembly::read(Some((file.to_str().unwrap(), &text)), |_| None, &flags)
}

fn valued(mapping: &str) -> Arc<Platform> {
    Arc::clone(&read(mapping).unwrap().platforms[0])
}

#[test]
fn protobuf_has_the_numbers_of_bids() {
    let platform = valued(PROTOBUF_MAPPING);
    let answer = |decision| {
        asked(&platform, b"\x08\x01\x08\x02", &[decision, BID])
            .0
            .unwrap()
    };
    let vip = b"\x0a\x17\x08\x01\x10\x01\x1a\x08\x0d\x00\x00\x20\x40\x10\xf0\x2e\
                \x21\x00\x00\x00\x00\x00\x00\xe0\x3f";
    let other = b"\x0a\x09\x08\x01\x10\x01\x1a\x03\x10\x90\x03";
    let without = |strategy, bid| [b"\x0a\x04\x08", &[strategy][..], b"\x10", &[bid][..]].concat();
    let second = without(2, 1);
    assert_eq!(answer(bid_with(0)), [&vip[..], &second].concat());
    assert_eq!(answer(bid_with(1)), [&other[..], &second].concat());
    assert_eq!(answer(NO_BID), [without(1, 0), second].concat());
}

#[test]
fn json_has_the_numbers_of_bids() {
    let platform = valued(
        r#"
body = "json"
request = { strategies = "asked", ids = { md5 = "id" } }
[platform.response.verdicts]
list = "verdicts"
strategy = "strategy"
accepted = "accept"
weight = "weight"
cpa_price = "cpa"
"#,
    );
    let answer = |decision| asked(&platform, br#"{"asked":["1","2"]}"#, &[decision, BID]).0;
    let expected = [
        r#"{"verdicts":[{"strategy":"1","accept":true,"weight":2.5,"cpa":3000},"#,
        r#"{"strategy":"2","accept":true}]}"#,
    ];
    assert_eq!(answer(bid_with(0)).unwrap(), expected.concat());
    let default = answer(bid_with(1)).unwrap();
    assert!(default.starts_with(br#"{"verdicts":[{"strategy":"1","accept":true,"cpa":200},"#));
}

#[test]
fn mapped_fields_must_hold_all_values() {
    let broken = PROTOBUF_MAPPING
        .replace("weight = \"price.weight\"", "weight = \"price.cpa\"")
        .replace("cpa_price = \"price.cpa\"", "cpa_price = \"name\"")
        .replace("cpc_factor = \"factor\"", "cpc_factor = \"price\"");
    let mistakes = read(&broken).unwrap_err().mistakes;
    let found = |text: &str| mistakes.iter().any(|mistake| mistake.contains(text));
    for text in [
        "verdicts.weight is \"price.cpa\": it cannot hold 2.5; accepted: a field whose type holds \
         all values, such as a double",
        "verdicts.cpa_price is \"name\": Verdict.name is not a number",
        "verdicts.cpc_factor is \"price\": Verdict.price is a message",
    ] {
        assert!(found(text), "{text}: {mistakes:#?}");
    }
}

#[test]
fn mapped_fields_must_hold_the_tags_of_the_platforms_strategies() {
    let others = r#"
[[experiment]]
name = "e"
buckets = [{ name = "b", slots = "0..1", tag = "x" }]
[[experiment]]
name = "other"
buckets = [{ name = "b", slots = "0..1", tag = "y" }]
[[strategy]]
name = "c"
when = { any = ["old", { bucket = "other:b" }] }
"#;
    let mapping = PROTOBUF_MAPPING
        .replace("strategy = \"strategy\"", "strategy = \"name\"")
        .replace("cpa_price = \"price.cpa\"", "tag = \"strategy\"");
    // None of the platform's strategies reads an experiment.
    read(&format!("{mapping}{others}")).unwrap();
    let rules = RULES.replacen("exclude = [\"old\"]", "when = { bucket = \"e:b\" }", 1);
    let mistakes = read_with(&rules, &format!("{mapping}{others}"))
        .unwrap_err()
        .mistakes;
    let expected = [
        "verdicts.tag is \"strategy\": it cannot hold \"x\", the tag of a bucket; accepted: a \
         field whose type holds the tags of all buckets that the platform's strategies read",
    ];
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
    for (mistake, expected) in mistakes.iter().zip(expected) {
        assert!(mistake.contains(expected), "{mistake}");
    }
    let held = others.replace("\"x\"", "\"12\"");
    read_with(&rules, &format!("{mapping}{held}")).unwrap();
}
