//! The commands of `rtad`, run as a user runs them: stdout, stderr and exit code together.

mod check_config;
mod demo;
mod explain;
mod manual;
mod signals;
mod start;
mod watch;
