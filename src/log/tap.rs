//! One worker's requests to its ring.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rtad_http::timing::Arrival;
use rtad_log::{LogRow, Raw};
use rtrb::Producer;

use super::facts::{Decided, LoggedRequest, Numbers, facts};
use super::key::{LogKey, threshold};
use crate::catalog::{Catalog, RequestKeys};
use crate::config::{ANY_FAILURE, LogConfig, RawBodies};
use crate::platform::{Digits, Failure, Read, Verdicts};
use crate::strategy::{Assignments, Attribute, Decision, Reason};
use crate::telemetry::{LogDrop, LogMetrics};

/// Bytes of a record's length before it in the ring.
pub(super) const LENGTH: usize = size_of::<u32>();
/// Largest record without a body.
const MOST: usize = 16 << 10;

/// Requests that are logged.
#[derive(Debug)]
pub(super) struct Choice {
    /// Share of devices.
    sample: f64,
    threshold: u64,
    /// Whether a failure is always logged, by its index.
    failures: [bool; Failure::ALL.len()],
    /// Whether a reason is, by its index.
    reasons: [bool; Reason::ALL.len()],
    has_reasons: bool,
    request_ids: Vec<String>,
    has_raw: bool,
}

impl Choice {
    pub(super) fn new(config: &LogConfig) -> Self {
        let is_named = |word: &str| config.always.iter().any(|named| named == word);
        let reasons = Reason::ALL.map(|reason| is_named(reason.as_str()));
        let failures = Failure::ALL.map(|it| is_named(ANY_FAILURE) || is_named(it.as_str()));
        Self {
            sample: config.sample,
            threshold: threshold(config.sample),
            failures,
            has_reasons: reasons.contains(&true),
            reasons,
            request_ids: config.request_ids.clone(),
            has_raw: config.raw == RawBodies::Sampled,
        }
    }
}

/// The log of one worker.
#[derive(Debug)]
pub struct LogTap {
    choice: Arc<Choice>,
    key: Arc<ArcSwap<LogKey>>,
    metrics: LogMetrics,
    /// Locked by its worker alone.
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    producer: Producer<u8>,
    /// A record before it is copied into the ring.
    record: Box<[u8]>,
    /// Rows in a second.
    rate: f64,
    /// Rows that may be written now, and when that was so.
    left: f64,
    at: Instant,
    /// Choice of requests without a device.
    number: u64,
}

/// The end of a request.
#[derive(Debug, Clone, Copy)]
pub struct LoggedAnswer<'a> {
    /// Name of the platform.
    pub platform: &'a str,
    /// The cause of an answer that ignores the ids.
    pub failure: Option<Failure>,
    /// The request as it came.
    pub raw: Raw<'a>,
    /// Its arrival.
    pub arrival: Arrival,
}

/// A request on its way to the log.
#[derive(Debug)]
pub struct Entry<'t> {
    tap: &'t LogTap,
    /// The decisions, if they may be logged.
    decided: Option<(Decided, Cause)>,
}

/// Why a request is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Its device is in the sample.
    Sample,
    /// Its id, or the reason of a decision.
    Always,
    /// Its failure, if that is always logged: it is known later.
    Failure,
}

impl LogTap {
    /// A tap into a ring, for `rate` rows in a second.
    pub(super) fn new(
        choice: Arc<Choice>,
        key: Arc<ArcSwap<LogKey>>,
        metrics: LogMetrics,
        producer: Producer<u8>,
        rate: f64,
    ) -> Self {
        let most = if choice.has_raw { producer.buffer().capacity() / 2 } else { MOST };
        let record = vec![0; most].into_boxed_slice();
        let ring = Ring { producer, record, rate, left: rate, at: Instant::now(), number: 0 };
        Self { choice, key, metrics, ring: Mutex::new(ring) }
    }

    /// A request that begins.
    pub const fn begin(&self) -> Entry<'_> {
        Entry { tap: self, decided: None }
    }
}

