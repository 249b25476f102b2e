//! The tests of every store, over stand-ins of Alibaba OSS and Tencent COS.

use std::process::Command;

use testkit::cloud::{Cloud, CloudServer};
use testkit::process::run;

/// In a child process: a client has its endpoint and keys from the environment.
fn run_tests(cloud: Cloud, skipped: &[&str]) {
    let server = CloudServer::start(cloud);
    let url = server.url("tests");
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests
        .args(["in_every_store", "--show-output"])
        .args(skipped);
    // Most of them wait: a record takes a second on COS.
    tests
        .envs(server.environment())
        .env("RUST_TEST_THREADS", "16");

    let done = run(tests.env("RTAD_TEST_BUCKET", &url), b"");
    assert_eq!(done.status, Some(0), "{}", done.stdout);
    let said = format!("on {url}/unit-");
    let stores = done.stdout.matches(&said).count();
    assert!(stores > 20, "{}", done.stdout);
}

#[test]
fn tests_of_every_store_pass_over_oss() {
    run_tests(Cloud::Oss, &[]);
}

#[test]
fn tests_of_every_store_pass_over_cos() {
    // Of twenty appends one after the other.
    run_tests(Cloud::Cos, &["--skip", "concurrent_appends"]);
}
