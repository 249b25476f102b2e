//! Fuzz target: records.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rtad_fuzz::files::check_current(input));
