//! Errors common to routes: unknown names, oversized bodies, unavailable audiences.

use crate::fixture::{FixtureServer, OLD_USERS};

const ID: &str = OLD_USERS[0].1;

#[test]
fn unknown_audience_lists_the_known_ones() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let known = "accepted: old_users, vip, missing, too_old";
    for audience in [
        "new_users",
        "OLD_USERS",
        "old_user",
        "%ff",
        "..",
        "old_users%00",
        "old_users%2Fx",
        ID,
    ] {
        let one = client.get(&format!("/v1/check/{audience}/{ID}"));
        assert_eq!(one.problem(404, "unknown_audience"), known, "{audience}");
        let many = client.post(&format!("/v1/check/{audience}"), r#"{"ids":[]}"#);
        assert_eq!(many.problem(404, "unknown_audience"), known, "{audience}");
        client
            .post_binary(&format!("/v1/check/{audience}"), "")
            .problem(404, "unknown_audience");
    }
}

#[test]
fn unknown_kind_lists_the_known_ones() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    for query in [
        "kind=",
        "kind=MD5",
        "kind=udid",
        "kind=imei_md5",
        "kind=%00",
        "kind=imei&kind=x",
        "kind",
    ] {
        let detail = client
            .get(&format!("/v1/check/old_users/{ID}?{query}"))
            .problem(404, "unknown_kind");
        assert_eq!(
            detail, "accepted: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid",
            "{query}"
        );
    }
}

#[test]
fn missing_or_stale_snapshot_is_not_loaded() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    for audience in ["missing", "too_old"] {
        client
            .get(&format!("/v1/check/{audience}/{ID}"))
            .problem(503, "not_loaded");
        client
            .post(&format!("/v1/check/{audience}"), r#"{"ids":[]}"#)
            .problem(503, "not_loaded");
        client
            .post_binary(&format!("/v1/check/{audience}"), "")
            .problem(503, "not_loaded");
    }
}

#[test]
fn unknown_paths_and_methods_are_rejected_on_both_ports() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let id_path = format!("/v1/check/old_users/{ID}/");
    for path in [
        "/",
        "/v1",
        "/v1/check",
        "/v1/check/",
        "/v1/check/old_users/",
        "/v2/decide",
        "/v1/decide/",
        &id_path,
    ] {
        let detail = client.get(path).problem(404, "not_found");
        assert!(
            detail.contains("/v1/check/{audience}/{id}") && !detail.contains(ID),
            "{detail}"
        );
    }
    for path in ["/livez", "/metrics", "/v1/status", "/v1/reload"] {
        client.get(path).problem(404, "not_found");
    }
    let one = format!("/v1/check/old_users/{ID}");
    for (methods, path, allowed) in [
        (
            &[
                "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY",
            ][..],
            one.as_str(),
            "GET,HEAD",
        ),
        (
            &["GET", "HEAD", "PUT", "DELETE"][..],
            "/v1/check/old_users",
            "POST",
        ),
        (&["GET", "HEAD", "PUT", "OPTIONS"][..], "/v1/decide", "POST"),
    ] {
        for method in methods {
            let answer = client.request(method, path, "", "");
            assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
            if *method == "HEAD" {
                assert_eq!(answer.status, 405);
            } else {
                answer.problem(405, "method_not_allowed");
            }
        }
    }
    let mut admin = server.connect_admin();
    for path in ["/v1", "/favicon.ico", "/livez/", "/v1/decide", &one] {
        let detail = admin.get(path).problem(404, "not_found");
        assert!(
            detail.contains("/v1/status") && !detail.contains(ID),
            "{detail}"
        );
    }
    for (method, path, allowed) in [
        ("POST", "/livez", "GET,HEAD"),
        ("DELETE", "/metrics", "GET,HEAD"),
        ("PUT", "/v1/status", "GET,HEAD"),
        ("GET", "/v1/reload", "POST"),
    ] {
        let answer = admin.request(method, path, "", "");
        answer.problem(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
}

#[test]
fn body_over_the_limit_is_rejected_by_length_or_chunks() {
    let server = FixtureServer::with_everything("max_body = \"1KiB\"");
    let limits = [("/v1/decide", 1024), ("/v1/check/old_users", 2 << 20)];
    for (route, limit) in limits {
        // Rejected before the body is sent.
        let mut client = server.connect();
        client.send(format!(
            "POST {route} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            limit + 1
        ));
        let answer = client.next().unwrap();
        assert_eq!(
            answer.problem(413, "too_large"),
            format!("the body is over {limit} bytes")
        );

        let mut client = server.connect();
        client.send(format!(
            "POST {route} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        ));
        client.send(format!("{:x}\r\n{}\r\n", limit, " ".repeat(limit)));
        client.send("1\r\n \r\n");
        let answer = client.next().unwrap();
        assert_eq!(
            answer.problem(413, "too_large"),
            format!("the body is over {limit} bytes")
        );
    }
    let mut client = server.connect();
    let padded = |length: usize| format!("{{}}{}", " ".repeat(length - 2));
    client.post("/v1/decide", padded(1024)).ok();
    client.send("POST /v1/decide HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!(
        "200\r\n{}\r\n200\r\n{}\r\n0\r\n\r\n",
        padded(512),
        " ".repeat(512)
    ));
    client.next().unwrap().ok();
}
