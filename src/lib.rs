//! Decides whether an ad impression is for a device you already know.
//!
//! An ad platform asks before each impression; the answer must be there within 60 ms, hundreds of
//! thousands of times a second. The pool of known devices, 1.5 billion ids, is held as Bloom filters
//! in the process: 65,536 of them, sharded by the key's first 16 bits, swapped atomically from
//! snapshots that an offline loader publishes.
//!
//! # Modules
//!
//! Each module uses only those below it in the table, and the crates `rtad-core`, `rtad-store` and
//! `rtad-http`.
//!
//! | module | job |
//! |---|---|
//! | `serve` | the running process: assembly, threads, ports, reload, drain |
//! | `http` | routes of both ports |
//! | `explain` | the reason for an answer, in words |
//! | `sync` | polling the store and swapping snapshots |
//! | `catalog` | everything a pod serves at this moment |
//! | `platform` | wire formats |
//! | `telemetry` | metrics and logs |
//! | `config` | the configuration, as data |
//! | `strategy` | rules over audiences |
//!
//! # Limits
//!
//! A member is always found; a non-member is found with the false-positive rate that the filter was
//! sized for. An id that stands for "no id" is never a key. Nothing here prints an id.

pub mod catalog;
pub mod config;
pub mod explain;
pub mod http;
pub mod platform;
pub mod serve;
pub mod strategy;
pub mod sync;
pub mod telemetry;
