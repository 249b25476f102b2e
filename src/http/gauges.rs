//! Gauges of the served audiences and caps. Each scrape sets them from the served catalog, so that
//! it shows what requests are answered from.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::cap::Usage;
use crate::catalog::Serving;
use crate::sync::Shared;

/// Audiences and caps whose gauges were set, and have not become NaN since.
#[derive(Debug, Default)]
pub struct Gauges(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    audiences: BTreeSet<String>,
    caps: BTreeSet<String>,
}

impl Gauges {
    /// Sets the gauges of what is served. Those of what is served no more become NaN: the exporter
    /// cannot remove a series, and no comparison with NaN holds, so no alert on an age fires.
    pub(super) fn set(&self, serving: &Serving, shared: &Shared) {
        // The catalog is loaded under the lock: of two scrapes, the later one has the newer one.
        let mut before = self.0.lock();
        let catalog = serving.load();
        let telemetry = &shared.telemetry;
        let mut now = Names::default();

        for (audience, is_missing) in catalog.audiences().iter().zip(catalog.are_tiers_missing()) {
            let Some(snapshot) = &audience.snapshot else {
                continue;
            };
            telemetry.snapshot(snapshot, audience.max_age);
            telemetry.tiers_missing(&audience.name, is_missing);
            now.audiences.insert(audience.name.as_str().to_owned());
        }

        for cap in catalog.caps().iter() {
            let Usage { devices, limit, .. } = cap.usage();
            telemetry.cap(cap.name(), devices, limit);
            telemetry.cap_grants(cap.name(), shared.caps.grants(cap));
            now.caps.insert(cap.name().to_owned());
        }

        for name in before.audiences.difference(&now.audiences) {
            telemetry.no_snapshot(name);
        }
        for name in before.caps.difference(&now.caps) {
            telemetry.no_cap(name);
        }
        *before = now;
    }
}
