//! Start of `rtad serve`: precedence of settings, errors and exit codes.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::fixture::{OLD_USERS, RULES, TestStore};
use crate::rtad_process::{RTAD, Rtad, run};
use testkit::client::Client;
use testkit::port::free_port;
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
    let store = TestStore::empty();
    let file = store.config_file("", RULES);
    let stderr = failure(
        &[
            "serve",
            "--config",
            file.to_str().unwrap(),
            "--listen",
            "nowhere",
            "--store",
            "ftp://x",
        ],
        &[],
        2,
    );
    for line in ["error: --listen is \"nowhere\"", "error: --store is"] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
    assert!(failure(&["serve"], &[], 2).contains("--config <FILE>"));
    assert!(
        failure(&["serve", "--config", "/none.toml"], &[], 2).contains("/none.toml: No such file")
    );
    assert_eq!(run(&["--version"], &[]).status, Some(0));
}

#[test]
fn unknown_log_level_exits_with_two() {
    let stderr = failure(&["serve", "--config", "none"], &[("RTAD_LOG", "loud")], 2);
    assert_eq!(
        stderr,
        "error: RTAD_LOG: log level is \"loud\", expected error, warn, info or debug\n"
    );
}

#[test]
fn log_is_text_on_a_terminal() {
    let store = TestStore::with_everything();
    let file = store.config_file("", RULES);
    // `script` runs the shell on a terminal; a line on stdin ends rtad.
    let shell = format!(
        "{RTAD} serve --config {} & pod=$!; read end; kill $pod; wait",
        file.display()
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &shell, "/dev/null"]);
    let mut script = script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(script.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let line = lines
        .find(|line| line.contains("decision port listens"))
        .unwrap();
    assert!(line.contains("INFO") && !line.contains("{\""), "{line}");
    script.stdin.take().unwrap().write_all(b"\n").unwrap();
    lines.for_each(drop);
    assert!(script.wait().unwrap().success());
}

#[test]
fn port_in_use_exits_with_one_and_is_named() {
    let store = TestStore::with_everything();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let file = store.config_file("", RULES);
    let file = file.to_str().unwrap();
    for (flag, other, key) in [
        ("--listen", "--admin-listen", "server.listen"),
        ("--admin-listen", "--listen", "server.admin_listen"),
    ] {
        let stderr = failure(
            &[
                "serve",
                "--config",
                file,
                flag,
                &address,
                other,
                "127.0.0.1:0",
            ],
            &[],
            1,
        );
        let expected =
            format!("error: could not listen on {key} {address}: Address already in use");
        assert!(
            stderr.lines().last().unwrap().starts_with(&expected),
            "{stderr}"
        );
    }
}

/// A load balancer connects as soon as a pod is ready. Starting many workers takes long enough to
/// detect an early readiness.
#[test]
fn readiness_waits_for_the_decision_port() {
    let store = TestStore::with_everything();
    let file = store.config_file("", RULES);
    let file = file.to_str().unwrap();
    for _ in 0..5 {
        let [listen, admin] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        let (listening, admin_listening) = (listen.to_string(), admin.to_string());
        let arguments = [
            "serve",
            "--config",
            file,
            "--listen",
            &listening,
            "--admin-listen",
            &admin_listening,
        ];
        let rtad = Rtad::spawn(&arguments, &[("RTAD_WORKERS", "200")]);
        wait_until("the admin port is open", || TcpStream::connect(admin).ok());
        let mut probe = Client::connect(admin);
        while probe.get("/readyz").status != 200 {}
        TcpStream::connect(listen).expect("a ready pod accepts connections");
        drop(rtad);
    }
}

/// The unit tests of `config` have the precedence of all settings.
#[test]
fn flag_overrides_the_config_of_the_environment() {
    let store = TestStore::with_everything();
    let file = store.config_file("", RULES);
    let address = format!("127.0.0.1:{}", free_port());
    let variables = [
        ("RTAD_CONFIG", file.to_str().unwrap()),
        ("RTAD_LISTEN", "127.0.0.1:1"),
        ("RTAD_WORKERS", "3"),
    ];
    let rtad = Rtad::spawn(&["serve", "--listen", &address], &variables);
    let listens = rtad.log("decision port listens", 1);
    assert_eq!(listens["decision_address"], address);
    assert_eq!(listens["workers"], 3);
}

