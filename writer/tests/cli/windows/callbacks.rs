//! Click callbacks: the links of the guide, tokens in links, unusable ids, repetitions, failures.

use rtad_core::clock::now_unix_seconds;
use serde_json::json;
use testkit::client::{Answer, Client};
use testkit::sandbox::Sandbox;

use super::{ZONE, info, path, serve};
use crate::process::{Api, Serve, TOKEN};

const LINK_TOKEN: &str = "a-token-of-a-platform";
const ACCEPTED: &str = "{\"code\":0,\"ret\":0,\"msg\":\"ok\"}";
const GUIDE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/guides/click-callbacks.md"
);

/// The link and the configuration of a platform's section of the guide, at about noon. All have the
/// token and the window of the first section, each its own callback.
fn example(platform: &str) -> (String, String) {
    const CALLBACK: &str = "[window.callback]";

    let guide = std::fs::read_to_string(GUIDE).unwrap();
    let (_, section) = guide.split_once(&format!("\n## {platform}\n")).unwrap();
    let link = block(section, "text").trim();
    let link = link.strip_prefix("https://ads.example.com").unwrap();

    let (_, first) = block(&guide, "toml").split_once("\n\n").unwrap();
    let (shared, _) = first.split_once(CALLBACK).unwrap();
    let (_, callback) = block(section, "toml").split_once(CALLBACK).unwrap();
    let config = [shared, CALLBACK, callback].concat();
    (
        link.replace("TOKEN", LINK_TOKEN),
        config.replace("Asia/Shanghai", &ZONE),
    )
}

