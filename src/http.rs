//! The two ports: routes, handlers and answers.
//!
//! Both are axum applications, and use the listener, connections and workers of `rtad-http`. A
//! layer before the router of the decision port answers the hot paths, as a router would cost more
//! than their answers.
//!
//! | module | job |
//! |---|---|
//! | `error` | errors of the JSON routes, as problem documents |
//! | `segment` | path segments, decoded once |
//! | [`decision_port`] | the layer, requests of platforms, and rtad's own routes |
//! | [`gauges`] | gauges of what is served |
//! | [`admin_app`] | state of the admin port |
//! | `tagged` | responses with an entity tag |
//! | `console` | the console page, from `http/console/` |
//! | `explain` | explanations of answers |
//! | `shards` | key counts per shard |
//! | `rules` | rules of the strategies in words |
//! | `status` | probes, metrics, status, reload |
//! | [`admin_port`] | routes of the admin port |
//!
//! Each module uses only those above it in the table.

pub mod admin_app;
pub mod admin_port;
mod console;
pub mod decision_port;
mod error;
mod explain;
pub mod gauges;
mod rules;
mod segment;
mod shards;
mod status;
mod tagged;
