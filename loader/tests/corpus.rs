//! Replay of the fuzzer's corpus for the loader's readers.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "errors fail the test"
)]

#[path = "../../fuzz/loader.rs"]
mod loader;
#[path = "../../fuzz/memory.rs"]
#[allow(unreachable_pub, reason = "a library to the fuzz targets")]
mod memory;

use std::path::Path;

use loader::progress;

fn main() {
    for (target, check) in [
        ("csv", loader::check_csv as fn(&[u8])),
        ("ndjson", loader::check_ndjson),
        ("parquet", loader::check_parquet),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../fuzz/corpus")
            .join(target);
        for seed in std::fs::read_dir(folder).unwrap() {
            let path = seed.unwrap().path();
            println!("{}", path.display());
            check(&std::fs::read(&path).unwrap());
        }
    }
}
