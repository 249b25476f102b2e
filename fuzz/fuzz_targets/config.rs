//! Fuzz target: The service's configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rtad_fuzz::config::check_config(input));
