//! Catalog: every audience's snapshot, every strategy and every platform that the pod serves.
//!
//! A [`Catalog`] never changes: `sync` replaces it as a whole, in one [`arc_swap::ArcSwap`]. A
//! request loads it once, so it sees one consistent state.

mod audience;
mod caps;
mod counters;
mod decide;
mod experiments;
mod served;
mod served_strategy;

pub use audience::Audience;
pub use caps::ServedCaps;
pub use decide::{IdResult, RequestKeys};
pub use experiments::ServedExperiments;
pub use served::{ApiAccess, Catalog, CatalogParts, ServedPlatform, Serving};
