//! What is stated of the pod itself: whether it is ready, its limits, and how its config was last reread.

use super::Telemetry;

/// `# HELP` of these metrics.
pub(super) fn describe() {
    metrics::describe_gauge!("rtad_ready", "1 while /readyz says ready");
    metrics::describe_gauge!(
        "rtad_max_connections",
        "Open connections of the decision port that are allowed"
    );
    metrics::describe_gauge!(
        "rtad_config_last_reload_successful",
        "1 if the config that was read last was taken, 0 if it was refused; what takes a restart aside"
    );
}

/// What holds from the start: the config was good, nothing is loaded.
pub(super) fn begin() {
    metrics::gauge!("rtad_ready").set(0.0);
    metrics::gauge!("rtad_config_last_reload_successful").set(1.0);
}

impl Telemetry {
    /// States whether the pod is ready.
    pub fn ready(&self, is_ready: bool) {
        self.gauge("rtad_ready", &[]).set(f64::from(u8::from(is_ready)));
    }

    /// States how many connections are allowed.
    pub fn max_connections(&self, limit: usize) {
        self.gauge("rtad_max_connections", &[]).set(limit as f64);
    }

    /// States whether the config that was read last is served.
    pub fn reloaded(&self, is_served: bool) {
        self.gauge("rtad_config_last_reload_successful", &[]).set(f64::from(u8::from(is_served)));
    }
}
