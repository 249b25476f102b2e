//! What the service tells of itself: metrics with closed sets of labels, and JSON logs.
//!
//! Every handle a request needs is made before the first request, so that counting is an addition and no look-up, in memory that no
//! other worker writes. The exporter is told of it when somebody scrapes. The recorder is a value, not the process's global one: two
//! servers in one process, as in tests, do not mix.
//!
//! The exporter keeps every sample of its histograms until somebody drains it; [`Telemetry::upkeep`] does, whether or not anybody scrapes.
//!
//! | file | what is counted |
//! |---|---|
//! | `requests` | requests: how many, how long they took |
//! | `decisions` | decisions, and the ids that they are made by |
//! | `cache`, `deltas` | what sync reads |
//! | `pod` | whether it is ready, its limits, how its config was last reread |
//! | `connections` | open connections |
//! | `counter` | counts by thread |
//!
//! No device id is ever a label or a log field. A panic is logged by its place alone, since its message may quote anything.

mod cache;
mod connections;
mod decisions;
mod deltas;
mod pod;
mod requests;
mod sharded_counter;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metrics::{Counter, Gauge, Unit};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

pub use cache::ChunkSource;
pub use connections::ConnectionPermit;
pub use decisions::{DecisionCounters, IdCounters};
pub use requests::{Route, RouteMetrics};
pub use sharded_counter::count_as_worker;

use connections::OpenConnections;
use rtad_core::snapshot::Snapshot;
use sharded_counter::ShardedCounter;

/// How often the exporter's histograms are drained.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Makes and holds all metrics. One per server.
pub struct Telemetry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    routes: [RouteMetrics; Route::ALL.len()],
    tallied: Mutex<Tallied>,
    shed: Counter,
    /// Begun and not yet ended.
    in_flight: ShardedCounter<1>,
    in_flight_gauge: Gauge,
    waiting: AtomicUsize,
    connections: Arc<OpenConnections>,
    connections_gauge: Gauge,
}

/// What workers count, by labels: whoever asks for the same again gets the same.
#[derive(Default)]
struct Tallied {
    platform_routes: BTreeMap<String, RouteMetrics>,
    /// By platform and strategy.
    decisions: BTreeMap<(String, String), DecisionCounters>,
    /// By kind.
    ids: BTreeMap<String, IdCounters>,
}

