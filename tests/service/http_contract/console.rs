//! Console at `/` of the admin port: page, files and shard map.

use std::collections::BTreeSet;

use crate::fixture::{FixtureServer, OLD_USERS, OLD_VIP, RULES, TestStore, key};
use testkit::client::{Answer, Client};

const HTML: &str = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n";

fn page(admin: &mut Client) -> Answer {
    admin.request("GET", "/", HTML, "")
}

/// Quoted file names after any of these words.
fn named(text: &str, before: &[&str]) -> Vec<String> {
    let pieces = before.iter().flat_map(|word| text.split(*word).skip(1));
    pieces
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect()
}

#[test]
fn browser_gets_the_console_and_terminal_the_route_list() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let html = page(&mut admin);
    assert_eq!(
        (html.status, html.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    assert!(html.text().starts_with("<!doctype html>"));
    for headers in ["", "Accept: */*\r\n", "Accept: text/plain\r\n"] {
        let text = admin.request("GET", "/", headers, "");
        assert_eq!(
            (text.status, text.header("content-type")),
            (200, Some("text/plain; charset=utf-8"))
        );
        assert!(
            text.text().contains("\n/v1/status\n")
                && text.text().contains("POST /v1/explain/{platform}")
        );
        assert_ne!(text.header("etag"), html.header("etag"));
        assert_eq!(text.header("vary"), Some("accept"));
    }
    assert_eq!(
        admin.request("HEAD", "/", HTML, "").header("content-type"),
        html.header("content-type")
    );
    admin
        .request("POST", "/", HTML, "")
        .problem(405, "method_not_allowed");
    server
        .connect()
        .request("GET", "/", HTML, "")
        .problem(404, "not_found");
}

#[test]
fn console_loads_only_its_own_files() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let mut wanted = named(&page(&mut admin).text(), &["src=\"", "href=\"console/"]);
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        let name = name
            .trim_start_matches("console/")
            .trim_start_matches("./")
            .to_owned();
        if !seen.insert(name.clone()) {
            continue;
        }
        let part = admin.get(&format!("/console/{name}"));
        let kind = match name.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            other => panic!("{other}"),
        };
        assert_eq!(
            (part.status, part.header("content-type")),
            (200, Some(kind)),
            "{name}"
        );
        let text = part.text().replace("http://www.w3.org/2000/svg", "");
        assert!(
            !text.contains("://") && !text.contains("@import"),
            "{name} refers to another host"
        );
        assert!(
            !text.contains("innerHTML") && !text.contains("eval("),
            "{name}: text is only ever text"
        );
        wanted.extend(named(&text, &["from \""]));
    }
    assert_eq!(seen.len(), 18, "{seen:?}");
    for name in [
        "",
        "index.html",
        "main.js/",
        "%6dain.js",
        "../main.js",
        "MAIN.JS",
    ] {
        admin
            .get(&format!("/console/{name}"))
            .problem(404, "not_found");
    }
}

#[test]
fn console_has_csp_and_entity_tags() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    for (target, headers) in [
        ("/", HTML),
        ("/", ""),
        ("/console/main.js", ""),
        ("/console/icon.svg", ""),
    ] {
        let first = admin.request("GET", target, headers, "");
        let policy = first.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(first.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(
            (
                first.header("cache-control"),
                first.header("referrer-policy")
            ),
            (Some("no-cache"), Some("no-referrer"))
        );
        let tag = first.header("etag").unwrap();
        for held in [
            tag.to_owned(),
            format!("W/{tag}"),
            format!("\"x\", {tag}"),
            "*".to_owned(),
        ] {
            let again = admin.request(
                "GET",
                target,
                &format!("{headers}If-None-Match: {held}\r\n"),
                "",
            );
            assert_eq!(
                (again.status, again.body.len(), again.header("etag")),
                (304, 0, Some(tag)),
                "{target} {held}"
            );
        }
        let other = admin.request(
            "GET",
            target,
            &format!("{headers}If-None-Match: \"x\"\r\n"),
            "",
        );
        assert_eq!((other.status, other.body == first.body), (200, true));
    }
    assert!(
        !page(&mut admin).text().contains("style="),
        "the policy forbids styles in the markup"
    );
}

/// A page under a public name that resolves to the port could read the answers.
#[test]
fn public_host_names_are_rejected_unless_configured() {
    let server = FixtureServer::with_everything("admin_hosts = [\"rtad.example\"]");
    let mut admin = server.connect_admin();
    let mut get = |path: &str, host: &str| {
        admin.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        admin.next().expect("an answer")
    };
    for path in [
        "/",
        "/v1/status",
        "/metrics",
        "/console/main.js",
        "/nothing",
    ] {
        get(path, "evil.example:9090").problem(403, "cross_site");
    }
    for host in [
        "127.0.0.1:9090",
        "[::1]",
        "localhost",
        "rtad",
        "rtad.ads.svc",
        "RTAD.example",
    ] {
        assert_eq!(get("/v1/status", host).status, 200, "{host}");
    }
    // Health checks of balancers.
    for path in ["/livez", "/readyz"] {
        assert_eq!(get(path, "evil.example").status, 200, "{path}");
    }
}

#[test]
fn shard_map_has_every_shard_and_an_entity_tag_per_generation() {
    let store = TestStore::with_everything();
    let keys: Vec<_> = OLD_USERS.iter().map(|(kind, id)| key(kind, id)).collect();
    let server = FixtureServer::start(store, "", RULES);
    let mut admin = server.connect_admin();
    let shards = |answer: &Answer| -> Vec<u32> {
        assert_eq!((answer.status, answer.body.len()), (200, 4 << 16));
        answer
            .body
            .as_chunks::<4>()
            .0
            .iter()
            .map(|keys| u32::from_le_bytes(*keys))
            .collect()
    };
    let route = "/v1/audiences/old_users/shards";
    let first = admin.get(route);
    assert_eq!(
        first.header("content-type"),
        Some("application/octet-stream")
    );
    let found = shards(&first);
    assert_eq!(found.iter().sum::<u32>(), 10);
    for (shard, count) in found.iter().enumerate() {
        let of = |key: &&rtad_core::device::DeviceKey| usize::from(key.shard()) == shard;
        let vip = usize::from(usize::from(key("oaid", OLD_VIP).shard()) == shard);
        assert_eq!(
            *count as usize,
            keys.iter().filter(of).count() + vip,
            "{shard}"
        );
    }
    let tag = first.header("etag").unwrap().to_owned();
    let held = format!("If-None-Match: {tag}\r\n");
    assert_eq!(admin.request("GET", route, &held, "").status, 304);
    server.store.publish("old_users", &keys[..3]);
    server.poll();
    let second = admin.request("GET", route, &held, "");
    assert_eq!(shards(&second).iter().sum::<u32>(), 3);
    assert_ne!(second.header("etag"), Some(tag.as_str()));

    shards(&admin.get("/v1/audiences/too_old/shards"));
    admin
        .get("/v1/audiences/missing/shards")
        .problem(503, "not_loaded");
    for name in ["nobody", "%ff", "old_users%2f", "OLD_USERS"] {
        let detail = admin
            .get(&format!("/v1/audiences/{name}/shards"))
            .problem(404, "unknown_audience");
        assert_eq!(detail, "accepted: old_users, vip, missing, too_old");
    }
    admin
        .get("/v1/audiences/old_users")
        .problem(404, "not_found");
    admin.post(route, "").problem(405, "method_not_allowed");
}
