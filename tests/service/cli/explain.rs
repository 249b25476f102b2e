//! `rtad explain`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use testkit::process::{Outcome, run};

use crate::fixture::{OLD_USERS, PLATFORMS, RULES, TestStore, key};
use crate::rtad_process::command;
use testkit::platform::{OCEAN_REQUEST, REQUEST_IMEI_MD5, TENCENT_REQUEST};

/// A store where the device of the two requests is an old user, and its config.
fn served() -> (TestStore, PathBuf) {
    let store = TestStore::empty();
    store.publish("old_users", &[key("md5", REQUEST_IMEI_MD5)]);
    let file = store.config_file("max_body = \"1KiB\"", &format!("{RULES}{PLATFORMS}"));
    (store, file)
}

fn explain(config: &Path, platform: &str, more: &[&str], body: &[u8]) -> Outcome {
    let base = ["explain", "--config", config.to_str().unwrap(), "--platform", platform];
    run(&mut command(&[&base[..], more, &["-"]].concat(), &[]), body)
}

fn text(config: &Path, platform: &str, more: &[&str], body: &[u8]) -> String {
    let output = explain(config, platform, more, body);
    assert_eq!((output.status, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    output.stdout
}

/// The explanation as JSON, with every age set to nothing: a second may pass between two.
fn json(config: &Path, platform: &str, more: &[&str], body: &[u8]) -> Value {
    without_ages(text(config, platform, &[more, &["--json"]].concat(), body).as_bytes())
}

fn without_ages(json: &[u8]) -> Value {
    let mut explained: Value = serde_json::from_slice(json).unwrap();
    for snapshot in explained["audiences"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .filter_map(|one| one.get_mut("snapshot"))
    {
        assert!(snapshot["age_seconds"].take().is_u64());
    }
    explained
}

fn usage_error(config: &Path, platform: &str, more: &[&str], body: &[u8]) -> String {
    let output = explain(config, platform, more, body);
    assert_eq!((output.status, output.stdout.len()), (Some(2), 0), "{output:?}");
    output.stderr
}

/// Plain base64, to be different from the code under test.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |three: &[u8]| {
        let number = three.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        let digit = |index: usize| {
            if index > three.len() {
                '='
            } else {
                char::from(DIGITS[(number >> (18 - 6 * index) & 63) as usize])
            }
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

#[test]
fn hex_base64_and_the_bytes_themselves_are_explained_alike() {
    let (store, config) = served();
    for (platform, request, answer) in [
        (
            "tencent",
            TENCENT_REQUEST,
            "0a164a6f383235775f75456532784c6c4a55414677765351100052055431303032",
        ),
        ("ocean", OCEAN_REQUEST, "320e32303234303631366162636465663a0318934e3a0318944e4a020801"),
    ] {
        let bytes = const_hex::decode(request).unwrap();
        let expected = json(&config, platform, &[], &bytes);
        assert_eq!(expected["body"], json!({ "read_as": "binary", "size_bytes": bytes.len() }));
        assert_eq!(expected["answer"]["hex"], answer, "{platform}");
        let spaced = request.to_uppercase().replace("2A", "\n2A ");
        let based = base64(&bytes);
        let url_safe = based.trim_end_matches('=').replace('+', "-").replace('/', "_");
        for (read_as, text) in
            [("hex", request), ("hex", &spaced), ("base64", &based), ("base64", &url_safe)]
        {
            for more in [&[][..], &["--input", read_as]] {
                let mut explained = json(&config, platform, more, text.as_bytes());
                assert_eq!(explained["body"]["read_as"], read_as, "{platform} {text}");
                explained["body"] = expected["body"].clone();
                assert_eq!(explained, expected, "{platform} {text}");
            }
        }
        let file = store.path().join("body.bin");
        std::fs::write(&file, &bytes).unwrap();
        let (config, file) = (config.to_str().unwrap(), file.to_str().unwrap());
        let arguments = ["explain", "--platform", platform, "--json", file];
        let output = run(&mut command(&arguments, &[("RTAD_CONFIG", config)]), b"");
        assert_eq!(without_ages(output.stdout.as_bytes()), expected);
    }
}

#[test]
fn text_lists_ids_memberships_and_decisions() {
    let (_store, config) = served();
    let text = text(&config, "tencent", &[], TENCENT_REQUEST.as_bytes());
    for line in [
        "Platform tencent, protocol tencent, path /rta/tencent",
        "Body     104 bytes, decoded from hex",
        "Access   not checked: the platform's headers were not given",
        "  request_id            Jo825w_uEe2xLlJUAFwvSQ",
        "  cached_deviceid_type  CACHED_OAID_MD5",
        "Ids: 2 found, 2 usable",
        "  device.imei_md5sum  imei_md5  usable  8d3ebd3654fb46a2832296669cf1b536",
        "    shard 8d3e, in old_users, missing unavailable",
        "    shard 83e9, not in old_users, missing unavailable",
        "  T1001  new-users      no bid  member: device.imei_md5sum is in old_users, which it \
            excludes",
        "Answer   200, 33 bytes, no content type",
        "  code: 0 (accept)",
        "  out_target_id: \"T1002\"",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(
        text.contains("  missing    unavailable  audience missing is not in the store: publish it"),
        "{text}"
    );
    assert_eq!(
        text.lines().last(),
        Some(
            "No bid for T1001, because device.imei_md5sum is in old_users, which it excludes; \
             bid for T1002, because \
             missing is unavailable, and its `unavailable` answer is bid."
        )
    );
}

#[test]
fn doubtful_id_is_listed_but_not_used() {
    let (_store, config) = served();
    // doubtful_ids_list: IMEI_MD5.
    let request = TENCENT_REQUEST
        .replace("2a4808021a20", "2a4a08021a20")
        .replace("50034a0408808002", "480150034a0408808002");
    let explained = json(&config, "tencent", &[], request.as_bytes());
    let imei = &explained["ids"][0];
    assert_eq!(
        (&imei["result"], &imei["value"], imei.get("audiences")),
        (&json!("doubtful"), &json!(REQUEST_IMEI_MD5), None)
    );
    assert_eq!(
        (&explained["strategies"][0]["bid"], &explained["audiences"][0]["answer"]),
        (&json!(true), &json!("not_member"))
    );
    let text = text(&config, "tencent", &[], request.as_bytes());
    assert!(text.contains("Ids: 2 found, 1 usable\n"), "{text}");
    assert!(text.contains("    ignored: the platform marks it as doubtful\n"), "{text}");
}

#[test]
fn unreadable_body_is_explained() {
    let (_store, config) = served();
    let bad = json(&config, "tencent", &[], br#"{"device":"868049039501257"}"#);
    assert_eq!(
        (&bad["failure"]["cause"], &bad["body"]["read_as"]),
        (&json!("bad_body"), &json!("binary"))
    );
    let reason = bad["failure"]["because"].as_str().unwrap();
    assert!(
        reason.contains("not a valid message of this protocol: ") && !reason.contains("868049"),
        "{reason}"
    );
    // The `unavailable` answer of T1002 is bid.
    assert_eq!(bad["answer"]["text"], "code: 0 (accept)\nout_target_id: \"T1002\"");
    let text = text(&config, "ocean", &[], "00".repeat(1025).as_bytes());
    assert!(
        text.contains(
            "\nFailure  too_large: the body has 1025 bytes, and server.max_body is 1024\n"
        ),
        "{text}"
    );
    assert!(
        text.ends_with(
            "No bid for 10003, because the body has 1025 bytes, and server.max_body is 1024.\n"
        ),
        "{text}"
    );
    assert_eq!(json(&config, "ocean", &[], b"")["failure"]["cause"], "bad_body");
}

#[test]
fn headers_are_checked_and_never_printed() {
    let (_store, config) = served();
    for (header, access, answered) in [
        ("X-Rta-Token: hush-hush", "admitted", "10013880a305"),
        ("x-rta-token:  hush-hussh ", "refused", "1001"),
        ("Accept: hush/*", "refused", "1001"),
    ] {
        let more = ["--header", "Host: rtad", "--header", header, "--query", "token=hush"];
        let explained = json(&config, "tencent", &more, b"2a00");
        let answer = explained["answer"]["hex"].as_str().unwrap();
        assert_eq!((&explained["access"], answer), (&json!(access), answered), "{header}");
        assert!(!explained.to_string().contains("hush"));
        assert!(!text(&config, "tencent", &more, b"2a00").contains("hush"));
    }
    let error = usage_error(&config, "tencent", &["--header", "hush-hush"], b"");
    assert_eq!(error, "error: --header; accepted: a name, a colon and a value\n");
}

#[test]
fn only_audiences_of_the_platform_are_loaded() {
    let (store, config) = served();
    // The platform's strategies do not use vip, so its broken `CURRENT` is not read.
    std::fs::create_dir(store.path().join("vip")).unwrap();
    std::fs::write(store.path().join("vip/CURRENT"), "broken").unwrap();
    let explained = json(&config, "ocean", &[], OCEAN_REQUEST.as_bytes());
    let names: Vec<_> =
        explained["audiences"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["old_users"]);
    std::fs::write(store.path().join("old_users/CURRENT"), "broken").unwrap();
    let explained = json(&config, "ocean", &[], OCEAN_REQUEST.as_bytes());
    let audience = &explained["audiences"][0];
    assert_eq!(
        (&audience["available"], &audience["answer"]),
        (&json!(false), &json!("unavailable"))
    );
    assert!(
        audience["unavailable_because"].as_str().unwrap().contains("old_users/CURRENT"),
        "{audience}"
    );
    assert_eq!(explained["strategies"][0]["reason"], "unavailable");
}

#[test]
fn without_audiences_in_the_config_the_store_names_them() {
    let store = TestStore::empty();
    store.publish("old_users", &[key(OLD_USERS[0].0, OLD_USERS[0].1)]);
    let platform = PLATFORMS.replace("needs-missing", "new-users");
    let config = store.config_file("", &platform);
    let explained = json(&config, "ocean", &[], OCEAN_REQUEST.as_bytes());
    assert_eq!(explained["strategies"][0]["because"], "no id is in old_users");
    let nothing = TestStore::empty();
    let output = explain(&nothing.config_file("", &platform), "ocean", &[], b"");
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains("rtad-loader build"));
}

#[test]
fn mistakes_name_what_is_accepted() {
    let (store, config) = served();
    let error = usage_error(&config, "tencen", &[], b"");
    assert_eq!(error, "error: --platform \"tencen\"; accepted: tencent, ocean\n");
    let error = usage_error(&store.config_file("", RULES), "tencent", &[], b"");
    assert!(error.ends_with("accepted: none: the config has no [[platform]]\n"), "{error}");
    let (_store, config) = served();
    let error = usage_error(&config, "tencent", &["--input", "hexx"], b"");
    assert!(error.contains("accepted: binary, hex, base64, auto"), "{error}");
    assert_eq!(
        usage_error(&config, "tencent", &["--input", "hex"], b"0a0"),
        "error: -: it is not hex: try --input auto\n"
    );
    let error = usage_error(Path::new("/none.toml"), "tencent", &[], b"");
    assert!(error.starts_with("error: /none.toml: No such file"), "{error}");
    let arguments =
        ["explain", "--config", config.to_str().unwrap(), "--platform", "ocean", "/none.bin"];
    let output = run(&mut command(&arguments, &[]), b"");
    assert_eq!(output.status, Some(2));
    assert!(output.stderr.starts_with("error: /none.bin: No such file"));
}