impl Default for Telemetry {
    fn default() -> Self {
        let sync_edges = Matcher::Full("rtad_sync_duration_seconds".to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(sync_edges, &[0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0])
            .expect("the edges are not empty")
            .build_recorder();
        let handle = recorder.handle();
        let (shed, in_flight_gauge, connections_gauge) =
            metrics::with_local_recorder(&recorder, || {
                describe();
                cache::begin();
                pod::begin();
                metrics::gauge!("rtad_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
                let gauges =
                    (metrics::gauge!("rtad_in_flight"), metrics::gauge!("rtad_connections"));
                (metrics::counter!("rtad_shed_total"), gauges.0, gauges.1)
            });
        let routes = Route::ALL.map(|route| RouteMetrics::new(route.as_str()));
        let (tallied, in_flight, waiting, connections) = Default::default();
        Self {
            recorder,
            handle,
            routes,
            tallied,
            shed,
            in_flight,
            in_flight_gauge,
            waiting,
            connections,
            connections_gauge,
        }
    }
}

/// `# HELP` of every metric.
fn describe() {
    metrics::describe_counter!(
        "rtad_requests_total",
        "Requests answered, by route and HTTP status"
    );
    metrics::describe_counter!(
        "rtad_decisions_total",
        "Decisions, by platform, strategy, outcome and reason"
    );
    metrics::describe_counter!(
        "rtad_platform_failures_total",
        "Platforms' requests that were not answered by their ids, by cause"
    );
    metrics::describe_counter!(
        "rtad_ids_total",
        "Device ids in requests, by kind and what became of them"
    );
    metrics::describe_gauge!("rtad_in_flight", "Requests being answered");
    metrics::describe_counter!(
        "rtad_shed_total",
        "Requests and connections refused because of a limit"
    );
    metrics::describe_gauge!("rtad_connections", "Open connections of the decision port");
    metrics::describe_gauge!("rtad_snapshot_generation", "Generation being served, by audience");
    metrics::describe_gauge!("rtad_snapshot_keys", "Distinct device keys in it");
    metrics::describe_gauge!("rtad_snapshot_size_bytes", Unit::Bytes, "Size of its chunks");
    metrics::describe_gauge!(
        "rtad_snapshot_created_timestamp_seconds",
        Unit::Seconds,
        "When it was built"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_expires_timestamp_seconds",
        Unit::Seconds,
        "From when on it is not served; NaN = never"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_max_age_seconds",
        Unit::Seconds,
        "Older than this it is not served, by the pod's config; NaN = never too old"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_target_fpr",
        "False-positive rate that it was built for"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_expected_fpr",
        "False-positive rate by its filters' fill"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_mixed",
        "1 while some chunks are of another generation than that"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_fill_ratio",
        "Fraction of its filters' bits that are set"
    );
    metrics::describe_counter!("rtad_sync_total", "Looks at the store, by audience and result");
    metrics::describe_histogram!(
        "rtad_sync_duration_seconds",
        Unit::Seconds,
        "Time a look took, by audience"
    );
    cache::describe();
    deltas::describe();
    pod::describe();
    metrics::describe_gauge!("rtad_build_info", "Always 1; the version is a label");
}

impl Telemetry {
    /// What is counted of requests to one of rtad's own routes.
    #[inline]
    pub const fn route(&self, route: Route) -> &RouteMetrics {
        &self.routes[route as usize]
    }

    /// What is counted of requests to a platform's route.
    pub fn platform_route(&self, platform: &str) -> RouteMetrics {
        let mut tallied = self.tallied();
        let route = tallied.platform_routes.entry(platform.to_owned());
        route.or_insert_with(|| RouteMetrics::new(platform)).clone()
    }

    /// Counts a finished request.
    #[inline]
    pub fn request(&self, route: &RouteMetrics, code: u16, duration: Duration) {
        route.record(duration, code == 200);
        if code != 200 {
            // Rare, and of few values: the look-up is not worth a table.
            self.requests(&route.route, &code.to_string()).increment(1);
        }
    }

    fn requests(&self, route: &str, code: &str) -> Counter {
        self.counter("rtad_requests_total", &[("route", route), ("code", code)])
    }

    /// Counters of why a platform's requests were not answered by their ids, in the order of `causes`.
    pub fn platform_failures<const N: usize>(
        &self,
        platform: &str,
        causes: [&str; N],
    ) -> [Counter; N] {
        causes.map(|cause| {
            self.counter(
                "rtad_platform_failures_total",
                &[("platform", platform), ("cause", cause)],
            )
        })
    }

    /// Has a request be in flight until the value is dropped, by the same thread.
    #[inline]
    pub fn begin(&self) -> InFlight<'_> {
        self.in_flight.add(0, 1);
        InFlight(&self.in_flight)
    }

    /// Whether as many as `limit` requests wait for their bodies: then one more is shed, which is counted. All others in flight are as
    /// few as there are workers, as what has come is answered at once.
    #[inline]
    pub fn is_full(&self, limit: usize) -> bool {
        let is_full = self.waiting.load(Ordering::Relaxed) >= limit;
        if is_full {
            self.shed();
        }
        is_full
    }

    /// Takes a place among the requests that wait for their bodies; `None` if all `limit` are taken, which is counted.
    pub fn wait(&self, limit: usize) -> Option<Place<'_>> {
        let place = Place(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) < limit {
            return Some(place);
        }
        drop(place);
        self.shed();
        None
    }

