//! Metrics, with closed sets of labels.
//!
//! Handles are created before the first request, so counting is an addition in memory that no other
//! worker writes. Values reach the exporter at a scrape. No device id is ever a label.
//!
//! | file | job | uses, of this folder |
//! |---|---|---|
//! | `sharded_counter` | counters with one slot per worker | |
//! | `connections` | open connections | |
//! | `describe` | `# HELP` texts, initial values | |
//! | `requests` | request counts and durations | `sharded_counter` |
//! | `decisions` | decisions, ids and failures of platforms' requests | `sharded_counter` |
//! | `registry` | [`Telemetry`] | all above |
//! | `cache`, `snapshots` | metrics of sync | `registry` |
//! | `log` | metrics of the decision log | `registry` |

mod cache;
mod connections;
mod decisions;
mod describe;
mod log;
mod registry;
mod requests;
mod sharded_counter;
mod snapshots;

pub use cache::ChunkSource;
pub use connections::ConnectionPermit;
pub use decisions::{BucketCounters, DecisionCounters, IdCounters, PlainCounter};
pub use log::{LogDrop, LogMetrics, LogStep};
pub use registry::{DecisionLabels, InFlight, Telemetry, ValueLabels};
pub use requests::{Route, RouteMetrics};
pub use sharded_counter::count_as_worker;
