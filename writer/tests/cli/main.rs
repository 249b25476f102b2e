//! `rtad-writer`: the binary over HTTP, on a directory, and in a bucket if the `stores` suite has
//! started a server. Results are read with the store library, as a pod reads them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod process;

mod audiences;
mod devices;
mod faults;
mod refusals;
mod scopes;
mod signing;
mod together;
mod windows;
