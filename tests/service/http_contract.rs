//! What the two ports promise, asked of the real service over real sockets.

mod admin;
mod check_many;
mod check_one;
mod console;
mod decide;
mod errors;
mod explain;
mod limits;
mod metrics;
mod platforms;
mod privacy;
mod protocol;
mod reload;
