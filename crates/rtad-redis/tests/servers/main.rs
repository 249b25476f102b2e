//! Tests of windows and leases that start servers: `make check` leaves out modules of this name.

#![allow(clippy::unwrap_used, reason = "errors fail the test")]

mod redis_server;
