//! Event windows in Redis or Valkey.

mod capabilities;
mod config;
mod connection;
mod error;
mod name;
mod node;
mod router;
mod slots;
mod window;

pub use capabilities::{Capabilities, Eviction};
pub use config::RedisConfig;
pub use error::RedisError;
pub use window::{Lifetime, RedisWindow, Seen};
