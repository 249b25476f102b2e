//! Metrics of the pod: readiness, limits, and the last reload of the config.

use super::registry::Telemetry;

impl Telemetry {
    /// Sets the readiness of the pod.
    pub fn ready(&self, is_ready: bool) {
        self.gauge("rtad_ready", &[])
            .set(f64::from(u8::from(is_ready)));
    }

    /// Sets the limit of open connections.
    pub fn max_connections(&self, limit: usize) {
        self.gauge("rtad_max_connections", &[]).set(limit as f64);
    }

    /// Sets the result of the last reload.
    pub fn reloaded(&self, is_served: bool) {
        self.gauge("rtad_config_last_reload_successful", &[])
            .set(f64::from(u8::from(is_served)));
    }
}
