//! Inputs at URLs: read like files, resumed after broken connections, named without secrets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use parquet::basic::Compression;
use rtad_core::device::IdKind;
use testkit::port::free_port;
use testkit::process::{outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::server::{Fault, FileServer};

use crate::support::{gzip, zst};
use crate::zoo::parquet_file;

#[test]
fn url_is_read_like_a_file() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..60_000);
    let text = lines(&all);
    sandbox.file("plain.txt", &text);
    sandbox.file("dump", gzip(text.as_bytes()));
    // The server compares encoded names.
    sandbox.file("a%20b.csv", zst(format!("id\n{text}").as_bytes()));
    sandbox.file("empty", "");
    let web = FileServer::serve(sandbox.path());
    let url = web.url();
    let built = sandbox.build(&format!(
        "{url}/plain.txt {url}/dump {{}}/dump file://{{}}/dump {url}/empty {url}/dump"
    ));
    assert_eq!(
        (&built["rows"], &built["keys"]),
        (&300_000.into(), &60_000.into())
    );
    let built = sandbox.build(&format!("--format csv --column id {url}/a%20b.csv"));
    assert_eq!(
        (&built["rows"], &built["keys"]),
        (&60_000.into(), &60_000.into())
    );
    let against = sandbox.run(&format!(
        "verify --store {{}}/s --audience a --probes 10 --json --against {url}/dump"
    ));
    assert_eq!(against.json()["against"]["checked"], 60_000);
}

#[test]
fn broken_connection_is_resumed() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..120_000);
    sandbox.file("dump", lines(&all));
    let web = FileServer::serve(sandbox.path());
    let build = format!(
        "build --store {{}}/s --audience a --json --max-change any {}/dump",
        web.url()
    );
    for fault in [Fault::Hiccup, Fault::RangeIgnored] {
        web.misbehave(fault, "dump");
        let built = sandbox.run(&build).json();
        assert_eq!(built["keys"], 120_000, "{fault:?}");
    }
    for fault in [
        Fault::Short,
        Fault::Dead,
        Fault::Status("404 Not Found", ""),
    ] {
        web.misbehave(fault, "dump");
        let outcome = sandbox.run(&build);
        outcome.fails(5, "/dump: could not fetch it after byte ");
    }
    let list = sandbox.run("list --store {}/s --audience a --json").json();
    assert_eq!(list["audiences"][0]["live_generation"], 2);
}

#[test]
fn broken_input_is_resumed_once_from_its_first_missing_byte() {
    let sandbox = Sandbox::new();
    let text = lines(&ids(IdKind::Md5, 0..120_000));
    sandbox.file("dump", &text);
    let web = FileServer::serve(sandbox.path());
    web.misbehave(Fault::ShortOnce, "dump");
    let build = format!(
        "build --store {{}}/s --audience a --json --max-change any {}/dump",
        web.url()
    );
    let rest = format!("bytes={}-{}", text.len() / 2, text.len() - 1);
    let expected = [None, Some(rest)];
    assert_eq!(sandbox.run(&build).json()["keys"], 120_000);
    assert_eq!(web.take_ranges("dump"), expected, "object_store resumes");
    web.hide_tags();
    assert_eq!(sandbox.run(&build).json()["keys"], 120_000);
    assert_eq!(
        web.take_ranges("dump"),
        expected,
        "without a tag the reader resumes"
    );
}

/// A server without tags: the time of modification tells versions apart.
#[test]
fn object_without_a_tag_that_is_replaced_during_the_read_is_an_error() {
    let all = ids(IdKind::Md5, 0..2000);
    let (old, new) = (lines(&all[..1000]), lines(&all[1000..]));
    let size = old.len();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/dump", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in server.incoming().map_while(Result::ok) {
            let mut request = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request).unwrap() > 0 {}
            // The first answer breaks off in the middle; then the object is replaced.
            let is_resumed = request.to_lowercase().contains("range:");
            let (day, body) = if is_resumed {
                ("Mon, 02", &new[size / 2..])
            } else if request.starts_with("HEAD") {
                ("Sun, 01", "")
            } else {
                ("Sun, 01", &old[..size / 2])
            };
            let status = if is_resumed {
                let range = format!("bytes {}-{}/{size}", size / 2, size - 1);
                format!("206 Partial Content\r\nContent-Range: {range}")
            } else {
                "200 OK".to_owned()
            };
            let length = if is_resumed { body.len() } else { size };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\
                 Last-Modified: {day} Nov 2026 00:00:00 GMT\r\n\r\n"
            );
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    let build = format!("build --store {{}}/s --audience a {url}");
    Sandbox::new().run(&build).fails(5, "was replaced");
}

#[test]
fn invalid_urls_are_reported_without_secrets() {
    let sandbox = Sandbox::new();
    let web = FileServer::serve(sandbox.path());
    sandbox.file("dump", "8d3ebd3654fb46a2832296669cf1b536\n");
    let build = |input: &str| sandbox.run(&format!("build --store {{}}/s --audience a {input}"));
    for (input, says) in [
        (
            "https://me:hush@host/dump",
            "input https://…@host/dump: credentials come from the environment",
        ),
        (
            "https://host/dump?X-Signature=hush",
            "input https://host/dump?…: it has a query or a fragment",
        ),
        ("s3://ads/hush*", "it is a pattern; a URL names one object"),
        (
            "s3://ads",
            "input s3://ads: it names no object; accepted: a path, a pattern, `-`,",
        ),
        ("ftp://host/dump", "it has an unknown scheme"),
    ] {
        let outcome = build(input);
        outcome.fails(2, says);
        assert!(
            !outcome.stderr.contains("hush@") && !outcome.stderr.contains("=hush"),
            "{outcome:?}"
        );
    }
    build(&format!("{}/nothing", web.url())).fails(5, "nothing does not exist");
    build(&format!("{}/moved/dump", web.url())).fails(5, "expected no redirect");
    // No listener.
    let port = free_port();
    build(&format!("http://127.0.0.1:{port}/dump")).fails(5, "could not fetch it after byte 0");
    assert!(sandbox.store().is_empty());
    // Credentials from the environment.
    let mut command = command(
        sandbox.path(),
        "build --store {}/s --audience a s3://bucket/dump",
    );
    command.env_remove("AWS_REGION").envs([
        ("AWS_ACCESS_KEY_ID", "key-id"),
        ("AWS_SECRET_ACCESS_KEY", "hush-hush"),
        ("AWS_ENDPOINT_URL", &*format!("http://127.0.0.1:{port}")),
        ("AWS_ALLOW_HTTP", "true"),
    ]);
    let outcome = outcome(spawn(&mut command));
    outcome.fails(5, "input s3://bucket/dump: could not fetch it");
    assert!(
        !outcome.stderr.contains("hush-hush") && !outcome.stderr.contains("key-id"),
        "{outcome:?}"
    );
}

#[test]
fn remote_parquet_fetches_only_its_columns() {
    let sandbox = Sandbox::new();
    let file = parquet_file(&ids(IdKind::Md5, 0..20_000), Compression::UNCOMPRESSED);
    sandbox.file("dump", &file);
    let web = FileServer::serve(sandbox.path());
    let built = sandbox.build(&format!(
        "--format parquet --column imei=imei {}/dump",
        web.url()
    ));
    assert_eq!(
        (&built["rows"], &built["keys"]),
        (&20_000.into(), &18_000.into())
    );
    assert!(
        web.sent_bytes() < file.len() as u64 / 2,
        "{} of {}",
        web.sent_bytes(),
        file.len()
    );
    assert!(web.requests("") < 100, "{}", web.requests(""));
}
