//! What the service tells of itself: metrics with closed sets of labels, and JSON logs.
//!
//! Every handle a request needs is made before the first request, so that counting is an addition and no look-up. The recorder
//! is a value, not the process's global one: two servers in one process, as in tests, do not mix.
//!
//! The exporter keeps every histogram sample until somebody drains it; [`Telemetry::upkeep`] does, whether or not anybody scrapes.
//!
//! No device id is ever a label or a log field. A panic is logged by its place alone, since its message may quote anything.

mod cache;
mod deltas;
mod logging;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

pub use cache::ChunkSource;
pub use logging::{LogLevel, init_logging};

use crate::device::Unusable;
use crate::snapshot::Snapshot;
use crate::strategy::{Decision, Outcome, Reason};

/// Upper edges of the request histogram, in seconds: from what a decision costs to the 60 ms after which a platform no
/// longer listens, and a little beyond.
const DURATION_EDGES: [f64; 14] =
    [5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.06, 0.25];

/// How often histograms are drained. At 300,000 requests a second a second's samples are 5 MB.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A route of the decision port, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `GET /v1/check/{audience}/{id}`
    CheckOne,
    /// `POST /v1/check/{audience}`
    CheckMany,
    /// `POST /v1/decide`
    Decide,
    /// Anything else.
    Unknown,
}

impl Route {
    /// All of them; a platform's route has the platform's name instead.
    pub const ALL: [Self; 4] = [Self::CheckOne, Self::CheckMany, Self::Decide, Self::Unknown];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CheckOne => "check_one",
            Self::CheckMany => "check_many",
            Self::Decide => "decide",
            Self::Unknown => "unknown",
        }
    }
}

/// Makes and holds all metrics. One per server.
pub struct Telemetry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    routes: [RouteMetrics; Route::ALL.len()],
    shed: Counter,
    in_flight: AtomicUsize,
    in_flight_gauge: Gauge,
    connections: Arc<AtomicUsize>,
    connections_gauge: Gauge,
}

/// What is counted of a route's requests.
#[derive(Debug, Clone)]
pub struct RouteMetrics {
    route: String,
    ok: Counter,
    duration: Histogram,
}

/// Counters of one strategy's decisions under one platform's name.
#[derive(Debug, Clone)]
pub struct DecisionCounters([[Counter; Reason::ALL.len()]; 2]);

impl DecisionCounters {
    /// Counts a decision.
    #[inline]
    pub fn count(&self, decision: Decision) {
        self.0[decision.outcome as usize][decision.reason as usize].increment(1);
    }
}

/// Counters of the ids of one kind, by what became of them.
#[derive(Debug, Clone)]
pub struct IdCounters {
    usable: Counter,
    blank: Counter,
    malformed: Counter,
    doubtful: Counter,
}

impl IdCounters {
    /// Counts one id.
    #[inline]
    pub fn count<T>(&self, id: &Result<T, Unusable>) {
        match id {
            Ok(_) => self.usable.increment(1),
            Err(Unusable::Blank) => self.blank.increment(1),
            Err(Unusable::Malformed) => self.malformed.increment(1),
        }
    }

