//! Privacy: device ids, raw or hashed, valid or not, never appear in logs, metrics or status, even
//! at log level debug.

use crate::fixture::{NON_MEMBER, OLD_USERS, PLATFORMS, RULES, TestStore, key};
use crate::rtad_process::Rtad;
use testkit::client::Answer;
use testkit::process::Outcome;
use testkit::store::hex;

/// Every id sent by the test and its md5, in lower case.
fn secrets() -> Vec<String> {
    let others = [
        ("oaid", NON_MEMBER),
        ("imei", "868049039501257"),
        ("mac", "a4:5e:60:c1:d2:e3"),
    ];
    let ids = OLD_USERS.into_iter().chain(others);
    ids.flat_map(|(kind, id)| {
        [
            id.to_lowercase(),
            hex(&key(kind, id)),
            hex(&key("openid", &id.to_uppercase())),
        ]
    })
    .collect()
}

fn encoded(id: &str) -> String {
    percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Sends an id in every part of a request. Asserts that the answers do not quote it.
fn send_everywhere(rtad: &Rtad, kind: &str, id: &str) {
    let quotes = |answer: &Answer| {
        String::from_utf8_lossy(&answer.body)
            .to_lowercase()
            .contains(&id.to_lowercase())
    };
    let in_url = encoded(id);
    let mut client = rtad.connect();
    for target in [
        format!("/v1/check/old_users/{in_url}?kind={kind}"),
        format!("/v1/check/old_users/{in_url}x?kind={kind}"),
        format!("/v1/check/missing/{in_url}"),
        format!("/v1/check/{in_url}/{in_url}"),
        format!("/v1/check/old_users/{in_url}?kind={in_url}"),
        format!("/{in_url}?{in_url}={in_url}"),
    ] {
        for method in ["GET", "DELETE"] {
            let headers = format!("X-Device: {in_url}\r\nContent-Type: {in_url}\r\n");
            assert!(
                !quotes(&client.request(method, &target, &headers, "")),
                "{kind} {method}"
            );
        }
    }
    let text = serde_json::to_string(id).unwrap();
    for body in [
        format!(r#"{{"ids":[{text}],"kind":"{kind}"}}"#),
        format!(r#"{{"ids":[{text}],"kind":{text}}}"#),
        format!(r#"{{"ids":{text}}}"#),
        format!(r#"{{{text}:{text}}}"#),
        format!(r#"{{"device":{{"{kind}":[{text}]}}}}"#),
        format!(r#"{{"device":{{{text}:{text}}}}}"#),
        format!(r#"{{"device":{text}}}"#),
        format!(r#"{{"strategies":[{text}]}}"#),
        format!(r#"{{"strategies":{text}}}"#),
        text.clone(),
        id.to_owned(),
    ] {
        for target in ["/v1/decide", "/v1/check/old_users"] {
            assert!(!quotes(&client.post(target, &body)), "{kind} {target}");
        }
        let answer = client.post_binary("/v1/check/old_users", &body);
        assert!(answer.status == 200 || answer.status == 400, "{answer:?}");
    }
    client.post_binary("/v1/check/old_users", key(kind, id).as_bytes());
    let mut admin = rtad.connect_admin();
    assert!(!quotes(&admin.get(&format!("/{in_url}"))));
    assert!(!quotes(&admin.post("/v1/reload", &text)));
    // A free-form field of Ocean Engine, and invalid bodies.
    let did = [&[0x12, id.len() as u8], id.as_bytes()].concat();
    for platform in ["ocean", "tencent"] {
        for body in [
            did.clone(),
            hex(&key(kind, id)).into_bytes(),
            text.clone().into_bytes(),
        ] {
            admin
                .request(
                    "POST",
                    &format!("/v1/explain/{platform}?{in_url}"),
                    "",
                    body,
                )
                .ok();
        }
    }
    for body in [
        format!(r#"{{"id":{text}}}"#),
        format!(r#"{{"id":{text},"kind":"{kind}"}}"#),
        format!(r#"{{"id":{text},"kind":{text}}}"#),
        format!(r#"{{{text}:{text}}}"#),
        format!(r#"{{"id":[{text}]}}"#),
        text.clone(),
    ] {
        let answer = admin.request("POST", &format!("/v1/explain?{in_url}"), "", &body);
        assert!(
            answer.status == 200 || !quotes(&answer),
            "only explain quotes the id: {kind}"
        );
    }
    assert!(!quotes(
        &admin.get(&format!("/v1/audiences/{in_url}/shards"))
    ));
    assert!(!quotes(&admin.get(&format!("/console/{in_url}"))));
    assert!(
        quotes(&admin.post("/v1/explain/ocean", &did)),
        "explain quotes the id"
    );
    assert!(!quotes(&admin.post(&format!("/v1/explain/{in_url}"), &did)));
    for garbage in [
        format!("{id}\r\n\r\n"),
        format!("GET /{id} HTTP/1.1\r\n{id}\r\n\r\n"),
        format!("GET /{in_url}"),
    ] {
        rtad.connect().send(&garbage);
        Rtad::connect_admin(rtad).send(&garbage);
    }
}

#[test]
fn ids_never_appear_in_logs_metrics_or_status() {
    let store = TestStore::with_everything();
    let file = store.config_file("api = { public = true }", &format!("{RULES}{PLATFORMS}"));
    let rtad = Rtad::serve(&file, &[("RTAD_LOG", "debug")]);
    for (kind, id) in OLD_USERS.into_iter().chain([
        ("oaid", NON_MEMBER),
        ("imei", "868049039501257"),
        ("mac", "a4:5e:60:c1:d2:e3"),
    ]) {
        send_everywhere(&rtad, kind, id);
    }
    let mut admin = rtad.connect_admin();
    let mut seen = vec![
        ("metrics", admin.get("/metrics").text()),
        ("status", admin.get("/v1/status").text()),
    ];
    drop(admin);
    rtad.signal("TERM");
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.lines().count() > 3, "it has logged: {stderr}");
    seen.push(("stderr", stderr));
    for (source, text) in seen {
        let text = text.to_lowercase();
        for secret in secrets() {
            assert!(
                !text.contains(&secret) && !text.contains(&encoded(&secret).to_lowercase()),
                "in {source}"
            );
        }
    }
}
