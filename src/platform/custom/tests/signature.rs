//! Signatures, with digests made by another implementation (Python's `hashlib` and `hmac`).

use http::{HeaderName, HeaderValue};

use super::*;

const HEAD: &str = r#"
body = "json"
request = { ids = { imei = "imei" } }
response = { code = { field = "code", bid = 0, no_bid = 1 } }
[platform.signature]
secrets = [{ value = "old" }, { value = "new" }]
"#;

/// 1718539200 seconds.
const NOW: Duration = Duration::from_secs(1_718_539_200);

struct Sent<'a> {
    body: &'a str,
    header: Option<&'static str>,
    query: Option<&'a str>,
    now: Duration,
}

fn ask(signature: &str, request: &Sent<'_>) -> (Result<Bytes, Failure>, Script) {
    let custom = custom(&assembly("", &format!("{HEAD}{signature}")));
    let mut headers = HeaderMap::new();
    if let Some(value) = request.header {
        headers.append(
            HeaderName::from_static("x-h"),
            HeaderValue::from_static("first"),
        );
        headers.append(
            HeaderName::from_static("x-h"),
            HeaderValue::from_static(value),
        );
    }
    let head = RequestHead {
        headers: &headers,
        query: request.query,
    };
    asked_at(
        &custom,
        Admission::ByHeaders,
        head,
        request.body.as_bytes(),
        request.now,
    )
}

fn sign(algorithm: &str) -> String {
    format!(
        "algorithm = \"{algorithm}\"\nin = \"body:sign\"\n\
         template = \"id={{id}}&t={{t}}&n={{body:n}}&h={{header:X-H}}&q={{query:q}}{{{{}}}}{{gone}}\
         {{secret}}\""
    )
}

fn body(sign: &str) -> String {
    format!(
        "{{\"id\":\"a\\u0062\",\"t\":1718539200,\"n\":-5,\"imei\":\"868049039501257\",\"sign\":\
         \"{sign}\"}}"
    )
}

fn failure(signature: &str, sign: &str) -> Option<Failure> {
    let body = body(sign);
    let request = Sent {
        body: &body,
        header: Some("hv"),
        query: Some("q=q%20v"),
        now: NOW,
    };
    ask(signature, &request).0.err()
}

#[test]
fn digest_of_any_secret_matches_in_either_case() {
    for (algorithm, old, new) in [
        (
            "md5",
            "8b3dc952ddd029590f45f81b3b5a321b",
            "a607c1a5d68784bcac0c94cf692ba368",
        ),
        (
            "sha256",
            "58070e7a0b98f3d88ff961196c910eada94c748f3f072a8feac84c8bc7786242",
            "d6813de53f7e6f0b8165e1c94e15c608266352bff8f4b13dcf12bf0f11f6fcad",
        ),
    ] {
        let signature = sign(algorithm);
        for digest in [old, new] {
            for right in [digest, &digest.to_uppercase()] {
                assert_eq!(failure(&signature, right), None, "{algorithm}");
            }
            let other = digest.replace(['3', '6'], "0");
            for wrong in [&digest[1..], &format!("{digest}0"), &other, ""] {
                assert_eq!(
                    failure(&signature, wrong),
                    Some(Failure::BadSignature),
                    "{algorithm}: {wrong}"
                );
            }
        }
    }
}

#[test]
fn hmac_is_keyed_with_the_secret() {
    let hmac = "algorithm = \"hmac-sha256\"\nin = \"header:x-h\"\ntemplate = \"{id}.{t}.\"";
    let body = r#"{"id": "ab", "t": "1718539200"}"#;
    for (digest, expected) in [
        (
            "25f617c32941bb050d35c279b0af9fbaae35a202c2f4119ce40e0e0c5f115670",
            None,
        ),
        (
            "04c5e62667ecac5932172dbaf447f3f3d9b4723c5cb0b16b2ba684c829a4477b",
            None,
        ),
        (
            "04c5e62667ecac5932172dbaf447f3f3d9b4723c5cb0b16b2ba684c829a4477c",
            Some(Failure::BadSignature),
        ),
    ] {
        let request = Sent {
            body,
            header: Some(digest),
            query: None,
            now: NOW,
        };
        assert_eq!(ask(hmac, &request).0.err(), expected);
    }
}

#[test]
fn body_can_be_signed_with_signature_in_query() {
    let signature = "algorithm = \"md5\"\nin = \"query:sign\"\ntemplate = \"{body}{secret}\"";
    let signature = &signature.replace("{secret}", "s3cret{secret}");
    let request = |query| Sent {
        body: r#"{"id":"r1"}"#,
        header: None,
        query,
        now: NOW,
    };
    // md5 of the body, "s3cret" and "old"
    let right = Some("a=1&sign=B51477EBA791D92E04040E5EBA3F8EA9");
    assert_eq!(ask(signature, &request(right)).0.err(), None);
    assert_eq!(ask(signature, &request(None)).0, Err(Failure::BadSignature));
}