    /// Counts one that its sender holds for junk.
    #[inline]
    pub fn count_doubtful(&self) {
        self.doubtful.increment(1);
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        let edges = Matcher::Full("rtad_request_duration_seconds".to_owned());
        let sync_edges = Matcher::Full("rtad_sync_duration_seconds".to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(edges, &DURATION_EDGES)
            .and_then(|builder| {
                builder.set_buckets_for_metric(sync_edges, &[0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0])
            })
            .expect("the edges are not empty")
            .build_recorder();
        let handle = recorder.handle();
        let (routes, shed, in_flight_gauge, connections_gauge) =
            metrics::with_local_recorder(&recorder, || {
                describe();
                metrics::gauge!("rtad_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
                let routes = Route::ALL.map(|route| RouteMetrics::new(route.as_str()));
                let gauges = (metrics::gauge!("rtad_in_flight"), metrics::gauge!("rtad_connections"));
                (routes, metrics::counter!("rtad_shed_total"), gauges.0, gauges.1)
            });
        let (in_flight, connections) = Default::default();
        Self { recorder, handle, routes, shed, in_flight, in_flight_gauge, connections, connections_gauge }
    }
}

/// `# HELP` of every metric.
fn describe() {
    metrics::describe_counter!("rtad_requests_total", "Requests answered, by route and HTTP status");
    metrics::describe_histogram!(
        "rtad_request_duration_seconds",
        Unit::Seconds,
        "From a request's head to its answer's, by route"
    );
    metrics::describe_counter!(
        "rtad_decisions_total",
        "Decisions, by platform, strategy, outcome and reason"
    );
    metrics::describe_counter!(
        "rtad_platform_failures_total",
        "Platforms' requests that were not answered by their ids, by cause"
    );
    metrics::describe_counter!("rtad_ids_total", "Device ids in requests, by kind and what became of them");
    metrics::describe_gauge!("rtad_in_flight", "Requests being answered");
    metrics::describe_counter!("rtad_shed_total", "Requests and connections refused because of a limit");
    metrics::describe_gauge!("rtad_connections", "Open connections of the decision port");
    metrics::describe_gauge!("rtad_snapshot_generation", "Generation being served, by audience");
    metrics::describe_gauge!("rtad_snapshot_keys", "Distinct device keys in it");
    metrics::describe_gauge!("rtad_snapshot_size_bytes", Unit::Bytes, "Size of its chunks");
    metrics::describe_gauge!("rtad_snapshot_created_timestamp_seconds", Unit::Seconds, "When it was built");
    metrics::describe_gauge!(
        "rtad_snapshot_expires_timestamp_seconds",
        Unit::Seconds,
        "From when on it is not served; NaN = never"
    );
    metrics::describe_gauge!("rtad_snapshot_expected_fpr", "False-positive rate by its filters' fill");
    metrics::describe_gauge!(
        "rtad_snapshot_mixed",
        "1 while some chunks are of another generation than that"
    );
    metrics::describe_gauge!("rtad_snapshot_fill_ratio", "Fraction of its filters' bits that are set");
    metrics::describe_counter!("rtad_sync_total", "Looks at the store, by audience and result");
    metrics::describe_histogram!(
        "rtad_sync_duration_seconds",
        Unit::Seconds,
        "Time a look took, by audience"
    );
    cache::describe();
    deltas::describe();
    metrics::describe_gauge!("rtad_build_info", "Always 1; the version is a label");
}

impl RouteMetrics {
    /// To be called with a recorder in place.
    fn new(route: &str) -> Self {
        let label = route.to_owned();
        Self {
            ok: metrics::counter!("rtad_requests_total", "route" => label.clone(), "code" => "200"),
            duration: metrics::histogram!("rtad_request_duration_seconds", "route" => label.clone()),
            route: label,
        }
    }
}

impl Telemetry {
    /// What is counted of requests to one of rtad's own routes.
    #[inline]
    pub const fn route(&self, route: Route) -> &RouteMetrics {
        &self.routes[route as usize]
    }

    /// What is counted of requests to a platform's route.
    pub fn platform_route(&self, platform: &str) -> RouteMetrics {
        metrics::with_local_recorder(&self.recorder, || RouteMetrics::new(platform))
    }

    /// Counts a finished request.
    #[inline]
    pub fn request(&self, route: &RouteMetrics, code: u16, duration: Duration) {
        route.duration.record(duration);
        if code == 200 {
            route.ok.increment(1);
        } else {
            // Rare, and of few values: the look-up is not worth a table.
            self.counter("rtad_requests_total", &[("route", &route.route), ("code", &code.to_string())])
                .increment(1);
        }
    }

    /// Counters of why a platform's requests were not answered by their ids, in the order of `causes`.
    pub fn platform_failures<const N: usize>(&self, platform: &str, causes: [&str; N]) -> [Counter; N] {
        causes.map(|cause| {
            self.counter("rtad_platform_failures_total", &[("platform", platform), ("cause", cause)])
        })
    }

    /// Takes a place among the requests in flight; `None` if all `limit` are taken, which is counted.
    #[inline]
    pub fn enter(&self, limit: usize) -> Option<Place<'_>> {
        let place = Place(&self.in_flight);
        if self.in_flight.fetch_add(1, Ordering::Relaxed) < limit {
            return Some(place);
        }
        drop(place);
        self.shed.increment(1);
        None
    }

    /// Takes a place among the connections; `None` if all `limit` are taken, which is counted.
    pub fn connect(&self, limit: usize) -> Option<ConnectionPlace> {
        let place = ConnectionPlace(Arc::clone(&self.connections));
        if self.connections.fetch_add(1, Ordering::Relaxed) < limit {
            return Some(place);
        }
        drop(place);
        self.shed.increment(1);
        None
    }

    /// Open connections of the decision port.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counters for a strategy's decisions.
    pub fn decisions(&self, platform: &str, strategy: &str) -> DecisionCounters {
        DecisionCounters([Outcome::Bid, Outcome::NoBid].map(|outcome| {
            Reason::ALL.map(|reason| {
                let labels = [
                    ("platform", platform),
                    ("strategy", strategy),
                    ("decision", outcome.as_str()),
                    ("reason", reason.as_str()),
                ];
                self.counter("rtad_decisions_total", &labels)
            })
        }))
    }

    /// Counters for ids of one kind.
    pub fn ids(&self, kind: &str) -> IdCounters {
        let results = ["usable", Unusable::Blank.as_str(), Unusable::Malformed.as_str(), "doubtful"];
        let [usable, blank, malformed, doubtful] =
            results.map(|result| self.counter("rtad_ids_total", &[("kind", kind), ("result", result)]));
        IdCounters { usable, blank, malformed, doubtful }
    }

    /// States what is served of an audience.
    pub fn snapshot(&self, snapshot: &Snapshot) {
        let manifest = snapshot.manifest();
        let fill = manifest.fill_ratio();
        let values = [
            manifest.generation() as f64,
            manifest.keys() as f64,
            manifest.size_bytes() as f64,
            manifest.created_unix_seconds() as f64,
            // As of what is not served: nothing that compares with it comes true.
            manifest.expires_unix_seconds().map_or(f64::NAN, |expires| expires as f64),
            manifest.expected_fpr(),
            f64::from(u8::from(snapshot.is_mixed())),
        ];
        let audience = manifest.audience().as_str();
        self.set_snapshot(audience, values, [fill.min, fill.mean, fill.max]);
        self.deltas(audience, snapshot.overlay());
    }

    /// States that an audience is no longer served: the exporter cannot forget a series, and no comparison with NaN holds, so
    /// that no alert on its age goes off.
    pub fn no_snapshot(&self, audience: &str) {
        self.set_snapshot(audience, [f64::NAN; 7], [f64::NAN; 3]);
        self.no_deltas(audience);
    }

    fn set_snapshot(&self, audience: &str, values: [f64; 7], fill: [f64; 3]) {
        const NAMES: [&str; 7] = [
            "rtad_snapshot_generation",
            "rtad_snapshot_keys",
            "rtad_snapshot_size_bytes",
            "rtad_snapshot_created_timestamp_seconds",
            "rtad_snapshot_expires_timestamp_seconds",
            "rtad_snapshot_expected_fpr",
            "rtad_snapshot_mixed",
        ];
        for (name, value) in NAMES.into_iter().zip(values) {
            self.gauge(name, &[("audience", audience)]).set(value);
        }
        for (stat, value) in ["min", "mean", "max"].into_iter().zip(fill) {
            self.gauge("rtad_snapshot_fill_ratio", &[("audience", audience), ("stat", stat)]).set(value);
        }
    }

    /// Counts a look at the store.
    pub fn sync(&self, audience: &str, result: &str, duration: Duration) {
        self.counter("rtad_sync_total", &[("audience", audience), ("result", result)]).increment(1);
        metrics::with_local_recorder(&self.recorder, || {
            metrics::histogram!("rtad_sync_duration_seconds", "audience" => audience.to_owned())
                .record(duration);
        });
    }

    fn counter(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        let labels: Vec<_> =
            labels.iter().map(|(key, value)| metrics::Label::new(*key, (*value).to_owned())).collect();
        metrics::with_local_recorder(&self.recorder, || metrics::counter!(name, labels))
    }

    fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        let labels: Vec<_> =
            labels.iter().map(|(key, value)| metrics::Label::new(*key, (*value).to_owned())).collect();
        metrics::with_local_recorder(&self.recorder, || metrics::gauge!(name, labels))
    }

    /// All metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        self.in_flight_gauge.set(self.in_flight.load(Ordering::Relaxed) as f64);
        self.connections_gauge.set(self.connections() as f64);
        self.handle.render()
    }

    /// Drains the histograms for ever, so that memory stays flat when nobody scrapes.
    pub async fn upkeep(&self) {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            self.handle.run_upkeep();
        }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

/// A place under a limit; given back when dropped, however the work ends.
#[derive(Debug)]
pub struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection's place under a limit; given back when dropped.
#[derive(Debug)]
pub struct ConnectionPlace(Arc<AtomicUsize>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
