//! `rtad demo`: runs the printed commands.

use serde_json::Value;

use crate::rtad_process::Rtad;
use testkit::client::Client;

/// Executes a printed `curl` line.
fn curl(line: &str) -> Value {
    let rest = line.strip_prefix("curl http://").unwrap();
    let (url, data) = rest
        .split_once(" -d ")
        .map_or((rest, None), |(url, data)| (url, Some(data)));
    let (address, path) = url.split_once('/').unwrap();
    let mut client = Client::connect(address.parse().unwrap());
    let path = format!("/{path}");
    let answer = match data {
        None => client.get(&path),
        Some(data) => {
            let data = data
                .strip_prefix('\'')
                .and_then(|data| data.strip_suffix('\''))
                .expect("quoted for a shell");
            client.request(
                "POST",
                &path,
                "Content-Type: application/x-www-form-urlencoded\r\n",
                data,
            )
        }
    };
    assert_eq!(answer.status, 200, "{line}");
    serde_json::from_slice(&answer.body).unwrap_or(Value::Null)
}

/// Executes a printed `printf … | curl …` line, with the shell's `printf`.
fn piped(lines: &[String], comment: &str) -> Vec<u8> {
    let at = lines
        .iter()
        .position(|line| line == comment)
        .unwrap_or_else(|| panic!("{comment}: {lines:?}"));
    let (printf, curl) = lines[at + 1].split_once(" | ").unwrap();
    let body = std::process::Command::new("sh")
        .args(["-c", printf])
        .output()
        .unwrap()
        .stdout;
    let url = curl
        .strip_prefix("curl -s http://")
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let (address, path) = url.split_once('/').unwrap();
    let answer =
        Client::connect(address.parse().unwrap()).request("POST", &format!("/{path}"), "", body);
    assert_eq!(answer.status, 200, "{comment}");
    answer.body
}

#[test]
fn printed_commands_give_the_printed_answers() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new").to_str().unwrap().to_owned();
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    for run in ["makes the snapshot", "finds it there"] {
        let rtad = Rtad::spawn(
            &[&["demo", "--devices", "20000", "--dir", &dir][..], &ports].concat(),
            &[],
        );
        let lines = rtad.stdout_until("Stop with Ctrl-C.");
        let after = |comment: &str| {
            let at = lines
                .iter()
                .position(|line| line == comment)
                .unwrap_or_else(|| panic!("{comment}: {lines:?}"));
            curl(&lines[at + 1])
        };
        assert_eq!(
            after("# an old user, by the md5 of its IDFA")["member"],
            true,
            "{run}"
        );
        assert_eq!(after("# a new user")["member"], false, "{run}");
        let decision = after("# a decision: bid for this device?");
        assert_eq!(decision["request_id"], "r1");
        let decision = &decision["decisions"][0];
        assert_eq!(
            (&decision["bid"], &decision["reason"]),
            (&Value::from(false), &Value::from("member")),
            "{run}"
        );
        for (comment, code) in [
            (
                "# the same from Tencent Ads, protobuf in and out: code 1 rejects the old user",
                1,
            ),
            (
                "# code 0 accepts the new user for the strategy new-users",
                0,
            ),
        ] {
            let answer = piped(&lines, comment);
            assert_eq!(answer[..6], [0x0a, 2, b'r', b'1', 0x10, code], "{comment}");
        }
        let explained = piped(&lines, "# the reason: every id, audience and decision");
        let explained: Value = serde_json::from_slice(&explained).unwrap();
        assert_eq!(explained["strategies"][0]["reason"], "member");
        let status = after("# status and metrics");
        let snapshot = &status["audiences"][0]["snapshot"];
        assert_eq!(
            (&snapshot["keys"], &snapshot["generation"]),
            (&Value::from(20_000), &Value::from(1)),
            "{run}"
        );
        let at = lines
            .iter()
            .position(|line| line == "# the console, to open in a browser");
        let console = format!("http://{}/", rtad.admin_address());
        assert_eq!(lines[at.unwrap() + 1], console, "{run}");
        let page = rtad
            .connect_admin()
            .request("GET", "/", "Accept: text/html\r\n", "");
        assert!(page.body.starts_with(b"<!doctype html>"), "{run}");
        rtad.signal("INT");
        assert_eq!(rtad.wait().status, Some(0));
    }
}