/// The first block of a kind in a text.
fn block<'a>(text: &'a str, kind: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("```{kind}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

fn start(sandbox: &Sandbox, config: &str) -> Serve {
    sandbox.file("tencent-token", LINK_TOKEN);
    sandbox.file("ocean-token", LINK_TOKEN);
    serve(sandbox, config)
}

fn get(client: &mut Client, url: &str) -> Answer {
    client.request("GET", url, "", "")
}

fn filled(link: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(link.to_owned(), |link, (name, value)| {
        link.replace(&format!("__{name}__"), value)
    })
}

fn seen(api: &mut Api, kind: &str, id: &str) -> u64 {
    let answer = api
        .post(
            &path("clicks", "check"),
            &json!({ "kind": kind, "ids": [id] }),
        )
        .ok();
    answer["counts"][0].as_u64().unwrap()
}

/// Numbers of these results.
fn events<const N: usize>(api: &mut Api, results: [&str; N]) -> [u64; N] {
    let events = &info(api, "clicks")["events"];
    results.map(|result| events[result].as_u64().unwrap())
}

#[test]
fn links_of_the_guide_count_clicks_of_tencent() {
    let sandbox = Sandbox::with_store();
    let (link, config) = example("Tencent");
    let serve = start(&sandbox, &config);
    let (mut api, Api(mut client)) = (serve.connect(), serve.connect());
    let now = now_unix_seconds().to_string();
    let oaid = "D41D8CD98F00B204E9800998ECF8427F";
    let values = [
        ("CLICK_ID", "c1"),
        ("CLICK_TIME", &now),
        ("HASH_OAID", oaid),
    ];
    // Repeated: the same click counts once.
    for _ in 0..2 {
        let answer = get(&mut client, &filled(&link, &values));
        assert_eq!((answer.status, answer.text().as_str()), (200, ACCEPTED));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(seen(&mut api, "md5", oaid), 1);
    }
    let second = filled(
        &link,
        &[
            ("CLICK_ID", "c2"),
            ("CLICK_TIME", &now),
            ("HASH_OAID", oaid),
        ],
    );
    assert_eq!(get(&mut client, &second).status, 200);
    assert_eq!(seen(&mut api, "md5", oaid), 2);
    // The first usable id.
    let muid = "900150983cd24fb0d6963f7d28e17f72";
    assert_eq!(
        get(&mut client, &filled(&link, &[("MUID", muid)])).status,
        200
    );
    assert_eq!(seen(&mut api, "md5", muid), 1);
    // No macro was replaced: the time of this and of the one before is not usable either.
    assert_eq!(get(&mut client, &link).status, 200);
    assert_eq!(
        get(&mut client, &filled(&link, &[("HASH_OAID", "no-md5")])).status,
        200
    );
    // A parameter twice, and only one of its macros was replaced.
    let twice = "0cc175b9c0f1b6a831c399e269772661";
    for rest in ["", "__MUID__"] {
        let link = filled(
            &link,
            &[("CLICK_ID", "c9"), ("CLICK_TIME", &now), ("MUID", twice)],
        ) + "&muid="
            + rest;
        assert_eq!(get(&mut client, &link).status, 200);
    }
    assert_eq!(seen(&mut api, "md5", twice), 1);
    // The day has ended.
    let day_before = (now_unix_seconds() - 24 * 3600).to_string();
    let late = filled(&link, &[("CLICK_TIME", &day_before), ("MUID", muid)]);
    assert_eq!(get(&mut client, &late).status, 200);
    assert_eq!(seen(&mut api, "md5", muid), 1);
    assert_eq!(
        events(&mut api, ["new", "duplicate", "unusable", "late"]),
        [3, 1, 2, 1]
    );
}

#[test]
fn links_of_the_guide_count_clicks_of_ocean_engine() {
    let sandbox = Sandbox::with_store();
    let (link, config) = example("Ocean Engine");
    let serve = start(&sandbox, &config);
    let (mut api, Api(mut client)) = (serve.connect(), serve.connect());
    let now = (now_unix_seconds() * 1000).to_string();
    let oaid = "8f3b6b1e-7c0a-4a5e-9c55-0123456789ab";
    let encoded = oaid.replace('-', "%2D");
    let values = [
        ("REQUEST_ID", "r1"),
        ("TS", now.as_str()),
        ("OAID", encoded.as_str()),
    ];
    let answer = get(&mut client, &filled(&link, &values));
    assert_eq!((answer.status, answer.text().as_str()), (200, ACCEPTED));
    assert_eq!(seen(&mut api, "oaid", oaid), 1);
    let idfa = "D9BF17D1-13F3-4956-88BA-A8A44B0CD80D";
    let values = [
        ("TS", now.as_str()),
        ("OAID", "%5F%5FOAID%5F%5F"),
        ("IDFA", idfa),
    ];
    assert_eq!(get(&mut client, &filled(&link, &values)).status, 200);
    assert_eq!(seen(&mut api, "idfa", idfa), 1);
    assert_eq!(events(&mut api, ["new", "unusable"]), [2, 0]);
}

#[test]
fn texts_and_click_ids_are_any_but_macros() {
    let sandbox = Sandbox::with_store();
    let config = "[[token]]\nfile = \"tencent-token\"\nscopes = [\"callbacks:clicks\"]\n\
                  [[window]]\nname = \"clicks\"\nlength = \"1h\"\ncapacity = 100\ncount = 9\n\
                  [window.callback]\nid = \"user=text\"\nrequest_id = \"click\"\ntime = \"ts\"\n";
    let serve = start(&sandbox, config);
    let (mut api, Api(mut client)) = (serve.connect(), serve.connect());
    let link = path("clicks", "events") + "/" + LINK_TOKEN;
    let mut send = |query: &str| {
        let url = format!("{link}?{query}");
        assert_eq!(get(&mut client, &url).status, 200, "{query}");
    };
    let long = "x".repeat(1000);
    for (query, text) in [
        (&*long, &*long),
        ("7777", "7777"),
        ("%E7%94%A8%20%E6%88%B7", "用 户"),
    ] {
        send(&format!("user={query}"));
        assert_eq!(seen(&mut api, "text", text), 1, "{text}");
    }
    for unusable in ["__USER__", "%20__USER__", "", &"x".repeat(1025)] {
        send(&format!("user={unusable}"));
    }
    assert_eq!(events(&mut api, ["unusable"]), [4]);
    // A click whose id looks like a placeholder counts once, too.
    for _ in 0..2 {
        send("user=a&click=7");
    }
    assert_eq!(seen(&mut api, "text", "a"), 1);
    // Times in both units; one of 1970 is not usable, and the callback is of now.
    let seconds = now_unix_seconds();
    for time in [seconds, seconds * 1000, 7] {
        send(&format!("user=b&ts={time}"));
    }
    assert_eq!(seen(&mut api, "text", "b"), 3);
    let two_hours_before = seconds - 2 * 3600;
    for time in [two_hours_before, two_hours_before * 1000] {
        send(&format!("user=b&ts={time}"));
    }
    assert_eq!(events(&mut api, ["late"]), [2]);
}

#[test]
fn tokens_in_links_need_the_scope_itself_and_are_never_logged() {
    let sandbox = Sandbox::with_store();
    let (_, config) = example("Tencent");
    sandbox.file("stream", "a-token-of-a-stream-0");
    sandbox.file("views", "a-token-of-no-platform");
    let stream = "\n[[token]]\nfile = \"stream\"\nscopes = [\"events:clicks\"]\n\
                  [[token]]\nfile = \"views\"\nscopes = [\"callbacks:views\"]\n\
                  [[window]]\nname = \"views\"\nlength = \"1h\"\ncapacity = 10\n";
    let serve = start(&sandbox, &format!("{config}{stream}"));
    let (mut api, Api(mut client)) = (serve.connect(), serve.connect());
    let id = "900150983cd24fb0d6963f7d28e17f72";
    let events = path("clicks", "events");
    for (url, status, code) in [
        (
            format!("{events}/wrong-token-of-0123?muid={id}"),
            401,
            "unauthorized",
        ),
        (format!("{events}/{TOKEN}?muid={id}"), 403, "missing_scope"),
        (
            format!("{events}/a-token-of-a-stream-0?muid={id}"),
            403,
            "missing_scope",
        ),
        (
            format!("/v1/windows/views/events/{LINK_TOKEN}?muid={id}"),
            403,
            "missing_scope",
        ),
        (
            format!("/v1/windows/nothing/events/{LINK_TOKEN}"),
            403,
            "missing_scope",
        ),
        (
            format!("{events}/{LINK_TOKEN}?{}", "a=1&".repeat(101)),
            413,
            "too_large",
        ),
        (
            format!("{events}/{LINK_TOKEN}?muid={}", "a".repeat(8 << 10)),
            413,
            "too_large",
        ),
    ] {
        get(&mut client, &url).problem(status, code);
    }
    // The path is the only place of the token.
    for url in [
        format!("{events}?muid={id}"),
        format!("{events}?muid={id}&token={LINK_TOKEN}"),
    ] {
        get(&mut client, &url).problem(401, "unauthorized");
        api.get(&url).problem(405, "method_not_allowed");
    }
    let views = "/v1/windows/views/events/a-token-of-no-platform?muid=1";
    get(&mut client, views).problem(404, "no_callback");
    assert_eq!(seen(&mut api, "md5", id), 0);

    // A check of the link counts nothing.
    let link = format!("{events}/{LINK_TOKEN}?muid={id}");
    assert_eq!(client.request("HEAD", &link, "", "").status, 200);
    assert_eq!(seen(&mut api, "md5", id), 0);
    assert_eq!(get(&mut client, &link).status, 200);
    assert_eq!(seen(&mut api, "md5", id), 1);
    for secret in [LINK_TOKEN, TOKEN, "wrong-token", id] {
        assert!(
            !serve.stderr().contains(secret) && !serve.metrics().contains(secret),
            "{secret}"
        );
    }
}
