//! Fuzz target: Delta files with repaired fields and digests.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rtad_fuzz::files::check_delta(input));
