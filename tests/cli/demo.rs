//! `rtad demo`: what it prints, done as printed.

use serde_json::Value;

use crate::common::client::Client;
use crate::common::process::Rtad;

/// Does what a printed `curl` line would.
fn curl(line: &str) -> Value {
    let rest = line.strip_prefix("curl http://").unwrap();
    let (url, data) = rest.split_once(" -d ").map_or((rest, None), |(url, data)| (url, Some(data)));
    let (address, path) = url.split_once('/').unwrap();
    let mut client = Client::connect(address.parse().unwrap());
    let path = format!("/{path}");
    let answer = match data {
        None => client.get(&path),
        Some(data) => {
            let data =
                data.strip_prefix('\'').and_then(|data| data.strip_suffix('\'')).expect("quoted for a shell");
            client.request("POST", &path, "Content-Type: application/x-www-form-urlencoded\r\n", data)
        }
    };
    assert_eq!(answer.status, 200, "{line}");
    serde_json::from_slice(&answer.body).unwrap_or(Value::Null)
}

#[test]
fn the_printed_commands_answer_as_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new").to_str().unwrap().to_owned();
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    for run in ["makes the snapshot", "finds it there"] {
        let rtad = Rtad::spawn(&[&["demo", "--devices", "20000", "--dir", &dir][..], &ports].concat(), &[]);
        let lines = rtad.stdout_until("Ctrl-C ends it.");
        let after = |comment: &str| {
            let at = lines
                .iter()
                .position(|line| line == comment)
                .unwrap_or_else(|| panic!("{comment}: {lines:?}"));
            curl(&lines[at + 1])
        };
        assert_eq!(after("# an old user, by the md5 of its IDFA")["member"], true, "{run}");
        assert_eq!(after("# a new user")["member"], false, "{run}");
        let decision = after("# a decision: bid for this device?");
        assert_eq!(decision["request_id"], "r1");
        let decision = &decision["decisions"][0];
        assert_eq!(
            (&decision["bid"], &decision["reason"]),
            (&Value::from(false), &Value::from("member")),
            "{run}"
        );
        let status = after("# what is being served, and the metrics");
        let snapshot = &status["audiences"][0]["snapshot"];
        assert_eq!(
            (&snapshot["keys"], &snapshot["generation"]),
            (&Value::from(20_000), &Value::from(1)),
            "{run}"
        );
        rtad.signal("INT");
        assert_eq!(rtad.wait().0.code(), Some(0));
    }
}
