//! The commands of `rtad`: stdout, stderr and exit code.

mod check_config;
mod demo;
mod explain;
mod init;
mod manual;
mod signals;
mod start;
mod watch;