    /// Counts a request that is shed.
    pub fn shed(&self) {
        self.shed.increment(1);
    }

    /// Takes a place among the connections; `None` if all `limit` are taken, which is counted.
    pub fn connect(&self, limit: usize) -> Option<ConnectionPermit> {
        let (place, is_within) = self.connections.open(limit);
        if is_within {
            return Some(place);
        }
        drop(place);
        self.shed();
        None
    }

    /// Open connections of the decision port.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    /// For how long no connection of the decision port has been open: nothing while one is.
    pub fn unused_for(&self) -> Duration {
        self.connections.unused_for()
    }

    /// States what is served of an audience, and how old the config lets it grow.
    pub fn snapshot(&self, snapshot: &Snapshot, max_age: Option<Duration>) {
        let manifest = snapshot.manifest();
        let fill = manifest.fill_ratio();
        let values = [
            manifest.generation() as f64,
            manifest.keys() as f64,
            manifest.size_bytes() as f64,
            manifest.created_unix_seconds() as f64,
            // As of what is not served: nothing that compares with it comes true.
            manifest.expires_unix_seconds().map_or(f64::NAN, |expires| expires as f64),
            max_age.map_or(f64::NAN, |age| age.as_secs_f64()),
            manifest.target_fpr(),
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
        self.set_snapshot(audience, [f64::NAN; 9], [f64::NAN; 3]);
        self.no_deltas(audience);
    }

    fn set_snapshot(&self, audience: &str, values: [f64; 9], fill: [f64; 3]) {
        const NAMES: [&str; 9] = [
            "rtad_snapshot_generation",
            "rtad_snapshot_keys",
            "rtad_snapshot_size_bytes",
            "rtad_snapshot_created_timestamp_seconds",
            "rtad_snapshot_expires_timestamp_seconds",
            "rtad_snapshot_max_age_seconds",
            "rtad_snapshot_target_fpr",
            "rtad_snapshot_expected_fpr",
            "rtad_snapshot_mixed",
        ];
        for (name, value) in NAMES.into_iter().zip(values) {
            self.gauge(name, &[("audience", audience)]).set(value);
        }
        for (stat, value) in ["min", "mean", "max"].into_iter().zip(fill) {
            self.gauge("rtad_snapshot_fill_ratio", &[("audience", audience), ("stat", stat)])
                .set(value);
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
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| metrics::Label::new(*key, (*value).to_owned()))
            .collect();
        metrics::with_local_recorder(&self.recorder, || metrics::counter!(name, labels))
    }

    fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| metrics::Label::new(*key, (*value).to_owned()))
            .collect();
        metrics::with_local_recorder(&self.recorder, || metrics::gauge!(name, labels))
    }

    /// All metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        // Signed: of two threads one may be read before the other.
        self.in_flight_gauge.set(self.in_flight.sum(0).cast_signed().max(0) as f64);
        self.connections_gauge.set(self.connections() as f64);
        let tallied = self.tallied();
        let routes = || self.routes.iter().chain(tallied.platform_routes.values());
        for route in routes() {
            self.requests(&route.route, "200").absolute(route.ok());
        }
        tallied.decisions.values().for_each(DecisionCounters::publish);
        tallied.ids.values().for_each(IdCounters::publish);
        let mut text = self.handle.render();
        requests::render(routes(), &mut text);
        text
    }

    fn tallied(&self) -> MutexGuard<'_, Tallied> {
        self.tallied.lock().expect("nothing panics under this lock")
    }

    /// Drains the exporter's histograms, so that memory stays flat when nobody scrapes. They are of looks at the store.
    pub fn drain(&self) {
        self.handle.run_upkeep();
    }

    /// Drains them for ever.
    pub async fn upkeep(&self) {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            self.drain();
        }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlight<'a>(&'a ShardedCounter<1>);

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.add(0, u64::MAX);
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
