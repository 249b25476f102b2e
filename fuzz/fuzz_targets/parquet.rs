//! Fuzz target: The loader's Parquet parser.
#![no_main]

#[path = "../loader.rs"]
mod loader;
use loader::progress;

libfuzzer_sys::fuzz_target!(|body: &[u8]| loader::check(loader::parquet(), body));
