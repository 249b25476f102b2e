//! Registry of all metrics: the recorder, the workers' counters, and the text of a scrape.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge, Label};
use parking_lot::Mutex;

use rtad_http::exporter::Exporter;
use rtad_http::room::BodyRoom;

use super::connections::{ConnectionPermit, OpenConnections};
use super::counters::{
    self, BucketCounters, DecisionCounters, IdCounters, PlainCounter, Route, RouteMetrics,
    ShardedCounter,
};
use super::describe::{describe, set_initial_values};
use crate::strategy::{Outcome, Reason};

/// The histogram of polls, and its edges in seconds.
const SYNC_SECONDS: &str = "rtad_sync_duration_seconds";
const SYNC_EDGES: [f64; 8] = [0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

/// Makes and holds all metrics. One per server.
pub struct Telemetry {
    /// Recorder of all metrics.
    pub exporter: Exporter,
    routes: [RouteMetrics; Route::ALL.len()],
    labeled: Mutex<LabeledCounters>,
    shed: Counter,
    /// Requests begun and not yet ended.
    in_flight: ShardedCounter<1>,
    in_flight_gauge: Gauge,
    connections: Arc<OpenConnections>,
    connections_gauge: Gauge,
    room: OnceLock<Arc<BodyRoom>>,
}

/// Counters of the workers, by labels. Equal labels share a counter.
#[derive(Default)]
struct LabeledCounters {
    platform_routes: BTreeMap<String, RouteMetrics>,
    decisions: BTreeMap<DecisionLabels, DecisionCounters>,
    /// The counters by strategy, experiment and bucket.
    buckets: BTreeMap<[String; 3], BucketCounters>,
    /// The counters by strategy, row and conditions.
    values: BTreeMap<(String, usize, ValueLabels), PlainCounter>,
    /// The counters by platform and cause.
    failures: BTreeMap<(String, &'static str), PlainCounter>,
    /// The counters by platform and kind.
    ids: BTreeMap<(String, &'static str), IdCounters>,
}

/// The labels of a strategy's decisions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecisionLabels {
    /// Name of the platform.
    pub platform: String,
    /// Name of the strategy.
    pub strategy: String,
    /// Name of the condition that makes no-bids; empty of bids, and of no-bids without one.
    pub condition: String,
    /// Whether the strategy answers nothing: its decisions have a metric of their own.
    pub is_shadow: bool,
}

/// The conditions of a row of a strategy's values; those that it does not have are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueLabels {
    /// Audience.
    pub audience: String,
    /// Values of members of the audience.
    pub tier: String,
    /// Experiment.
    pub experiment: String,
    /// Part in the experiment.
    pub bucket: String,
}

impl Default for Telemetry {
    fn default() -> Self {
        let exporter = Exporter::new(SYNC_SECONDS, &SYNC_EDGES);
        exporter.record(|| {
            describe();
            set_initial_values();
        });

        Self {
            routes: Route::ALL.map(|route| RouteMetrics::new(route.as_str())),
            labeled: Mutex::default(),
            shed: exporter.counter("rtad_shed_total", Vec::new()),
            in_flight: ShardedCounter::default(),
            in_flight_gauge: exporter.gauge("rtad_in_flight", Vec::new()),
            connections: Arc::default(),
            connections_gauge: exporter.gauge("rtad_connections", Vec::new()),
            room: OnceLock::new(),
            exporter,
        }
    }
}

impl Telemetry {
    /// Metrics of one of rtad's own routes.
    #[inline]
    pub const fn route(&self, route: Route) -> &RouteMetrics {
        &self.routes[route as usize]
    }

    /// Metrics of a platform's route.
    pub fn platform_route(&self, platform: &str) -> RouteMetrics {
        let mut labeled = self.labeled.lock();
        let route = labeled.platform_routes.entry(platform.to_owned());
        route.or_insert_with(|| RouteMetrics::new(platform)).clone()
    }

    /// Counters of a strategy's decisions. Those that `can_occur` have a series from the start.
    pub fn decisions(
        &self,
        labels: &DecisionLabels,
        can_occur: impl Fn(Outcome, Reason) -> bool,
    ) -> DecisionCounters {
        let mut labeled = self.labeled.lock();
        let counters = labeled.decisions.entry(labels.clone()).or_default();
        counters.allow(can_occur);
        counters.clone()
    }

    /// Counters of a strategy's decisions about the devices of a bucket.
    pub fn buckets(&self, strategy: &str, experiment: &str, bucket: &str) -> BucketCounters {
        let key = [strategy, experiment, bucket].map(str::to_owned);

        let mut labeled = self.labeled.lock();
        let counters = labeled.buckets.entry(key).or_insert_with(|| {
            BucketCounters::new(|decision| {
                let labels = [
                    ("strategy", strategy),
                    ("experiment", experiment),
                    ("bucket", bucket),
                    ("decision", decision),
                ];
                self.counter("rtad_bucket_decisions_total", &labels)
            })
        });
        counters.clone()
    }

    /// Counter of a strategy's bids with the value of a row, counted from 0.
    pub fn value(&self, strategy: &str, row: usize, conditions: &ValueLabels) -> PlainCounter {
        let number = row.to_string();
        let labels = [
            ("strategy", strategy),
            ("row", &number),
            ("audience", &conditions.audience),
            ("tier", &conditions.tier),
            ("experiment", &conditions.experiment),
            ("bucket", &conditions.bucket),
        ];
        let key = (strategy.to_owned(), row, conditions.clone());

        let mut labeled = self.labeled.lock();
        let counter = labeled
            .values
            .entry(key)
            .or_insert_with(|| PlainCounter::new(self.counter("rtad_bid_values_total", &labels)));
        counter.clone()
    }

    /// Counters of a platform's ids of one kind.
    pub fn ids(&self, platform: &str, kind: &'static str) -> IdCounters {
        let key = (platform.to_owned(), kind);
        self.labeled.lock().ids.entry(key).or_default().clone()
    }

    /// Counts a finished request.
    #[inline]
    pub fn request(&self, route: &RouteMetrics, code: u16, duration: Duration) {
        route.record(duration, code == 200);
        if code != 200 {
            // Rare, with few values: a lookup is cheap enough.
            self.requests(&route.route, &code.to_string()).increment(1);
        }
    }

    fn requests(&self, route: &str, code: &str) -> Counter {
        self.counter("rtad_requests_total", &[("route", route), ("code", code)])
    }

    /// Counters of a platform's failures, in the order of `causes`.
    pub fn platform_failures<const N: usize>(
        &self,
        platform: &str,
        causes: [&'static str; N],
    ) -> [PlainCounter; N] {
        causes.map(|cause| {
            let key = (platform.to_owned(), cause);
            let mut labeled = self.labeled.lock();
            let counter = labeled.failures.entry(key).or_insert_with(|| {
                let labels = [("platform", platform), ("cause", cause)];
                PlainCounter::new(self.counter("rtad_platform_failures_total", &labels))
            });
            counter.clone()
        })
    }

    /// Counts a request as in flight until the value is dropped. Drop it on the same thread.
    #[inline]
    pub fn begin(&self) -> InFlight<'_> {
        self.in_flight.add(0, 1);
        InFlight(&self.in_flight)
    }

    /// Counts a shed request.
    pub fn shed(&self) {
        self.shed.increment(1);
    }

    /// A permit for a connection; `None`, counted as shed, if `limit` permits are in use.
    pub fn connect(&self, limit: usize) -> Option<ConnectionPermit> {
        let (permit, is_within) = self.connections.open(limit);
        if is_within {
            return Some(permit);
        }
        drop(permit);
        self.shed();
        None
    }

    /// Sets the room of the decision port's incomplete bodies.
    pub fn observe_room(&self, room: Arc<BodyRoom>) {
        let _ = self.room.set(room);
    }

    /// Open connections of the decision port.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    /// Time since the last connection of the decision port closed: zero while one is open,
    /// [`Duration::MAX`] if there was none.
    pub fn unused_for(&self) -> Duration {
        self.connections.unused_for()
    }

    /// Whether the sync thread runs.
    pub fn sync_alive(&self, alive: bool) {
        self.gauge("rtad_sync_alive", &[])
            .set(f64::from(u8::from(alive)));
    }

    /// Sets the readiness of the pod.
    pub fn ready(&self, is_ready: bool) {
        self.gauge("rtad_ready", &[])
            .set(f64::from(u8::from(is_ready)));
    }

    /// Sets the limit of open connections.
    pub fn max_connections(&self, limit: usize) {
        self.gauge("rtad_max_connections", &[]).set(limit as f64);
    }

    /// Sets the hash of the config that is served, the first 12 digits of its `id` as a number,
    /// and the time at which it was loaded. A label would leave a series of each config.
    pub fn config_loaded(&self, id: &str, unix_seconds: u64) {
        let digits = id.get(..12).unwrap_or_default();
        let hash = u64::from_str_radix(digits, 16).unwrap_or_default();
        self.gauge("rtad_config_hash", &[]).set(hash as f64);
        self.gauge("rtad_config_loaded_timestamp_seconds", &[])
            .set(unix_seconds as f64);
    }

    /// Sets the result of the last reload.
    pub fn reloaded(&self, is_served: bool) {
        self.gauge("rtad_config_last_reload_successful", &[])
            .set(f64::from(u8::from(is_served)));
    }

    /// Counts a poll of the store that ends now.
    pub fn sync(&self, audience: &str, result: &str, duration: Duration) {
        self.counter(
            "rtad_sync_total",
            &[("audience", audience), ("result", result)],
        )
        .increment(1);
        self.exporter
            .histogram(SYNC_SECONDS, owned(&[("audience", audience)]))
            .record(duration);

        if let "ok" | "unchanged" = result {
            let began = SystemTime::now() - duration;
            let caught_up = began.duration_since(UNIX_EPOCH).unwrap_or_default();
            self.gauge(
                "rtad_sync_caught_up_timestamp_seconds",
                &[("audience", audience)],
            )
            .set(caught_up.as_secs_f64());
        }
    }

    /// Sets the gauge of a removed audience, which is polled no more, to NaN: no alert on it fires.
    pub fn no_sync(&self, audience: &str) {
        self.gauge(
            "rtad_sync_caught_up_timestamp_seconds",
            &[("audience", audience)],
        )
        .set(f64::NAN);
    }

    pub(super) fn counter(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        self.exporter.counter(name, owned(labels))
    }

    pub(super) fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        self.exporter.gauge(name, owned(labels))
    }

    /// All metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        // Signed: the threads' counters are read one after the other.
        self.in_flight_gauge
            .set(self.in_flight.sum(0).cast_signed().max(0) as f64);
        self.connections_gauge.set(self.connections() as f64);
        if let Some(room) = self.room.get() {
            self.gauge("rtad_buffered_bytes", &[])
                .set(room.taken_bytes() as f64);
        }

        let labeled = self.labeled.lock();
        for route in self.all_routes(&labeled) {
            self.requests(&route.route, "200").absolute(route.ok());
        }

        for (of, counters) in &labeled.decisions {
            let name = if of.is_shadow {
                "rtad_shadow_decisions_total"
            } else {
                "rtad_decisions_total"
            };
            counters.publish(|decision, reason| {
                let mut labels = vec![
                    ("platform", of.platform.as_str()),
                    ("strategy", of.strategy.as_str()),
                    ("decision", decision),
                    ("reason", reason),
                ];
                if !of.condition.is_empty() {
                    labels.push(("condition", of.condition.as_str()));
                }
                self.counter(name, &labels)
            });
        }

        for counters in labeled.buckets.values() {
            counters.publish();
        }
        for counter in labeled.values.values() {
            counter.publish();
        }
        for counter in labeled.failures.values() {
            counter.publish();
        }
        for ((platform, kind), counters) in &labeled.ids {
            counters.publish(|result| {
                let labels = [
                    ("platform", platform.as_str()),
                    ("kind", kind),
                    ("result", result),
                ];
                self.counter("rtad_ids_total", &labels)
            });
        }

        let mut text = self.exporter.render();
        counters::render(self.all_routes(&labeled), &mut text);
        text
    }

    fn all_routes<'t>(
        &'t self,
        labeled: &'t LabeledCounters,
    ) -> impl Iterator<Item = &'t RouteMetrics> {
        self.routes.iter().chain(labeled.platform_routes.values())
    }
}

fn owned(labels: &[(&'static str, &str)]) -> Vec<Label> {
    labels
        .iter()
        .map(|(key, value)| Label::new(*key, (*value).to_owned()))
        .collect()
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
