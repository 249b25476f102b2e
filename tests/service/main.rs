//! Tests of the whole service: the server in this process, and `rtad` as a child process. Tests
//! that measure their own process are separate binaries.

#![allow(clippy::unwrap_used, reason = "errors fail the test")]

mod fixture;
mod pod;
mod rtad_process;
mod server;

mod caps;
mod cli;
mod clouds;
mod decision_log;
mod golden;
mod http_contract;
mod kills;
mod python_reader;
mod remote_stores;
mod replay;
#[cfg(target_os = "linux")]
mod rolling;
mod sync_control;
mod sync_deletion;
mod sync_deltas;
mod sync_faults;
mod sync_lifecycle;
mod sync_records;
