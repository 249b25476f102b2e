//! The two ports: routes, handlers and answers.
//!
//! Both are axum applications behind the listener, connections and workers of `rtad-http`.
//! Platforms' paths come from the config. On the decision port a tower service in front of the
//! router looks them up in the catalog, so their requests pay no routing cost.
//!
//! | module | job |
//! |---|---|
//! | `error` | errors of the JSON routes, as problem documents |
//! | `segment` | path segments, decoded once |
//! | [`decision_app`] | state of the decision port; load, metrics and draining of each request |
//! | [`api`] | JSON of `/v1/decide` |
//! | `check`, `decide` | handlers of rtad's own routes |
//! | `platforms` | requests of platforms |
//! | [`decision_port`] | routes of the decision port |
//! | [`admin_app`] | state of the admin port |
//! | `tagged` | responses with an entity tag |
//! | `console` | the console page, from `http/console/` |
//! | `explain` | explanations of answers |
//! | `shards` | key counts per shard |
//! | `status` | probes, metrics, status, reload |
//! | [`admin_port`] | routes of the admin port |
//!
//! Each module uses only those above it in the table.

pub mod admin_app;
pub mod admin_port;
pub mod api;
mod check;
mod console;
mod decide;
pub mod decision_app;
pub mod decision_port;
mod error;
mod explain;
mod platforms;
mod segment;
mod shards;
mod status;
mod tagged;
