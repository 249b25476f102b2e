//! See README.md.
pub mod device;
pub mod filter;
pub mod memory;
pub mod snapshot;
pub mod store;
pub mod synth;
