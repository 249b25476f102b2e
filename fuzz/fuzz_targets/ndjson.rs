//! Lines of JSON, as the loader reads them.
#![no_main]

#[path = "../loader.rs"]
mod loader;
use loader::progress;

libfuzzer_sys::fuzz_target!(|body: &[u8]| loader::hold(loader::ndjson(), body));
