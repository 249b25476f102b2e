//! `rtad._rtad`: the compiled part of the Python package `rtad`.
//!
//! A thin layer over the crates of the service and of the loader: keys, filters and files are
//! theirs. `python/rtad` documents the functions and checks arguments.
//!
//! | module | job |
//! |---|---|
//! | `values` | values of ids: Arrow arrays, NumPy arrays and lists, a batch at a time |
//! | `column` | result columns, for any library that reads Arrow |
//! | `job` | work of the loader on a thread of its own |
//! | `keys` | device keys of ids |
//! | `table` | rows for the loader |
//! | `audience` | an audience in memory |
//! | `commands` | commands of the loader, and explanations of the service |
//!
//! Each module uses only those above it in the table.

mod audience;
mod column;
mod commands;
mod job;
mod keys;
mod table;
mod values;

use pyo3::prelude::*;

#[pymodule]
mod _rtad {
    #[pymodule_export]
    use super::audience::LoadedSnapshot;
    #[pymodule_export]
    use super::column::ResultColumn;
    #[pymodule_export]
    use super::commands::{explain, run};
    #[pymodule_export]
    use super::keys::{key, keys};

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
