//! The decision log: a row of facts per request, in Parquet files.
//!
//! **Job.** The row ([`LogRow`]), its bytes between threads, its columns in a file, and the folder
//! of the files. `docs/reference/decision-log.md` describes the schema.
//!
//! **Does not do.** Choosing which requests are logged, and deciding again (`rtad`); uploading
//! files (`rtad-store`).
//!
//! | module | job | uses, of this crate |
//! |---|---|---|
//! | [`mod@row`] | a row, and its bytes between threads | |
//! | `schema` | the columns of a file, as text | |
//! | `columns` | rows to columns | `row` |
//! | [`mod@write`] | a file: written aside, synced, renamed | `row`, `schema`, `columns` |
//! | [`mod@read`] | a file's rows and configs | `row`, `schema` |
//! | [`folder`] | names, remains of a killed process | `write` |

mod columns;
pub mod folder;
pub mod read;
pub mod row;
mod schema;
pub mod write;

#[cfg(test)]
mod tests;

pub use row::{
    AudienceFact, CapFact, CapState, DecisionFact, Device, ExperimentFact, InAudience, LogRow,
    LoggedConfig, LoggedFacts, LookedUpIds, Raw, RowEnd,
};
pub use schema::VERSION;
