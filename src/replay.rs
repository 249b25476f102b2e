//! Replay: the decisions of a log, made again under another configuration.
//!
//! The rows hold everything that decisions depend on, so no snapshot, id or clock is needed, and
//! the code that decides is that of serving ([`crate::strategy::Strategy::decide`]). What the rows
//! do not hold is counted as a gap and named, never guessed in silence.
//!
//! Each file uses only those below it in the table.
//!
//! | file | job |
//! |---|---|
//! | `run` | files to a report, on several threads |
//! | `report` | the report as text and JSON |
//! | `compare` | decisions before and after |
//! | `comparison` | its result: counts and examples |
//! | `unlogged` | differences between two configurations that the rows do not decide |
//! | `rules` | a configuration that decides about rows |
//! | `clock` | a schedule at the times of rows |

mod clock;
mod compare;
mod comparison;
mod report;
mod rules;
mod run;
mod unlogged;

pub use report::Report;
pub use run::{Replay, ReplayError};
pub use unlogged::changes_answers;
