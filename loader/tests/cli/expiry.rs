//! Generations with an expiry.

use rtad_core::device::IdKind;
use testkit::sandbox::{Sandbox, ids, lines};

const BUILD: &str = "build --store {}/s --audience a";

#[test]
fn expiry_is_reported_by_build_inspect_and_list() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..100)));
    assert!(sandbox.build("{}/ids")["expires_unix_seconds"].is_null());
    let built = sandbox.build("--expires 72h {}/ids");
    let expires = built["expires_unix_seconds"].as_u64().expect("a number");
    let inspect = |rest: &str| sandbox.run(&format!("inspect --store {{}}/s --audience a {rest}"));
    let inspected = inspect("--json").json();
    assert_eq!(
        inspected["created_unix_seconds"]
            .as_u64()
            .expect("a number")
            + 72 * 3600,
        expires
    );
    assert_eq!(
        (&inspected["expires_unix_seconds"], &inspected["expired"]),
        (&expires.into(), &false.into())
    );
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(expires);
    let time = humantime::format_rfc3339_seconds(time);
    let text = inspect("").stdout;
    assert!(text.contains(&format!("  {time}\n")), "{text}");
    assert!(inspect("--generation 1 --json").json()["expires_unix_seconds"].is_null());
    let listed = sandbox.run("list --store {}/s --json").json();
    let generations = &listed["audiences"][0]["generations"];
    assert_eq!(
        (
            &generations[1]["expires_unix_seconds"],
            &generations[1]["expired"]
        ),
        (&expires.into(), &false.into())
    );
    assert_eq!(generations[0].get("expires_unix_seconds"), None);
    assert!(
        sandbox
            .run("list --store {}/s")
            .stdout
            .contains(" old, expires in ")
    );
    assert!(
        sandbox
            .run(&format!("{BUILD} --expires 1h {{}}/ids"))
            .stdout
            .contains("  expires  ")
    );
    for wrong in ["0s", "500ms", "3651d", "tomorrow"] {
        let failed = sandbox.run(&format!("{BUILD} --expires {wrong} {{}}/ids"));
        assert!(
            failed.status == Some(2)
                && failed
                    .stderr
                    .contains("accepted: a duration from 1s to 3650d"),
            "{failed:?}"
        );
    }
}

#[test]
fn expired_generation_is_marked_and_not_rolled_back_to() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..100)));
    sandbox.build("--expires 1s {}/ids");
    sandbox.build("{}/ids");
    let expired = || {
        sandbox
            .run("inspect --store {}/s --audience a --generation 1 --json")
            .json()["expired"]
            == true
    };
    while !expired() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(
        sandbox
            .run("list --store {}/s")
            .stdout
            .contains(" old, expired)\n")
    );
    assert!(
        sandbox
            .run("inspect --store {}/s --audience a --generation 1")
            .stdout
            .contains("  expired  ")
    );
    sandbox.run("rollback --store {}/s --audience a").fails(
        4,
        "audience a: generation 1 has expired, so no pod would load it",
    );
    sandbox
        .run("verify --store {}/s --audience a --generation 1 --probes 1000 --json")
        .json();
    // A build is compared with the live generation even if that has expired.
    sandbox.build("--expires 1s {}/ids");
    sandbox.file("few", lines(&ids(IdKind::Md5, 0..10)));
    sandbox
        .run(&format!("{BUILD} {{}}/few"))
        .fails(3, "10 keys: expected at least 90 by --max-change 0.2");
}
