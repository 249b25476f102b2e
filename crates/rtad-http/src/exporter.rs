//! Exporter of metrics: a recorder with one histogram, and the text of a scrape.
//!
//! The recorder is a value, not the process's global one: two servers in one process, as in tests,
//! do not mix.

use std::fmt;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

/// Time between two drains of the histograms: the recorder keeps every sample until then.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The metrics of one server.
pub struct Exporter {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Exporter {
    /// An exporter whose histogram has these edges.
    ///
    /// # Panics
    ///
    /// Without edges.
    pub fn new(histogram: &str, edges: &[f64]) -> Self {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(histogram.to_owned()), edges)
            .expect("edges of a histogram")
            .build_recorder();
        let handle = recorder.handle();
        Self { recorder, handle }
    }

    /// Runs `work` with its metrics in this exporter.
    pub fn record<T>(&self, work: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&self.recorder, work)
    }

    /// The counter with these labels.
    pub fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.record(|| metrics::counter!(name, labels))
    }

    /// The gauge with these labels.
    pub fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.record(|| metrics::gauge!(name, labels))
    }

    /// The histogram with these labels.
    pub fn histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        self.record(|| metrics::histogram!(name, labels))
    }

    /// All metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Drains the histograms: without it, memory grows until a scrape.
    pub fn drain(&self) {
        self.handle.run_upkeep();
    }

    /// Drains them periodically, without end.
    pub async fn upkeep(&self) {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            self.drain();
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}
