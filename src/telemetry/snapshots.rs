//! Metrics of the served snapshots and of their deltas, and of the caps.

use std::time::Duration;

use super::registry::Telemetry;
use crate::cap::GrantState;
use rtad_core::snapshot::{AudienceName, Snapshot};

impl Telemetry {
    /// Sets the gauges of a served audience, and its `max_age`.
    pub fn snapshot(&self, snapshot: &Snapshot, max_age: Option<Duration>) {
        let manifest = snapshot.manifest();
        let overlay = snapshot.overlay();
        // NaN for a ribbon filter, which has no fill.
        let fill = manifest
            .fill_ratio()
            .map_or([f64::NAN; 3], |fill| [fill.min, fill.mean, fill.max]);

        let values = [
            manifest.generation() as f64,
            manifest.keys() as f64,
            manifest.size_bytes() as f64,
            manifest.created_unix_seconds() as f64,
            // NaN, as for an audience that is not served: no comparison with it holds.
            manifest
                .expires_unix_seconds()
                .map_or(f64::NAN, |expires| expires as f64),
            max_age.map_or(f64::NAN, |age| age.as_secs_f64()),
            manifest.target_fpr(),
            manifest.expected_fpr(),
            manifest.build().overlap.unwrap_or(f64::NAN),
            f64::from(u8::from(snapshot.is_mixed())),
            f64::from(u8::from(snapshot.is_staged())),
            overlay.deltas().count() as f64,
            overlay
                .appended_unix_seconds()
                .map_or(f64::NAN, |seconds| seconds as f64),
        ];

        let keys = overlay.keys().map(|keys| keys as f64);
        self.set_snapshot(manifest.audience().as_str(), values, fill, keys);
    }

    /// Sets the gauge of an audience that is served without the values that strategies ask for.
    pub fn tiers_missing(&self, audience: &AudienceName, is_missing: bool) {
        let audience = [("audience", audience.as_str())];
        self.gauge("rtad_tiers_missing", &audience)
            .set(f64::from(u8::from(is_missing)));
    }

    /// Sets the gauges of a cap: devices counted in its period, and their limit.
    pub fn cap(&self, cap: &str, devices: u64, limit: u64) {
        self.set_cap(cap, [devices as f64, limit as f64]);
    }

    /// Sets the metrics of a cap's grants.
    pub fn cap_grants(&self, cap: &str, grants: GrantState) {
        self.set_cap_granted(cap, grants.all_devices as f64);
        for (result, calls) in [("created", grants.created), ("failed", grants.failed)] {
            let labels = [("cap", cap), ("result", result)];
            self.counter("rtad_cap_records_total", &labels)
                .absolute(calls);
        }
    }

    /// Sets the gauges of a removed cap to NaN.
    pub fn no_cap(&self, cap: &str) {
        self.set_cap(cap, [f64::NAN; 2]);
        self.set_cap_granted(cap, f64::NAN);
    }

    fn set_cap_granted(&self, cap: &str, devices: f64) {
        self.gauge("rtad_cap_granted_devices", &[("cap", cap)])
            .set(devices);
    }

    fn set_cap(&self, cap: &str, [devices, limit]: [f64; 2]) {
        self.gauge("rtad_cap_devices", &[("cap", cap)]).set(devices);
        self.gauge("rtad_cap_limit", &[("cap", cap)]).set(limit);
    }

    /// Sets the gauges of an audience that is not served to NaN.
    pub fn no_snapshot(&self, audience: &str) {
        self.set_snapshot(audience, [f64::NAN; 13], [f64::NAN; 3], [f64::NAN; 3]);
        self.gauge("rtad_tiers_missing", &[("audience", audience)])
            .set(f64::NAN);
    }

    fn set_snapshot(&self, audience: &str, values: [f64; 13], fill: [f64; 3], keys: [f64; 3]) {
        const NAMES: [&str; 13] = [
            "rtad_snapshot_generation",
            "rtad_snapshot_keys",
            "rtad_snapshot_size_bytes",
            "rtad_snapshot_created_timestamp_seconds",
            "rtad_snapshot_expires_timestamp_seconds",
            "rtad_snapshot_max_age_seconds",
            "rtad_snapshot_target_fpr",
            "rtad_snapshot_expected_fpr",
            "rtad_snapshot_overlap_ratio",
            "rtad_snapshot_mixed",
            "rtad_snapshot_staged",
            "rtad_deltas",
            "rtad_delta_appended_timestamp_seconds",
        ];

        for (name, value) in NAMES.into_iter().zip(values) {
            self.gauge(name, &[("audience", audience)]).set(value);
        }
        for (stat, value) in ["min", "mean", "max"].into_iter().zip(fill) {
            self.gauge(
                "rtad_snapshot_fill_ratio",
                &[("audience", audience), ("stat", stat)],
            )
            .set(value);
        }
        for (change, keys) in ["added", "removed", "tombstone"].into_iter().zip(keys) {
            self.gauge(
                "rtad_delta_keys",
                &[("audience", audience), ("change", change)],
            )
            .set(keys);
        }
    }
}