#[test]
fn metrics_port_has_no_routes_of_operators() {
    let store = TestStore::with_everything();
    let file = store.config_file("metrics_listen = \"127.0.0.1:0\"", RULES);
    let rtad = Rtad::serve(&file, &[]);
    let address = rtad.log("metrics port listens", 1)["metrics_address"].clone();
    let mut port = Client::connect(address.as_str().unwrap().parse().unwrap());
    assert!(
        port.get("/metrics")
            .text()
            .contains("rtad_snapshot_generation{audience=\"vip\"} 1")
    );
    for path in ["/livez", "/readyz"] {
        assert_eq!(port.get(path).status, 200, "{path}");
    }
    for path in ["/", "/v1/status", "/v1/audiences/vip/shards"] {
        let detail = port.get(path).problem(404, "not_found");
        assert_eq!(detail, "accepted: /livez, /readyz, /metrics", "{path}");
    }
    for path in ["/v1/reload", "/v1/explain", "/v1/explain/tencent"] {
        port.post(path, "{}").problem(404, "not_found");
    }
}

/// Connections over the limit of open files are refused, and probes are answered.
#[test]
fn few_open_files_mean_fewer_connections_and_working_probes() {
    let store = TestStore::with_everything();
    let file = store.config_file("", RULES);
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "ulimit -n 64; exec \"$0\" serve --config \"$1\"",
            RTAD,
        ])
        .arg(&file);
    let rtad = Rtad::start(&mut shell);
    rtad.log("decision port listens", 1);
    let warning = "too few open files allowed: accepting fewer connections; raise `ulimit -n`";
    assert_eq!(rtad.log(warning, 1)["connections"], 32);
    let target = format!("/v1/check/old_users/{}", OLD_USERS[0].1);
    let mut clients: Vec<_> = (0..100).map(|_| rtad.connect()).collect();
    let (mut answered, mut refused) = (0, 0);
    for client in &mut clients {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
        // The kernel may drop the answer to a refused connection.
        match client.next().map(|answer| answer.status) {
            Some(200) => answered += 1,
            Some(503) | None => refused += 1,
            Some(status) => panic!("{status}"),
        }
    }
    assert_eq!((answered, refused), (32, 68));
    assert_eq!(rtad.connect_admin().get("/livez").status, 200);
    assert!(
        !rtad.stderr().contains("could not accept"),
        "{}",
        rtad.stderr()
    );
}

/// Stalled heads and bodies cost no more than `max_buffered`, and others are answered.
#[test]
fn stalled_requests_stay_within_the_memory_of_the_sizing_guide() {
    const CONNECTIONS: usize = 800;
    rlimit::increase_nofile_limit(4096).unwrap();
    let store = TestStore::with_everything();
    let file = store.config_file("max_buffered = \"8MiB\"", RULES);
    let rtad = Rtad::serve(&file, &[]);
    let before = rtad.peak_bytes();
    let head = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(16_000));
    let batch = format!(
        "POST /v1/check/old_users HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n{}",
        "x".repeat(1_900_000)
    );
    let mut stalled = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let mut client = rtad.connect();
        let sent = if number % 8 == 0 { &batch } else { &head };
        client.send_within(sent, Duration::from_millis(20));
        stalled.push(client);
    }
    let target = format!("/v1/check/old_users/{}", OLD_USERS[0].1);
    rtad.connect().get(&target).ok();
    let grown = rtad.peak_bytes() - before;
    // Of docs/guides/size-a-fleet.md: 19 KB per connection, three times max_buffered.
    let planned = CONNECTIONS as u64 * 19_000 + 3 * (8 << 20);
    assert!(grown <= planned, "{grown} bytes of {planned}");
}