#[test]
fn signature_may_be_base64_and_have_a_prefix() {
    // md5 and sha256 of the body, "s3cret" and "old"
    let sha256 = "GX1kzi0QCX9E8OuMYg+dW3YgYNlcUwauYOCiVKzSiZA=";
    let url_safe = sha256.replace('+', "-").replace('/', "_");
    let (of_md5, of_sha256) = ("tRR366eR2S4EBA5euj+OqQ==", format!("v1={sha256}"));
    let unpadded = url_safe.trim_end_matches('=').to_owned();
    let check = |algorithm: &str, prefix: &str, sign: &str| {
        let signature = format!(
            "algorithm = \"{algorithm}\"\nin = \"query:sign\"\nprefix = \"{prefix}\"\n\
             template = \"{{body}}s3cret{{secret}}\""
        );
        let query = format!("sign={sign}");
        let request = Sent {
            body: r#"{"id":"r1"}"#,
            header: None,
            query: Some(&query),
            now: NOW,
        };
        ask(&signature, &request).0.err()
    };
    for (algorithm, prefix, sign) in [
        ("md5", "", of_md5),
        ("md5", "", of_md5.trim_end_matches('=')),
        ("sha256", "v1=", &of_sha256),
        ("sha256", "", &url_safe),
        ("sha256", "", &unpadded),
    ] {
        assert_eq!(check(algorithm, prefix, sign), None, "{sign}");
    }
    for (algorithm, prefix, sign) in [
        ("sha256", "v1=", sha256),
        ("sha256", "", &of_sha256),
        ("sha256", "", &unpadded[1..]),
        ("md5", "", "===="),
        ("md5", "", ""),
        ("md5", "", &of_md5.to_lowercase()),
    ] {
        let failure = check(algorithm, prefix, sign);
        assert_eq!(failure, Some(Failure::BadSignature), "{sign}");
    }
}

#[test]
fn parts_of_a_request_that_cannot_be_signed_are_mistakes() {
    for name in ["path", "method", "url", "query", "headers", "parameters"] {
        let signature =
            format!("algorithm = \"md5\"\nin = \"sign\"\ntemplate = \"{{{name}}}{{secret}}\"");
        let found = mistakes(&signature);
        assert!(
            found.len() == 1 && found[0].contains(&format!("{{body:{name}}}")),
            "{found:?}"
        );
        let of_body = signature.replace(&format!("{{{name}}}"), &format!("{{body:{name}}}"));
        assert_eq!(mistakes(&of_body), [""; 0]);
    }
}

/// The mistakes of a platform with this signature.
fn mistakes(signature: &str) -> Vec<String> {
    let text = format!("{}{HEAD}{signature}", super::HEAD);
    let flags = vec![("store.url", "/data".to_owned())];
    let read = Assembly::read(Some(("rtad.toml", &text)), |_| None, &flags);
    read.map_or_else(|error| error.mistakes, |_| Vec::new())
}

#[test]
fn unsigned_request_passes_no_ids() {
    let body = body("");
    let request = Sent {
        body: &body,
        header: None,
        query: None,
        now: NOW,
    };
    let (answer, script) = ask(&sign("md5"), &request);
    assert_eq!(answer, Err(Failure::BadSignature));
    assert!(script.ids.is_empty() && script.asked.is_empty());
}

