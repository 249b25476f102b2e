//! Tests of `rtad check-config`: the printed config, its summary, and error messages.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{RULES, TestStore};
use crate::rtad_process::run;
use testkit::process::Outcome;

fn check(file: &Path, variables: &[(&str, &str)]) -> Outcome {
    run(&[Path::new("check-config"), file], variables)
}

fn write_file(store: &TestStore, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let file = store.path().join(name);
    std::fs::write(&file, text).unwrap();
    file
}

fn errors(output: &Outcome) -> Vec<String> {
    assert_eq!(output.status, Some(2));
    assert!(output.stdout.is_empty());
    output
        .stderr
        .lines()
        .map(|line| {
            line.strip_prefix("error: ")
                .expect("every line is an error")
                .to_owned()
        })
        .collect()
}

#[test]
fn valid_config_is_summarized() {
    let store = TestStore::empty();
    let platforms = r#"
[[strategy]]
name = "vips"
when = "old_users"
[[experiment]]
name = "halves"
buckets = [{ name = "a", slots = "0..5000" }]
[[strategy]]
name = "ruled"
exclude = ["vip"]
when = { bucket = "halves:a", none = ["old_users"] }
valid_until = "2027-01-01T00:00:00Z"
shadow = true
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { T1 = "vips" }
[[platform]]
kind = "ocean"
name = "ocean"
path = "/rta/ocean"
headers = [{ name = "X-Token", value = "not shown" }]
strategies = { 1 = "vips", 2 = "new-users" }
"#;
    let file = store.config_file("", &format!("{RULES}{platforms}"));
    let checked = check(&file, &[]);
    assert_eq!(checked.status, Some(0), "{checked:?}");
    let text = checked.stderr;
    assert!(
        !text.contains("not shown") && !checked.stdout.contains("not shown"),
        "{text}"
    );
    let has_id = |line: &str| {
        line.strip_prefix("config     ")
            .is_some_and(|id| id.len() == 16)
    };
    assert!(text.lines().any(has_id), "{text}");
    for line in [
        &format!("{}: valid", file.display()),
        "decisions  127.0.0.1:0",
        "own API    closed beside platforms",
        "audience   old_users: required",
        "audience   too_old: optional, unavailable after 2d",
        "strategy   new-users: bid unless in old_users",
        "strategy   vips: bid if old_users",
        "strategy   ruled: in shadow, bid unless in vip, if all(bucket(halves:a), \
         none(old_users)), by its schedule",
        "experiment halves: a 50 %, none 50 %",
        "platform   tencent: tencent at /rta/tencent, 1 strategy, open to every caller",
        "platform   ocean: ocean at /rta/ocean, 2 strategies, admitted by header",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[test]
fn change_that_moves_devices_to_other_buckets_is_refused() {
    let store = TestStore::empty();
    let file = |name: &str, experiment: &str, bucket: &str, slots: &str| {
        let buckets = format!("buckets = [{{ name = {bucket:?}, slots = {slots:?} }}]");
        let experiment = format!("[[experiment]]\nname = {experiment:?}\n{buckets}\n");
        write_file(
            &store,
            name,
            store.config("", &format!("{experiment}{RULES}")),
        )
    };
    let old = file("old.toml", "e", "a", "0..5000");
    let change = |experiment: &str, bucket: &str, slots: &str| {
        let new = file("new.toml", experiment, bucket, slots);
        run(
            &[
                Path::new("check-config"),
                Path::new("--previous"),
                &old,
                &new,
            ],
            &[],
        )
    };
    let refused = errors(&change("e", "b", "4000..6000"));
    let expected = "experiment.e: slot 4000 moves from a to b; accepted: the buckets of before, \
                    free slots, or an experiment of another name";
    assert_eq!(refused, [expected]);
    for (experiment, bucket, slots) in [
        ("e", "a", "0..6000"),
        ("e", "a", "0..4000"),
        ("e", "b", "5000..6000"),
        ("e2", "b", "0..4000"),
    ] {
        let checked = change(experiment, bucket, slots);
        assert_eq!(checked.status, Some(0), "{slots}");
        let text = checked.stderr;
        assert!(text.contains("\nchange     experiment e"), "{text}");
    }
}

/// Pods write their parts of a cap to one store.
#[test]
fn cap_without_a_store_to_write_to_is_refused() {
    let store = TestStore::empty();
    let check_store = |lines: &str| {
        let cap = "cap = \"c\"\n[[cap]]\nname = \"c\"\nlimit = 9\nperiod = \"day\"\n\
                   time_zone = \"UTC\"\n";
        let text = format!("[store]\n{lines}\n{RULES}{cap}");
        let file = store.path().join("caps.toml");
        std::fs::write(&file, text).unwrap();
        check(&file, &[])
    };
    let http = "url = \"https://host/rtad\"";
    let list = "urls = [\"/a\", \"/b\"]";
    let missing = "store.caps_url is missing, and pods";
    for (lines, found) in [
        (
            http,
            format!("{missing} cannot write their caps to store.url over HTTP"),
        ),
        (
            list,
            format!("{missing} write their caps to one store, not to store.urls"),
        ),
    ] {
        check_store(lines).fails(2, &found);
        let written = check_store(&format!("{lines}\ncaps_url = \"/caps\""));
        assert_eq!(written.status, Some(0), "{}", written.stderr);
    }
    let read_only = check_store(&format!("{http}\ncaps_{http}"));
    read_only.fails(
        2,
        "store.caps_url is \"https://host/rtad\"; accepted: a directory,",
    );
    assert_eq!(check_store("url = \"/a\"").status, Some(0));
}

/// Reading a pipe would block, and every later reload with it.
#[test]
fn pipe_is_a_mistake_with_its_line_and_no_config_to_serve() {
    let store = TestStore::empty();
    let pipe = store.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let platform = "[[platform]]\nkind = \"tencent\"\nname = \"tencent\"\npath = \"/rta/tencent\"\n\
                    headers = [{ name = \"X-Token\", value_file = \"pipe\" }]\n\
                    strategies = { T1 = \"new-users\" }\n";
    let file = store.config_file("", &format!("{platform}{RULES}"));
    let [mistake] = &errors(&check(&file, &[]))[..] else {
        panic!("one mistake")
    };
    let line = std::fs::read_to_string(&file)
        .unwrap()
        .lines()
        .position(|it| it.contains("pipe"));
    let location = format!("{}:{}: ", file.display(), line.unwrap() + 1);
    assert!(mistake.starts_with(&location), "{mistake}");
    assert!(mistake.contains("expected a regular file"), "{mistake}");
    let served = run(&[Path::new("serve"), Path::new("--config"), &pipe], &[]);
    assert!(
        served.stderr.contains("expected a regular file"),
        "{served:?}"
    );
    assert_eq!(served.status, Some(2));
}

#[test]
fn unreadable_file_is_one_error() {
    let store = TestStore::empty();
    let missing = errors(&check(&store.path().join("none.toml"), &[]));
    assert_eq!(missing.len(), 1);
    assert!(
        missing[0].contains("none.toml: No such file"),
        "{missing:?}"
    );
    let broken = errors(&check(
        &write_file(&store, "broken.toml", "[server]\nlisten = \n"),
        &[],
    ));
    assert_eq!(
        broken.len(),
        1,
        "only the syntax error is reported: {broken:?}"
    );
    assert!(broken[0].contains("broken.toml:2: syntax"), "{broken:?}");
    assert_eq!(
        errors(&check(&write_file(&store, "latin.toml", b"# \xe9"), &[])).len(),
        1
    );
}