impl Entry<'_> {
    /// Notes the decisions about a platform's request, if it is logged. A second call replaces the
    /// first: the answer was given up.
    pub fn decided(
        &mut self,
        read: &Read<'_>,
        keys: &RequestKeys,
        assignments: &Assignments,
        verdicts: &Verdicts,
    ) {
        let mut digits = Digits::new();
        let request_id = read.request_id.text(&mut digits);
        let decisions = verdicts.iter().map(|verdict| (verdict.strategy, verdict.decision));
        self.decided = self.tap.chosen(request_id, keys, assignments, decisions);
    }

    /// As [`Self::decided`], for a request to `/v1/decide`.
    pub fn decided_names(
        &mut self,
        request_id: Option<&str>,
        keys: &RequestKeys,
        assignments: &Assignments,
        decisions: impl Iterator<Item = (usize, Decision)> + Clone,
    ) {
        let request_id = request_id.unwrap_or_default().as_bytes();
        self.decided = self.tap.chosen(request_id, keys, assignments, decisions);
    }

    /// Logs a platform's request that has been answered.
    pub fn finish(self, catalog: &Catalog, read: &Read<'_>, answer: &LoggedAnswer<'_>) {
        if self.is_logged(answer.failure) {
            let mut numbers = Numbers::default();
            self.write(catalog, &LoggedRequest::of_read(read, &mut numbers), answer);
        }
    }

    /// Logs a request to `/v1/decide` that has been answered.
    pub fn finish_names(
        self,
        catalog: &Catalog,
        request: &LoggedRequest<'_>,
        body: &[u8],
        arrival: Arrival,
    ) {
        if self.is_logged(None) {
            let raw = Raw { query: None, body };
            let answer = LoggedAnswer { platform: super::API, failure: None, raw, arrival };
            self.write(catalog, request, &answer);
        }
    }

    fn is_logged(&self, failure: Option<Failure>) -> bool {
        let is_always = failure.is_some_and(|it| self.tap.choice.failures[it as usize]);
        is_always || self.decided.as_ref().is_some_and(|(_, cause)| *cause != Cause::Failure)
    }

    fn write(self, catalog: &Catalog, request: &LoggedRequest<'_>, answer: &LoggedAnswer<'_>) {
        let LoggedAnswer { platform, failure, raw, arrival } = *answer;
        let Self { tap, decided } = self;
        let choice = &tap.choice;
        let is_always = failure.is_some_and(|it| choice.failures[it as usize])
            || decided.as_ref().is_some_and(|(_, cause)| *cause == Cause::Always);
        let key = tap.key.load();
        let mut digits = [const { Digits::new_const() }; Attribute::ALL.len()];
        let facts = decided.as_ref().map(|(decided, _)| {
            facts(catalog, &key, request, decided, &mut digits, arrival.started)
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let row = LogRow {
            time: i64::try_from(now.as_micros()).unwrap_or(i64::MAX),
            latency: u32::try_from(arrival.started.elapsed().as_micros()).unwrap_or(u32::MAX),
            platform,
            failure: failure.map(Failure::as_str),
            probability: if is_always { 1.0 } else { choice.sample },
            config: catalog.config_id(),
            facts,
            raw: choice.has_raw.then_some(raw),
        };
        if let Err(reason) = tap.ring.lock().push(&row) {
            tap.metrics.dropped(reason, 1);
        }
    }
}

impl LogTap {
    /// The decisions, if they may be logged, and why.
    #[inline]
    fn chosen(
        &self,
        request_id: &[u8],
        keys: &RequestKeys,
        assignments: &Assignments,
        decisions: impl Iterator<Item = (usize, Decision)> + Clone,
    ) -> Option<(Decided, Cause)> {
        let choice = &*self.choice;
        let has_reason = || decisions.clone().any(|(_, it)| choice.reasons[it.reason as usize]);
        let is_sampled = || match keys.device() {
            Some(device) => self.key.load().is_sampled(device, choice.threshold),
            None => self.ring.lock().is_next(choice.threshold),
        };
        let cause = if choice.request_ids.iter().any(|id| id.as_bytes() == request_id)
            || choice.has_reasons && has_reason()
        {
            Cause::Always
        } else if choice.threshold > 0 && is_sampled() {
            Cause::Sample
        } else if keys.are_unread() && choice.failures.contains(&true) {
            Cause::Failure
        } else {
            return None;
        };
        let decisions = decisions.collect();
        let decided = Decided { keys: keys.clone(), assignments: assignments.clone(), decisions };
        Some((decided, cause))
    }
}

impl Ring {
    /// Whether the next request without a device is logged: every n-th one.
    const fn is_next(&mut self, threshold: u64) -> bool {
        // The fractional parts of multiples of the golden ratio are spread evenly.
        self.number = self.number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.number < threshold
    }

    /// Copies a row into the ring. Never waits.
    fn push(&mut self, row: &LogRow<'_>) -> Result<(), LogDrop> {
        let now = Instant::now();
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * self.rate;
        (self.left, self.at) = (self.rate.max(1.0).min(self.left + gained), now);
        if self.left < 1.0 {
            return Err(LogDrop::Rate);
        }
        let (length, record) = self.record.split_at_mut(LENGTH);
        let size = row.encode(record).map_err(|_| LogDrop::TooLarge)?.len();
        length.copy_from_slice(&u32::try_from(size).expect("less than the ring").to_le_bytes());
        let record = &self.record[..LENGTH + size];
        self.producer.push_entire_slice(record).map_err(|_| LogDrop::Ring)?;
        self.left -= 1.0;
        Ok(())
    }
}
