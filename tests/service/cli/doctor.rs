//! Tests of `rtad doctor`.

use crate::fixture::{RULES, TestStore};
use crate::rtad_process::{Rtad, run};

const SECRET: &str = "a secret that nobody pastes";

#[test]
fn bundle_has_status_and_config_without_secrets() {
    let store = TestStore::with_everything();
    let platform = format!(
        "{RULES}\n[[platform]]\nkind = \"ocean\"\nname = \"ocean\"\npath = \"/rta/ocean\"\n\
         strategies = {{ 7 = \"new-users\" }}\n\
         headers = [{{ name = \"X-Rta-Token\", value = \"{SECRET}\" }}]\n"
    );
    let file = store.config_file("", &platform);
    let rtad = Rtad::serve(&file, &[]);
    let admin = rtad.admin_address().to_string();
    let file = file.to_str().unwrap();
    let bundle = run(
        &["doctor", "--config", file, "--admin", &admin],
        &[("RTAD_X", SECRET)],
    );
    assert_eq!((bundle.status, &*bundle.stderr), (Some(0), ""));
    for part in [
        concat!("- rtad: ", env!("CARGO_PKG_VERSION"), "\n"),
        "- open files: ",
        "- variables: RTAD_X\n",
        "drain_timeout = \"20s\"",
        "value = \"<redacted>\"",
        "\nready\n",
        "\"generation\": 1",
        "\"syncs\": [",
    ] {
        assert!(bundle.stdout.contains(part), "{part} in\n{}", bundle.stdout);
    }
    assert!(!bundle.stdout.contains(SECRET));
}

#[test]
fn missing_parts_are_named_and_fail() {
    let store = TestStore::empty();
    let file = store.path().join("rtad.toml");
    std::fs::write(&file, "[server]\nworker = 3\n").unwrap();
    let bundle = run(&["doctor", "--config", file.to_str().unwrap()], &[]);
    // Another pod may listen on the default port.
    assert_eq!(bundle.status, Some(1));
    assert!(
        bundle.stderr.starts_with("error: missing: the config"),
        "{}",
        bundle.stderr
    );
    for part in [
        "worker",
        "\n## Readiness\n",
        "\n## Status, with the last polls\n",
    ] {
        assert!(bundle.stdout.contains(part), "{part} in\n{}", bundle.stdout);
    }
    let closed = testkit::port::free_port();
    let file = store.config_file("", RULES);
    let admin = format!("127.0.0.1:{closed}");
    let bundle = run(
        &[
            "doctor",
            "--config",
            file.to_str().unwrap(),
            "--admin",
            &admin,
        ],
        &[],
    );
    let missing = "error: missing: the pod's readiness, the pod's status\n";
    assert_eq!((bundle.status, &*bundle.stderr), (Some(1), missing));
    assert!(
        bundle.stdout.contains(&format!("{admin}/readyz: ")),
        "{}",
        bundle.stdout
    );
}
