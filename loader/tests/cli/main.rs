//! The commands of `rtad-loader`, run as a user runs them: stdout, stderr and exit code together.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

mod appending;
mod dedup;
mod expiry;
mod gate;
mod inputs;
mod job;
mod memory;
mod publish;
mod reading;
mod remote;
mod remote_inputs;
mod resume;
mod serve;
mod signing;
mod zoo;
