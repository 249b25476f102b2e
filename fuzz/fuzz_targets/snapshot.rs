//! Fuzz target: All files of a snapshot, with repaired digests.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rtad_fuzz::files::check_snapshot(input));
