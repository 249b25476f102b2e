//! Tests of the whole service: the real server in this process, and the real `rtad` as a child
//! process. Tests that measure this process itself are binaries of their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixture;
mod pod;
mod rtad_process;
mod server;

mod cli;
mod golden;
mod http_contract;
mod publish_kill;
mod python_reader;
mod remote_stores;
#[cfg(target_os = "linux")]
mod rolling;
mod sync_deletion;
mod sync_deltas;
mod sync_faults;
mod sync_lifecycle;
