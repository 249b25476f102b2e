//! Real-time ad decisions: bid or no-bid, by a device's membership in audiences.
//!
//! Ad platforms send a request before each impression and expect the answer within 60 ms, hundreds
//! of thousands of times a second. Audiences of up to 1.5 billion ids are held as Bloom filters in
//! the process: 65,536 shards, by the key's first 16 bits. Snapshots come from an offline loader
//! and are swapped atomically.
//!
//! # Modules
//!
//! Each module uses only those below it in the table, and the crates `rtad-core`, `rtad-config`,
//! `rtad-store`, `rtad-http` and `rtad-log`.
//!
//! | module | job |
//! |---|---|
//! | `offline` | the explanation of a captured request, without a pod |
//! | `replay` | decisions of a log, made again |
//! | `serve` | the running process: assembly, threads, ports, reload, drain |
//! | `http` | routes of both ports |
//! | `explain` | the reason for an answer, in words |
//! | `log` | the decision log |
//! | `sync` | polling the store and swapping snapshots |
//! | `catalog` | everything a pod serves at this moment |
//! | `platform` | wire formats |
//! | `telemetry` | metrics |
//! | `cap` | unique caps of strategies: counts per period, and grants |
//! | `config` | the configuration, as data |
//! | `strategy` | rules over audiences |
//!
//! # Limits
//!
//! A member is always found; a non-member with the false-positive rate that the filter was sized
//! for. A blank id is never a key. The process log has no ids.

pub mod cap;
pub mod catalog;
pub mod config;
pub mod explain;
pub mod http;
pub mod log;
pub mod offline;
pub mod platform;
pub mod replay;
pub mod serve;
pub mod strategy;
pub mod sync;
pub mod telemetry;
