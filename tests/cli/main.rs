//! The commands of `rtad`, run as a user runs them: stdout, stderr and exit code together.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod check_config;
#[path = "../common/mod.rs"]
mod common;
mod demo;
mod explain;
mod manual;
mod signals;
mod start;
mod watch;
