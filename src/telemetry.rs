//! Metrics, with closed sets of labels.
//!
//! Handles are created before the first request, so counting is an addition in memory that no other
//! worker writes. Values reach the exporter at a scrape. No device id is ever a label.
//!
//! | file | job | uses, of this folder |
//! |---|---|---|
//! | `counters` | counters with one slot per worker: requests, decisions, ids, failures | |
//! | `connections` | open connections | |
//! | `describe` | `# HELP` texts, initial values | |
//! | `registry` | [`Telemetry`] | all above |
//! | `cache`, `snapshots` | metrics of sync | `registry` |
//! | `log` | metrics of the decision log | `registry` |

mod cache;
mod connections;
mod counters;
mod describe;
mod log;
mod registry;
mod snapshots;

pub use cache::ChunkSource;
pub use connections::ConnectionPermit;
pub use counters::{
    BucketCounters, DecisionCounters, IdCounters, PlainCounter, Route, RouteMetrics,
    count_as_worker,
};
pub use log::{LogDrop, LogMetrics, LogStep};
pub use registry::{DecisionLabels, InFlight, Telemetry, ValueLabels};
