//! HTTP serving, signals and logging of `rtad` and `rtad-writer`.
//!
//! Serves a service, such as an [`axum::Router`], on a port with limits. Connections over the limit
//! get 503 at once. Idle connections and slow heads time out. A drain lets requests in flight
//! finish.
//!
//! | module | job |
//! |---|---|
//! | [`logging`] | JSON lines on stderr |
//! | [`signals`] | SIGTERM, SIGINT and SIGHUP |
//! | [`phase`] | phase of a port: serving or closing |
//! | [`open_files`] | limit of open files |
//! | [`room`] | memory for incomplete request bodies |
//! | [`listener`] | binding, listening and accepting |
//! | `stream` | stream of a connection: no reads while answers wait, and a close that loses none |
//! | [`connections`] | connections of one runtime: idle time-out and drain |
//! | [`workers`] | a thread and a runtime per core |
//! | [`port`] | a port served by the current runtime |
//! | [`body`] | bounded request bodies |
//! | [`tokens`] | files of bearer tokens |
//! | [`origin`] | protection against cross-site requests |
//! | [`json`] | JSON answers, and parse errors without quoted values |
//! | [`query`] | parameters of query strings |
//! | [`problem`] | `application/problem+json` |
//!
//! Each module uses only those above it in the table. Routes, handlers, metrics, and the use
//! of tokens belong to the programs. The crate uses no other crate of the workspace.

pub mod body;
pub mod connections;
pub mod json;
pub mod listener;
pub mod logging;
pub mod open_files;
pub mod origin;
pub mod phase;
pub mod port;
pub mod problem;
pub mod query;
pub mod room;
pub mod signals;
mod stream;
pub mod tokens;
pub mod workers;
