//! HTTP contract of both ports, tested over real sockets.

mod admin;
mod api_access;
mod check_many;
mod check_one;
mod console;
mod decide;
mod errors;
mod experiments;
mod explain;
mod explain_api;
mod limits;
mod metrics;
mod platforms;
mod privacy;
mod protocol;
mod reload;
mod values;
