//! Test harness of the integration tests of `rtad` and `rtad-loader`.
//!
//! | module | job |
//! |---|---|
//! | [`wait`] | waits for a condition, within a deadline |
//! | [`client`] | an HTTP/1.1 client over a bare socket |
//! | [`process`] | programs under test as child processes |
//! | [`server`] | a file server that misbehaves on command |
//! | [`store`] | keys, signatures, snapshots, and a store to publish into and spoil |
//! | [`platform`] | golden requests of ad platforms |
//! | [`reference`] | generated reference pages, compared with the committed ones |
//!
//! The crate depends on neither program. A test crate hands over the path of the program under
//! test, which only it knows (`env!("CARGO_BIN_EXE_…")`). A function that cannot go on panics, and
//! so fails its test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod client;
pub mod platform;
pub mod process;
pub mod reference;
pub mod server;
pub mod store;
pub mod wait;

pub use wait::wait_until;
