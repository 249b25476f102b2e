//! What the two ports promise, asked of the real service over real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin;
mod check_many;
mod check_one;
#[path = "../common/mod.rs"]
mod common;
mod console;
mod decide;
mod errors;
mod explain;
mod limits;
mod metrics;
mod platforms;
mod privacy;
mod protocol;
mod reload;
