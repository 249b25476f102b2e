//! What is stated of the deltas that apply.

use metrics::Unit;

use super::Telemetry;
use rtad_core::snapshot::Overlay;

/// `# HELP` of these metrics.
pub(super) fn describe() {
    metrics::describe_gauge!("rtad_deltas", "Deltas that apply, by audience");
    metrics::describe_gauge!(
        "rtad_delta_keys",
        "Keys in them, by change: added, removed, tombstone"
    );
    metrics::describe_gauge!(
        "rtad_delta_appended_timestamp_seconds",
        Unit::Seconds,
        "When the newest change that is served was published"
    );
}

impl Telemetry {
    pub(super) fn deltas(&self, audience: &str, overlay: &Overlay) {
        let appended = overlay.appended_unix_seconds().map_or(f64::NAN, |seconds| seconds as f64);
        let keys = overlay.keys().map(|keys| keys as f64);
        self.set_deltas(audience, overlay.deltas().count() as f64, keys, appended);
    }

    pub(super) fn no_deltas(&self, audience: &str) {
        self.set_deltas(audience, f64::NAN, [f64::NAN; 3], f64::NAN);
    }

    fn set_deltas(&self, audience: &str, deltas: f64, keys: [f64; 3], appended: f64) {
        let audience = ("audience", audience);
        self.gauge("rtad_deltas", &[audience]).set(deltas);
        for (change, keys) in ["added", "removed", "tombstone"].into_iter().zip(keys) {
            self.gauge("rtad_delta_keys", &[audience, ("change", change)]).set(keys);
        }
        self.gauge("rtad_delta_appended_timestamp_seconds", &[audience]).set(appended);
    }
}
