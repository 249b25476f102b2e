//! HTTP serving, signals, logging and metrics of `rtad` and `rtad-writer`.
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
//! | [`tokens`] | files of bearer tokens |
//! | [`exporter`] | exporter of metrics |
//! | [`answer`] | answers: JSON, and the text of metrics |
//! | [`problem`] | `application/problem+json` |
//! | [`request_error`] | errors of requests that every service answers alike |
//! | [`body`] | bounded request bodies |
//! | [`origin`] | protection against cross-site requests |
//! | [`json`] | JSON bodies, and parse errors without quoted values |
//! | [`query`] | parameters of query strings |
//!
//! Each module uses only those above it in the table. Routes, handlers, the list of metrics, and
//! the use of tokens belong to the programs. The crate uses no other crate of the workspace.

pub mod answer;
pub mod body;
pub mod connections;
pub mod exporter;
pub mod json;
pub mod listener;
pub mod logging;
pub mod open_files;
pub mod origin;
pub mod phase;
pub mod port;
pub mod problem;
pub mod query;
pub mod request_error;
pub mod room;
pub mod signals;
mod stream;
pub mod tokens;
pub mod workers;