#[test]
fn observed_failure_is_counted_and_answered() {
    let body = body("");
    let request = Sent {
        body: &body,
        header: None,
        query: None,
        now: NOW,
    };
    let observed = format!("{}\nmode = \"observe\"", sign("md5"));
    let (answer, script) = ask(&observed, &request);
    assert_eq!(answer.unwrap(), r#"{"code":0}"#);
    assert_eq!(script.ids.len(), 1);
    assert_eq!(script.notes, ["observed: bad_signature"]);
    let off = format!("{}\nmode = \"off\"", sign("md5"));
    let (answer, script) = ask(&off, &request);
    assert_eq!(answer.unwrap(), r#"{"code":0}"#);
    assert!(script.notes.is_empty());
}

#[test]
fn timestamp_beyond_max_skew_is_rejected() {
    let timed = "algorithm = \"hmac-sha256\"\ntemplate = \"{id}.{t}.\"\nin = \"header:x-h\"\n\
                 timestamp = \"t\"\nmax_skew = \"5m\"";
    let at = |body, digest, now| {
        let request = Sent {
            body,
            header: Some(digest),
            query: None,
            now,
        };
        ask(timed, &request).0.err()
    };
    let (window, second) = (Duration::from_secs(300), Duration::from_secs(1));
    // The same time in seconds and in milliseconds.
    for (body, digest) in [
        (
            r#"{"id": "ab", "t": 1718539200}"#,
            "25f617c32941bb050d35c279b0af9fbaae35a202c2f4119ce40e0e0c5f115670",
        ),
        (
            r#"{"id": "ab", "t": 1718539200000}"#,
            "47f67bf587938cdf93901a8184eb632e2716fd70358620d2c7c881174545d1bc",
        ),
    ] {
        for now in [NOW, NOW - window, NOW + window] {
            assert_eq!(at(body, digest, now), None, "{body}");
        }
        for now in [
            NOW - window - second,
            NOW + window + second,
            Duration::ZERO,
            Duration::MAX,
        ] {
            assert_eq!(
                at(body, digest, now),
                Some(Failure::BadTimestamp),
                "{body} {now:?}"
            );
        }
    }
}

#[test]
fn invalid_timestamp_is_rejected() {
    let timed = "algorithm = \"hmac-sha256\"\ntemplate = \"{query:t}\"\nin = \"query:s\"\n\
                 timestamp = \"query:t\"\nmax_skew = \"5m\"";
    // hmac-sha256 of the time with "old"
    for (time, sign, expected) in [
        (
            "&t=1718539200",
            "b79541812b518336b58de765fecfa9ec0a1653a4cd5456d7ca51633b99213adb",
            None,
        ),
        (
            "&t=",
            "ba2ddd906e885d5b50f32fd2fc95ed41f1666bb2a93bcc5ea51aa131f5d60225",
            Some(Failure::BadTimestamp),
        ),
        (
            "",
            "ba2ddd906e885d5b50f32fd2fc95ed41f1666bb2a93bcc5ea51aa131f5d60225",
            Some(Failure::BadTimestamp),
        ),
        (
            "&t=soon",
            "506b61270674c46ebeb98684d974899a90521e1f87b44ab8d237f876db50f36c",
            Some(Failure::BadTimestamp),
        ),
        (
            "&t=99999999999999999999999",
            "c6ce12ce2b3173865d904d13b7aab7673cccb1f464961827c11eac5fb0547a36",
            Some(Failure::BadTimestamp),
        ),
        (
            "&t=-9223372036854775808",
            "9ace83a2c6b59a8b45532c9608f9c04fd91fc2422ee4c68f5feae4d8940df814",
            Some(Failure::BadTimestamp),
        ),
    ] {
        let query = format!("s={sign}{time}");
        let request = Sent {
            body: "{}",
            header: None,
            query: Some(&query),
            now: NOW,
        };
        assert_eq!(ask(timed, &request).0.err(), expected, "{time}");
    }
}

#[test]
fn unsigned_timestamp_is_a_mistake() {
    let timed = |template: &str, timestamp: &str| {
        mistakes(&format!(
            "algorithm = \"hmac-sha256\"\ntemplate = \"{template}\"\nin = \"header:s\"\n\
             timestamp = \"{timestamp}\"\nmax_skew = \"5m\""
        ))
    };
    for (template, timestamp) in [
        ("x", "time"),
        ("{id}", "body:time"),
        ("{body}", "query:t"),
        ("{query:u}", "query:t"),
    ] {
        let found = timed(template, timestamp);
        assert!(
            found.len() == 1 && found[0].contains("it is not signed"),
            "{template}: {found:?}"
        );
    }
    for (template, timestamp) in [
        ("{time}", "body:time"),
        ("{body}", "time"),
        ("{header:T}", "header:t"),
    ] {
        assert_eq!(timed(template, timestamp), [""; 0], "{template}");
    }
}

/// Explains with the parts of a request that were captured.
fn explain(
    signature: &str,
    body: &str,
    header: Option<&'static str>,
) -> (Result<Bytes, Failure>, Script) {
    let custom = custom(&assembly("", &format!("{HEAD}{signature}")));
    let mut headers = HeaderMap::new();
    headers.extend(header.map(|value| {
        (
            HeaderName::from_static("x-h"),
            HeaderValue::from_static(value),
        )
    }));
    let head = RequestHead {
        headers: &headers,
        query: None,
    };
    asked_at(
        &custom,
        Admission::Granted,
        head,
        body.as_bytes(),
        Duration::MAX,
    )
}

#[test]
fn captured_signature_is_checked_if_it_is_complete() {
    let signature = "algorithm = \"md5\"\nin = \"sign\"\ntemplate = \"{t}{secret}\"\n\
                     timestamp = \"t\"\nmax_skew = \"5m\"";
    // The md5 of "1old".
    let right = r#"{"t": 1, "sign": "5bc05a72c0e28a1a09505860eb418e63"}"#;
    let (answer, script) = explain(signature, right, None);
    assert!(answer.is_ok(), "its time does not matter");
    assert_eq!(script.notes, ["observed: bad_timestamp"]);
    let wrong = r#"{"t": 1, "sign": "00"}"#;
    assert_eq!(
        explain(signature, wrong, None).0,
        Err(Failure::BadSignature)
    );

    let in_header = "algorithm = \"md5\"\nin = \"header:x-h\"\ntemplate = \"{t}{secret}\"";
    let (answer, script) = explain(in_header, right, None);
    assert!(answer.is_ok());
    assert_eq!(
        script.notes,
        ["signature: not checked: its header or query was not given"]
    );
    assert_eq!(
        explain(in_header, right, Some("00")).0,
        Err(Failure::BadSignature)
    );
}

#[test]
fn ping_needs_no_signature() {
    let mapping = HEAD.replace("request = {", "request = { ping = \"ping\",");
    let platform = platform("", &format!("{mapping}{}", sign("md5")));
    let (answer, _) = asked(&platform, br#"{"ping": 1}"#, &[]);
    assert_eq!(answer.unwrap(), r#"{"code":0}"#);
}
