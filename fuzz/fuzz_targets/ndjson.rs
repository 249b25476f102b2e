//! Fuzz target: The loader's NDJSON parser.
#![no_main]

#[path = "../loader.rs"]
mod loader;
use loader::progress;
use rtad_fuzz::memory;

libfuzzer_sys::fuzz_target!(|input: &[u8]| loader::check_ndjson(input));
