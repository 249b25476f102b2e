//! The two ports: routes, handlers and answers.
//!
//! Both are axum applications behind the listener, connections and workers of `rtad-http`. Platforms'
//! paths are not routes but configuration: on the decision port a tower service in front of the
//! router asks the catalog for them, so that a platform's request pays nothing for routing.
//!
//! | module | job |
//! |---|---|
//! | `error` | errors of the JSON routes, as problem documents |
//! | `segment` | segments of a path, decoded once |
//! | [`decision_app`] | state of the decision port, and what every request of it goes through |
//! | [`api`] | JSON of `/v1/decide` |
//! | `check`, `decide` | handlers of rtad's own routes |
//! | `platforms` | platforms' requests |
//! | [`decision_port`] | routes of the decision port |
//! | [`admin_app`] | state of the admin port |
//! | `tagged` | answers with an entity tag |
//! | `console` | the page for people, from `http/console/` |
//! | `explain` | the reason for an answer |
//! | `shards` | keys of each shard |
//! | `status` | probes, metrics, status, reload |
//! | `origin` | protection against requests that another site's page has a browser send |
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
mod origin;
mod platforms;
mod segment;
mod shards;
mod status;
mod tagged;
