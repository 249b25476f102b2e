//! End-to-end tests of the `rtad-loader` commands: stdout, stderr and exit codes.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support;

mod appending;
mod changes;
mod columns;
mod declared_kinds;
mod dedup;
mod expiry;
mod gate;
mod id_forms;
mod inputs;
mod job;
mod memory;
mod prefixes;
mod publish;
mod reading;
mod remote;
mod remote_faults;
mod remote_inputs;
mod ribbon;
mod signals;
mod signing;
mod values;
mod zoo;
