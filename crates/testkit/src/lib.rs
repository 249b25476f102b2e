//! Test harness of the integration tests of `rtad` and `rtad-loader`.
//!
//! | module | job |
//! |---|---|
//! | [`wait`] | waits for a condition, within a deadline |
//! | [`client`] | an HTTP/1.1 client over a bare socket |
//! | [`process`] | child processes of the programs under test |
//! | [`port`] | free ports |
//! | [`tls`] | a certificate authority |
//! | [`cgroup`] | a memory limit |
//! | [`random`] | deterministic pseudo-random numbers and keys |
//! | [`sandbox`] | a folder with inputs and a store, and runs of programs in it |
//! | [`server`] | a file server with injected faults |
//! | [`cloud`] | a bucket of S3, Alibaba OSS or Tencent COS |
//! | [`faulty_store`] | a store in memory with injected faults |
//! | [`store`] | keys, signatures, snapshots, and test stores |
//! | [`platform`] | golden requests of ad platforms |
//! | [`mod@reference`] | generated reference pages, compared with the committed ones |
//! | [`pages`] | blocks of code and tables in the pages of `docs/` |
//! | [`mistakes`] | tables of mistakes in configs |
//! | [`config_reference`] | the reference page of a program's TOML |
//!
//! The crate depends on neither program: a test passes the path of the program under test
//! (`env!("CARGO_BIN_EXE_…")`). Functions panic on errors.

#![allow(clippy::unwrap_used, reason = "errors fail the test")]

pub mod cgroup;
pub mod client;
pub mod cloud;
pub mod config_reference;
pub mod faulty_store;
pub mod mistakes;
pub mod pages;
pub mod platform;
pub mod port;
pub mod process;
pub mod random;
pub mod reference;
pub mod sandbox;
pub mod server;
pub mod store;
pub mod tls;
pub mod wait;

pub use wait::wait_until;
