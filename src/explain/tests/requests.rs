//! Explanations of requests that are refused, unreadable or hostile.

use super::*;

#[test]
fn failures_are_explained() {
    let fixture = fixture();
    let bad = fixture.json("tx", b"{}");
    assert_eq!(bad["failure"]["cause"], "bad_body");
    let detail = bad["failure"]["detail"].as_str().unwrap();
    assert!(detail.starts_with("failed to decode"), "{detail}");
    assert_eq!(
        listed(&bad, "strategies", &["id", "reason"]),
        ["T1; unavailable", "T2; unavailable", "T3; unavailable"]
    );
    let large = fixture.json("oc", &[0; 1025]);
    assert_eq!(large["failure"], json!({ "cause": "too_large" }));
    let text = fixture.with_headers("oc", &[], &[0; 1025]).to_string();
    let because = "because the body has 1025 bytes, and server.max_body is 1024.\n";
    assert!(text.ends_with(because), "{text}");
}

#[test]
fn access_is_shown_and_secrets_are_not() {
    let fixture = fixture();
    let body = tencent(Device {
        oaid: Some(OAID.into()),
        ..Device::default()
    });
    for (platform, headers, access, cause) in [
        ("oc", &[("x-token", "hush-hush")][..], "open", Value::Null),
        ("tx", &[], "not_checked", Value::Null),
        ("tx", &[("x-token", "hush-hush")], "admitted", Value::Null),
        (
            "tx",
            &[("x-token", "hush-hussh")],
            "refused",
            json!("unauthorized"),
        ),
    ] {
        let explanation = fixture.with_headers(
            platform,
            headers,
            if platform == "oc" { b"\x08\x01" } else { &body },
        );
        let explained = serde_json::to_value(&explanation).unwrap();
        assert_eq!(
            (&explained["access"], &explained["failure"]["cause"]),
            (&json!(access), &cause)
        );
        assert!(
            !explained.to_string().contains("hush") && !explanation.to_string().contains("hush")
        );
        if access == "refused" {
            assert_eq!(
                (&explained["answer"]["hex"], &explained["ids"]),
                (&json!("1001"), &json!([]))
            );
        }
    }
}

/// An id that is not read may be in any audience, and be the unit of any experiment.
#[test]
fn parts_that_too_many_ids_leave_open_are_unknown() {
    let open = r#"
[[experiment]]
name = "test"
buckets = [{ name = "all", slots = "0..10000" }]
[[strategy]]
name = "open"
when = { bucket = "test:all", none = ["old"] }
[[strategy]]
name = "member"
when = { any = ["scores", { bucket = "test:all" }] }
[[audience]]
name = "scores"
[[platform]]
kind = "tencent"
name = "many"
path = "/many"
strategies = { M1 = "open", M2 = "member", M3 = "new" }
"#;
    let fixture = fixture_of(&format!("{RULES}{open}"));
    let mut device = openids(MAX_IDS + 1);
    let explained = fixture.json("many", &tencent(device.clone()));
    assert_eq!(explained["failure"]["cause"], "too_many_ids");
    let open = &explained["strategies"][0];
    let unknown = json!({ "audiences": ["old"], "attributes": [], "experiments": ["test"] });
    assert_eq!(
        (&open["reason"], &open["unknown"]),
        (&json!("unavailable"), &unknown)
    );
    assert_eq!(
        (&open["when"]["truth"], &open["buckets"]),
        (&json!("unknown"), &Value::Null)
    );
    assert_eq!(
        explained["strategies"][2]["unknown"]["audiences"],
        json!(["old"])
    );
    assert_eq!(
        listed(&explained, "audiences", &["answer"]),
        ["unavailable", "unavailable"]
    );
    // An id that was read proves membership.
    device.oaid = Some(OAID.into());
    let explained = fixture.json("many", &tencent(device));
    assert_eq!(explained["strategies"][1]["when"]["truth"], "true");
    assert_eq!(explained["strategies"][2]["reason"], "member");
    // Nothing of an unreadable body is known.
    let explained = fixture.json("many", b"{}");
    assert_eq!(explained["strategies"][0]["unknown"], unknown);
}

#[test]
fn explanation_of_a_hostile_body_is_bounded() {
    let rta_ids = (0..600).map(|n| n % 128).collect();
    let body = ocean::Req {
        rta_ids,
        ..Default::default()
    }
    .encode_to_vec();
    let explained = fixture().json("oc", &body);
    assert!(explained["strategies"].as_array().unwrap().len() <= 256);
    let last = explained["notes"].as_array().unwrap().last().unwrap();
    let expected = json!({ "what": "ids and strategies that are not listed", "value": "344" });
    assert_eq!(*last, expected);
}
