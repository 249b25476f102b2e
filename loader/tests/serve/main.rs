//! `rtad-loader serve`: the real binary, over real HTTP, on a store in a directory, and on S3 if `tests/stores/run.sh` has
//! started a server. What was written is read back with the store library, as a pod reads it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "tests/stores/run.sh looks that nothing was skipped")]

#[path = "../../../tests/common/client.rs"]
#[allow(dead_code, reason = "the service's tests use the rest")]
mod client;
mod process;
#[path = "../support/mod.rs"]
mod support;

mod audiences;
mod devices;
mod faults;
mod refusals;
mod together;
