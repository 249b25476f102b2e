//! HTTP serving and process plumbing shared by `rtad` and `rtad-loader serve`.
//!
//! A program hands over a tower service, usually an [`axum::Router`], and gets a port with limits:
//! connections over the limit are refused at once, idle ones and slow heads time out, and a drain
//! lets every request in flight finish.
//!
//! | module | job |
//! |---|---|
//! | [`error_chain`] | an error and its causes in one line |
//! | [`manual`] | shell completions and man pages |
//! | [`logging`] | JSON lines on stderr |
//! | [`signals`] | SIGTERM, SIGINT and SIGHUP |
//! | [`phase`] | serving, or closing |
//! | [`timing`] | queueing delay of a request |
//! | [`listener`] | binding, listening and accepting |
//! | [`connections`] | connections of one runtime: idle time-out and drain |
//! | [`workers`] | a thread and a runtime per core |
//! | [`port`] | a port served by the current runtime |
//! | [`body`] | bounded request bodies |
//! | [`json`] | JSON answers, and JSON errors that quote no value |
//! | [`problem`] | `application/problem+json` |
//!
//! Each module uses only those above it in the table. The crate knows neither audiences nor
//! devices: routes, handlers, metrics and credentials belong to the programs. It uses no other
//! crate of the workspace.

pub mod body;
pub mod connections;
pub mod error_chain;
pub mod json;
pub mod listener;
pub mod logging;
pub mod manual;
pub mod phase;
pub mod port;
pub mod problem;
pub mod signals;
pub mod timing;
pub mod workers;
