//! Start of a service with windows, and its admin port.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use testkit::sandbox::{Sandbox, make_old};
use testkit::store::{Depot, Spec};
use testkit::wait_until;

use super::{WINDOW, day, keys, path, serve};
use crate::process::TOKEN;

#[test]
fn invalid_configs_and_directories_in_use_end_the_start() {
    let sandbox = Sandbox::with_store();
    sandbox.file("tokens", format!("{TOKEN}\n"));
    sandbox.file(
        "writer.toml",
        "[[window]]\nname = \"a\"\nlength = \"soon\"\ncapacity = \"x\"\n",
    );
    let start = "--store {}/s --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file \
                 {}/tokens --config {}/writer.toml";
    let refused = sandbox.run(start);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let mistakes = [
        "writer.toml:3: [[window]] \"a\": length is \"soon\"",
        "writer.toml:4: [[window]] \"a\": capa",
    ];
    assert!(
        mistakes
            .iter()
            .all(|mistake| refused.stderr.contains(mistake)),
        "{refused:?}"
    );
    let checked = sandbox.run("check-config {}/writer.toml");
    assert_eq!(checked.status, Some(2), "{checked:?}");
    assert!(
        mistakes
            .iter()
            .all(|mistake| checked.stderr.contains(mistake)),
        "{checked:?}"
    );
    let _running = serve(&sandbox, WINDOW);
    let checked = sandbox.run("check-config {}/writer.toml");
    assert_eq!(checked.status, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("valid\nwindow     "), "{checked:?}");
    let refused = sandbox.run(start);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("the directory is locked: another process has this window open"),
        "{refused:?}"
    );
}

/// An empty window would replace the list, and every device would get a bid.
#[test]
fn start_over_a_built_audience_is_refused() {
    let sandbox = Sandbox::with_store();
    let depot = Depot::at(sandbox.path().join("s"));
    let mut members = keys(0..3);
    members.sort_unstable();
    depot.publish("old_users", &members, &Spec::small());
    sandbox.file("tokens", format!("{TOKEN}\n"));
    let state = sandbox.path().join("state");
    let follower = "[[audience]]\nname = \"old_users\"\nfrom_window = \"w\"\n";
    let config = format!("state_dir = {state:?}\n{WINDOW}{follower}");
    sandbox.file("writer.toml", config);
    let before = sandbox.store();

    let refused = sandbox.run(
        "--store {}/s --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file {}/tokens \
         --config {}/writer.toml",
    );
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let expected = "audience old_users: generation 1 is not from a window, and window w would \
                    replace its devices; give the [[audience]] another name, or delete";
    assert!(refused.stderr.contains(expected), "{refused:?}");
    assert!(sandbox.store() == before && !state.exists());
}

#[test]
fn window_that_the_config_lacks_is_named_with_its_audiences() {
    let sandbox = Sandbox::with_store();
    let follower = "[[audience]]\nname = \"often\"\nfrom_window = \"day\"\nmin_count = 2\n";
    let before = serve(&sandbox, &format!("{}{follower}", day()));
    let often = "/v1/audiences/often";
    wait_until("the audience", || before.connect().get(often).status == 200);
    before.signal("TERM");
    assert_eq!(before.wait().status, Some(0));

    let after = serve(&sandbox, WINDOW);
    let message = "state_dir has a window without a [[window]]: no event changes its audiences; \
                   delete them and its folder, or restore the [[window]]";
    let logged = after.log(message, 1);
    assert_eq!(
        (&logged["window"], &logged["audiences"]),
        (&json!("day"), &json!("often"))
    );
}

/// A valid beginning of a config may lack a window, and its audience would not be written.
#[test]
fn start_over_a_config_that_is_being_written_is_refused() {
    let sandbox = Sandbox::with_store();
    let tokens = sandbox.file("tokens", format!("{TOKEN}\n"));
    make_old(&tokens);
    let write = |version: u32| {
        let text = format!("state_dir = \"s\"\n# {version}\n");
        let aside = sandbox.file("aside", text);
        std::fs::rename(aside, sandbox.path().join("writer.toml")).unwrap();
    };
    write(0);
    let has_ended = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1.. {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                write(version);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        // Should it start, it ends because of the address.
        let ended = sandbox.run(
            "--store {}/s --listen 192.0.2.1:1 --admin-listen 127.0.0.1:0 --token-file {}/tokens \
             --config {}/writer.toml",
        );
        has_ended.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let expected = "found a file that is being written, expected a whole one";
    assert!(refused.stderr.contains(expected), "{refused:?}");
}

#[test]
fn admin_port_lists_windows_and_their_audiences() {
    let sandbox = Sandbox::with_store();
    let follower = "[[audience]]\nname = \"often\"\nfrom_window = \"day\"\nmin_count = 2\n";
    let serve = serve(&sandbox, &format!("{}{follower}", day()));
    serve
        .connect()
        .post(
            &path("day", "events"),
            &json!({ "kind": "text", "ids": ["a", "a"] }),
        )
        .ok();
    let mut admin = serve.admin();
    let list = admin.get("/v1/windows").ok();
    assert_eq!(
        (
            &list["windows"][0]["window"],
            &list["windows"][0]["entries"]
        ),
        (&json!("day"), &json!(1))
    );
    let audience = &list["audiences"][0];
    assert_eq!(
        (
            &audience["audience"],
            &audience["window"],
            &audience["min_count"]
        ),
        (&json!("often"), &json!("day"), &json!(2))
    );
    assert!(audience["lag_seconds"].is_f64(), "{audience}");
    serve
        .connect()
        .0
        .get("/v1/windows")
        .problem(401, "unauthorized");

    admin.get("/console/main.js").problem(404, "not_found");
}
