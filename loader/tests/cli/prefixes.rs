//! Folders and prefixes of buckets as inputs: everything below them.

use std::collections::BTreeMap;
use std::path::Path;

use parquet::basic::Compression;
use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::cloud::{Cloud, CloudServer};
use testkit::process::{Outcome, run};
use testkit::sandbox::{Sandbox, command, ids, lines};

use crate::support::{chunks, gzip};
use crate::zoo::parquet_file;

const DAY: &str = "exports/dt=2026-11-28";
const PARTS: usize = 200;

/// Files by name, of an export with what its job leaves beside it.
type Export = BTreeMap<String, Vec<u8>>;

fn export(extension: &str, part: impl Fn(&[String]) -> Vec<u8>) -> Export {
    let mut files = Export::new();
    let all = ids(IdKind::Md5, 0..10_000);
    for (number, ids) in all.chunks(all.len() / PARTS).enumerate() {
        let hour = number % 24;
        let name = format!("{DAY}/hour={hour:02}/part-{number:05}.{extension}");
        files.insert(name, part(ids));
    }
    for name in [
        "_SUCCESS",
        ".part-00000.crc",
        "hour=00/_metadata",
        "_temporary/0/part-9",
    ] {
        files.insert(format!("{DAY}/{name}"), b"no rows".to_vec());
    }
    // Not below the prefix.
    files.insert(format!("{DAY}1/part-0"), b"no rows".to_vec());
    files
}

fn put(server: &CloudServer, files: &Export) {
    for (name, bytes) in files {
        server.put(name, &bytes[..]);
    }
}

fn write(folder: &Path, files: &Export) {
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Runs the loader as a client of a server.
fn run_with(server: &CloudServer, sandbox: &Sandbox, arguments: &str) -> Outcome {
    run(
        command(sandbox.path(), arguments).envs(server.environment()),
        b"",
    )
}

/// Builds from a URL; the report, and the chunks by name.
fn build(server: &CloudServer, flags: &str) -> (Value, Vec<String>) {
    let sandbox = Sandbox::new();
    let url = server.url(&format!("{DAY}/"));
    let arguments = format!("build --store {{}}/s --audience a --json {flags} {url}");
    let report = run_with(server, &sandbox, &arguments).json();
    let store = sandbox.store();
    (report, chunks(&store).into_iter().cloned().collect())
}

#[test]
fn parts_give_the_same_chunks_from_a_folder_and_from_each_cloud() {
    let csv = |ids: &[String]| gzip(format!("id\n{}", lines(ids)).as_bytes());
    let parquet = |ids: &[String]| parquet_file(ids, Compression::SNAPPY);
    for (flags, files) in [
        ("--format parquet --column id", export("parquet", parquet)),
        ("--format csv --column id", export("csv.gz", csv)),
    ] {
        let sandbox = Sandbox::new();
        write(sandbox.path(), &files);
        let from_folder = sandbox.build(&format!("{flags} {{}}/{DAY}"));
        let store = sandbox.store();
        let expected: Vec<_> = chunks(&store).into_iter().cloned().collect();
        let names: Vec<_> = files
            .keys()
            .filter(|name| name.contains("/hour=") && name.contains("/part-"))
            .collect();
        let inputs = from_folder["inputs"].as_array().unwrap();
        assert_eq!(inputs.len(), PARTS);
        let changed = inputs[0]["version"].as_str().unwrap();
        assert!(changed.ends_with('Z') && changed.contains('T'), "{changed}");

        for cloud in [Cloud::S3, Cloud::Oss, Cloud::Cos] {
            let server = CloudServer::start(cloud);
            server.set_page_names(90);
            put(&server, &files);
            let (report, found) = build(&server, flags);
            assert_eq!(found, expected, "{cloud:?}");
            assert_eq!(report["keys"], from_folder["keys"]);
            let inputs = report["inputs"].as_array().unwrap();
            assert_eq!(inputs.len(), PARTS);
            for (input, name) in inputs.iter().zip(&names) {
                assert_eq!(input["name"], server.url(name));
                assert_eq!(input["size_bytes"], files[*name].len());
                assert_eq!(input["version"].as_str().unwrap().len(), 32);
            }

            // The list has the sizes and tags.
            let requests = server.take_requests();
            let count = |method: &str| {
                let of_method = requests.iter().filter(|line| line.starts_with(method));
                of_method.count()
            };
            assert_eq!(count("HEAD"), 0, "{cloud:?}");
            assert!(count("GET") < 7 * PARTS, "{}", count("GET"));
        }
    }
}

#[test]
fn prefix_without_rows_is_refused() {
    let server = CloudServer::start(Cloud::Oss);
    let sandbox = Sandbox::new();
    server.put("day/_SUCCESS", "");
    server.put("day/_temporary/part-0", "");
    let build = |url: &str| {
        let arguments = format!("build --store {{}}/s --audience a {url}");
        run_with(&server, &sandbox, &arguments)
    };
    let nothing = "/: nothing is below it: expected a file or an object whose name and folders do \
                   not begin with _ or ., found ";
    build(&server.url("day/")).fails(3, &format!("oss://ads-1250000000/day{nothing}2 others"));
    build(&server.url("no/")).fails(3, &format!("no{nothing}0 others"));
    build("https://host/day/").fails(
        2,
        "only buckets list what is below a prefix; accepted: a path",
    );
    build(&server.url("day/*/")).fails(2, "it is a pattern; a URL names one object");
    build("oss://other/day/").fails(5, "input oss://other/day/: could not list its objects");

    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    sandbox.file("folder/_SUCCESS", "");
    build("{}/folder").fails(3, "/folder: nothing is below it");
    assert!(sandbox.store().is_empty());
}

#[test]
fn prefix_in_a_table_or_around_one_is_refused() {
    for (log, format) in [
        ("_delta_log/00000000000000000000.json", "Delta"),
        ("metadata/00000-1.metadata.json", "Iceberg"),
        (".hoodie/hoodie.properties", "Hudi"),
    ] {
        let server = CloudServer::start(Cloud::S3);
        let sandbox = Sandbox::new();
        server.put(&format!("lake/users/{log}"), "{}");
        server.put("lake/users/day=1/part-0", lines(&ids(IdKind::Md5, 0..3)));
        for prefix in ["", "lake/", "lake/users/", "lake/users/day=1/"] {
            let url = server.url(prefix);
            let arguments = format!("build --store {{}}/s --audience a {url}");
            let refused = run_with(&server, &sandbox, &arguments);
            let belongs = format!("{url}: belongs to the {format} table in lake/users/, whose");
            refused.fails(3, &belongs);
        }
    }
}
