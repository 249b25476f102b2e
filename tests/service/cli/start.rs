//! Start of `rtad serve`: precedence of settings, errors and exit codes.

use std::ffi::OsStr;
use std::net::{TcpListener, TcpStream};

use crate::fixture::{OLD_USERS, RULES, TestStore};
use crate::rtad_process::{Rtad, run};
use testkit::client::Client;
use testkit::wait_until;

fn failure(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)], code: i32) -> String {
    let output = run(arguments, variables);
    assert_eq!(output.status, Some(code), "{output:?}");
    assert!(output.stdout.is_empty());
    output.stderr
}

#[test]
fn usage_errors_exit_with_two() {
    for arguments in [
        &[][..],
        &["sreve"],
        &["serve", "--color"],
        &["serve", "--config"],
        &["check-config"],
        &["demo", "--devices", "0"],
        &["demo", "--devices", "many"],
    ] {
        assert!(!failure(arguments, &[], 2).is_empty(), "{arguments:?}");
    }
    let stderr =
        failure(&["serve", "--listen", "nowhere", "--workers", "x", "--store", "ftp://x"], &[], 2);
    for line in [
        "error: --listen: found \"nowhere\"",
        "error: --workers: found \"x\"",
        "error: --store: found",
    ] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
    assert!(failure(&["serve"], &[], 2).contains("store.url is missing"));
    assert!(
        failure(&["serve", "--config", "/none.toml"], &[], 2).contains("/none.toml: No such file")
    );
    assert_eq!(run(&["--version"], &[]).status, Some(0));
}

#[test]
fn unknown_log_level_exits_with_two() {
    let stderr = failure(&["serve"], &[("RTAD_LOG", "loud")], 2);
    assert_eq!(
        stderr,
        "error: RTAD_LOG: log level is \"loud\", expected error, warn, info or debug\n"
    );
}

#[test]
fn port_in_use_exits_with_one_and_is_named() {
    let store = TestStore::with_everything();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let url = store.path().to_str().unwrap();
    for (flag, other, key) in [
        ("--listen", "--admin-listen", "server.listen"),
        ("--admin-listen", "--listen", "server.admin_listen"),
    ] {
        let stderr =
            failure(&["serve", "--store", url, flag, &address, other, "127.0.0.1:0"], &[], 1);
        let expected =
            format!("error: could not listen on {key} = {address}: Address already in use");
        assert!(stderr.lines().last().unwrap().starts_with(&expected), "{stderr}");
    }
}

/// A load balancer connects as soon as a pod is ready. Starting many workers takes long enough to
/// detect an early readiness.
#[test]
fn readiness_waits_for_the_decision_port() {
    let store = TestStore::with_everything();
    let url = store.path().to_str().unwrap();
    for _ in 0..5 {
        let [listen, admin] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [listen, admin] = [listen, admin].map(|free| free.local_addr().unwrap());
        let (listening, admin_listening) = (listen.to_string(), admin.to_string());
        let arguments = ["serve", "--store", url, "--workers", "200", "--listen", &listening];
        let rtad =
            Rtad::spawn(&[&arguments[..], &["--admin-listen", &admin_listening]].concat(), &[]);
        wait_until("the admin port is open", || TcpStream::connect(admin).ok());
        let mut probe = Client::connect(admin);
        while probe.get("/readyz").status != 200 {}
        TcpStream::connect(listen).expect("a ready pod accepts connections");
        drop(rtad);
    }
}

#[test]
fn empty_store_without_config_exits_with_one_and_a_hint() {
    let store = TestStore::empty();
    let url = store.path().to_str().unwrap();
    let stderr = failure(
        &["serve", "--store", url, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"],
        &[],
        1,
    );
    assert!(
        stderr.lines().last().unwrap().starts_with("error: the config names no [[audience]]"),
        "{stderr}"
    );
    assert!(stderr.contains("rtad-loader build"), "{stderr}");
}

#[test]
fn without_config_all_audiences_are_served() {
    let store = TestStore::with_everything();
    let url = store.path().to_str().unwrap();
    let ports =
        [("RTAD_LISTEN", "127.0.0.1:0"), ("RTAD_ADMIN_LISTEN", "127.0.0.1:0"), ("RTAD_STORE", url)];
    let rtad = Rtad::spawn(&["serve"], &ports);
    let answer = rtad.connect().get(&format!("/v1/check/old_users/{}", OLD_USERS[0].1));
    assert_eq!(answer.text(), r#"{"member":true}"#);
    let decisions = rtad.connect().post("/v1/decide", "{}").ok();
    assert_eq!(decisions["decisions"][0]["strategy"], "new-users");
}

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let store = TestStore::with_everything();
    let file = store.config_file("", RULES);
    let file = file.to_str().unwrap();
    let in_file = ["serve", "--config", file];
    let with_flag = ["serve", "--config", file, "--workers", "3"];
    let environment = [("RTAD_WORKERS", "2")];
    for (arguments, variables, workers) in [
        (&in_file[..], &[][..], 1),
        (&in_file, &environment, 2),
        (&with_flag, &environment, 3),
        (&["serve", "--workers", "3"], &[("RTAD_CONFIG", file)], 3),
    ] {
        let rtad = Rtad::spawn(arguments, variables);
        assert_eq!(rtad.log("decision port listens", 1)["workers"], workers);
    }
}
