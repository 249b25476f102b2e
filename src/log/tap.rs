//! One worker's requests to its ring: which are logged, and their bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rtad_log::row::{encode_end, encode_facts};
use rtad_log::{Raw, RowEnd};
use rtrb::Producer;
use tokio::time::Instant;

use super::facts::{Decided, LoggedRequest, Numbers, facts};
use super::key::{LogKey, threshold};
use crate::catalog::{Catalog, RequestKeys};
use crate::config::{ANY_FAILURE, LogConfig, RawBodies};
use crate::platform::{Digits, Failure, Read, Verdicts};
use crate::strategy::{Attribute, Decision, Facts, LookedUp, Reason};
use crate::telemetry::{LogDrop, LogMetrics};

/// Bytes of a record's length before it in the ring.
pub const LENGTH: usize = size_of::<u32>();

/// Which requests are logged.
#[derive(Debug)]
pub struct LogFilter {
    /// Share of devices.
    sample: f64,
    threshold: u64,
    /// Failures that are always logged, by index.
    failures: [bool; Failure::ALL.len()],
    /// Failures that leave the answer unchanged, by index: logged only if `log.always` names them.
    tolerated_failures: [bool; Failure::ALL.len()],
    /// Reasons that are always logged, by index.
    reasons: [bool; Reason::ALL.len()],
    has_reasons: bool,
    request_ids: Vec<String>,
    has_raw: bool,
}

fn has_word(words: &[String], word: &str) -> bool {
    words.iter().any(|named| named == word)
}

impl LogFilter {
    pub fn new(config: &LogConfig) -> Self {
        let always = &config.always;
        let has_any = has_word(always, ANY_FAILURE);
        let reasons = Reason::ALL.map(|reason| has_word(always, reason.as_str()));
        let failures = Failure::ALL.map(|it| has_any || has_word(always, it.as_str()));

        Self {
            sample: config.sample,
            threshold: threshold(config.sample),
            failures,
            tolerated_failures: Failure::ALL.map(|it| has_word(always, it.as_str())),
            has_reasons: reasons.contains(&true),
            reasons,
            request_ids: config.request_ids.clone(),
            has_raw: config.raw == RawBodies::Sampled,
        }
    }
}

/// An allowance of rows that all workers share. Workers begin its seconds: the log's thread may
/// wait for its disk for longer.
#[derive(Debug)]
pub struct Allowance {
    begun: Instant,
    /// The second since `begun` whose rows are counted.
    second: AtomicU64,
    left: AtomicI64,
    rate: i64,
}

impl Allowance {
    /// An allowance of so many rows in a second.
    pub fn new(rate: u32) -> Self {
        let rate = rate.into();
        Self {
            begun: Instant::now(),
            second: AtomicU64::new(0),
            left: AtomicI64::new(rate),
            rate,
        }
    }

    /// Takes a row of a request at a time. Returns false if none is left.
    pub fn take(&self, at: Instant) -> bool {
        let order = Ordering::Relaxed;
        let second = at.saturating_duration_since(self.begun).as_secs();
        let last = self.second.load(order);
        if second > last {
            let begun = self.second.compare_exchange(last, second, order, order);
            if begun.is_ok() {
                self.left.store(self.rate, order);
            }
        }
        self.left.fetch_sub(1, order) > 0
    }
}

/// The log of one worker.
#[derive(Debug)]
pub struct LogTap {
    filter: Arc<LogFilter>,
    key: Arc<ArcSwap<LogKey>>,
    metrics: LogMetrics,
    allowance: Arc<Allowance>,
    /// Locked by its worker alone.
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    producer: Producer<u8>,
    /// A record before it is copied into the ring.
    record: Box<[u8]>,
    /// Chooses requests without a device.
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
    pub raw: Option<Raw<'a>>,
    /// When its worker started it.
    pub started: Instant,
}

/// A request that may become a row at its end.
#[derive(Debug)]
pub struct PendingRow<'t> {
    tap: &'t LogTap,
    chosen: Option<Chosen>,
}

/// A request that may be logged.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    causes: Causes,
    /// Bytes of its facts in the ring's record.
    facts_size: usize,
}

/// Why a request is logged. Without a cause it is undecided until the answer: it is logged if it
/// fails with a failure of the filter.
#[derive(Debug, Clone, Copy, Default)]
struct Causes {
    /// Its device is in the sample.
    is_sampled: bool,
    /// Its id, a failure that leaves the answer unchanged, or the reason of a decision.
    is_always: bool,
}

impl LogTap {
    /// A tap into a ring.
    pub(crate) fn new(
        filter: Arc<LogFilter>,
        key: Arc<ArcSwap<LogKey>>,
        metrics: LogMetrics,
        allowance: Arc<Allowance>,
        producer: Producer<u8>,
    ) -> Self {
        let record = vec![0; producer.buffer().capacity() / 2].into_boxed_slice();
        let ring = Mutex::new(Ring {
            producer,
            record,
            number: 0,
        });

        Self {
            filter,
            key,
            metrics,
            allowance,
            ring,
        }
    }

    /// A request that begins.
    pub const fn begin(&self) -> PendingRow<'_> {
        PendingRow {
            tap: self,
            chosen: None,
        }
    }
}

/// A platform's request and the verdicts about it.
#[derive(Debug, Clone, Copy)]
pub struct DecidedRead<'d, 'r> {
    /// The request.
    pub read: &'d Read<'r>,
    /// Its keys.
    pub keys: &'d RequestKeys,
    /// The facts about its device.
    pub facts: &'d Facts<'d>,
    /// The verdicts, those in shadow too.
    pub verdicts: &'d Verdicts,
    /// Its time.
    pub at: Instant,
}

impl PendingRow<'_> {
    /// Notes the decisions about a platform's request, if it may be logged. A second call replaces
    /// the first: the answer was given up.
    pub fn decided(&mut self, catalog: &Catalog, decided: &DecidedRead<'_, '_>) {
        let &DecidedRead {
            read,
            keys,
            facts,
            verdicts,
            at,
        } = decided;
        let decisions = verdicts
            .iter()
            .map(|verdict| (verdict.strategy, verdict.decision));
        let mut digits = Digits::new();
        let request_id = read.request_id.text(&mut digits);
        let tolerated = self.tap.filter.tolerated_failures;
        let is_always = read.observed.is_some_and(|it| tolerated[it as usize])
            || keys.has_too_many_ids() && tolerated[Failure::TooManyIds as usize];

        self.chosen = None;
        let causes = self
            .tap
            .causes(is_always, request_id, keys, decisions.clone());
        if let Some(causes) = causes {
            // A replay under other rules may read any audience.
            let mut all_facts = facts.clone();
            catalog.complete(keys, &mut all_facts);
            let mut numbers = Numbers::default();
            let decided = Decided {
                catalog,
                request: &LoggedRequest::of_read(read, &mut numbers),
                keys,
                facts: &all_facts,
                at,
            };
            self.chosen = self.tap.encode(&decided, causes, decisions);
        }
    }

    /// As [`Self::decided`], for a request to `/v1/decide`.
    pub fn decided_names(
        &mut self,
        decided: &Decided<'_, '_>,
        decisions: impl Iterator<Item = (usize, Decision)> + Clone,
    ) {
        let request_id = decided.request.request_id.unwrap_or_default().as_bytes();
        self.chosen = None;
        let causes = self
            .tap
            .causes(false, request_id, decided.keys, decisions.clone());
        if let Some(causes) = causes {
            self.chosen = self.tap.encode(decided, causes, decisions);
        }
    }

    /// Logs a device of a batch that has been decided. The next one has a row of its own.
    pub fn finish_device(&mut self, catalog: &Catalog, answer: &LoggedAnswer<'_>) {
        let next = self.tap.begin();
        std::mem::replace(self, next).finish(catalog, answer);
    }

    /// Logs a request that has been answered, if it is chosen.
    pub fn finish(self, catalog: &Catalog, answer: &LoggedAnswer<'_>) {
        let tap = self.tap;
        let filter = &*tap.filter;
        let mut causes = Causes::default();
        let mut facts_size = None;
        if let Some(chosen) = self.chosen {
            causes = chosen.causes;
            facts_size = Some(chosen.facts_size);
        }
        if let Some(failure) = answer.failure {
            causes.is_always |= filter.failures[failure as usize];
        }
        if !causes.is_sampled && !causes.is_always {
            return;
        }

        let started = answer.started;
        if !tap.allowance.take(started) {
            tap.metrics.dropped(LogDrop::Rate, 1);
            return;
        }

        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let end = RowEnd {
            time: i64::try_from(now.as_micros()).unwrap_or(i64::MAX),
            latency: u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX),
            platform: answer.platform,
            failure: answer.failure.map(Failure::as_str),
            // A sampled row may be one of `always` too: such a row is certain to be in the log.
            probability: if causes.is_always { 1.0 } else { filter.sample },
            sampled: causes.is_sampled,
            config: catalog.config_id(),
            raw: if filter.has_raw { answer.raw } else { None },
        };
        if let Err(reason) = tap.ring.lock().push(facts_size, &end) {
            tap.metrics.dropped(reason, 1);
        }
    }
}

impl LogTap {
    /// Why a request may be logged; `None` if it is not. `is_always` if something else than its id
    /// and its decisions makes it one of `log.always`.
    #[inline]
    fn causes(
        &self,
        is_always: bool,
        request_id: &[u8],
        keys: &RequestKeys,
        mut decisions: impl Iterator<Item = (usize, Decision)>,
    ) -> Option<Causes> {
        let filter = &*self.filter;
        let mut request_ids = filter.request_ids.iter();
        let is_always = is_always
            || request_ids.any(|id| id.as_bytes() == request_id)
            || filter.has_reasons && decisions.any(|(_, it)| filter.reasons[it.reason as usize]);

        let mut is_sampled = false;
        if filter.threshold > 0 {
            is_sampled = match keys.device() {
                Some(device) => self.key.load().is_sampled(device, filter.threshold),
                None => self.ring.lock().is_next(filter.threshold),
            };
        }

        // The answer will be a failure; the filter wants it or not when it is known which.
        let may_fail = keys.looked_up() == LookedUp::Unread && filter.failures.contains(&true);
        if !is_always && !is_sampled && !may_fail {
            return None;
        }
        Some(Causes {
            is_sampled,
            is_always,
        })
    }

    /// Encodes the facts of a request into the record. They wait there for the end of the answer: a
    /// worker answers one request at a time.
    fn encode(
        &self,
        decided: &Decided<'_, '_>,
        causes: Causes,
        decisions: impl Iterator<Item = (usize, Decision)>,
    ) -> Option<Chosen> {
        let mut digits = [const { Digits::new_const() }; Attribute::ALL.len()];
        let facts = facts(decided, decisions, &mut digits);
        let mut ring = self.ring.lock();
        match encode_facts(Some(&facts), &mut ring.record[LENGTH..]) {
            Ok(facts_size) => Some(Chosen { causes, facts_size }),
            Err(_) => {
                self.metrics.dropped(LogDrop::TooLarge, 1);
                None
            }
        }
    }
}

impl Ring {
    /// Whether the next request without a device is logged: every n-th one.
    const fn is_next(&mut self, threshold: u64) -> bool {
        // The fractional parts of multiples of the golden ratio are spread evenly.
        self.number = self.number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.number < threshold
    }

    /// Copies a row into the ring, whose facts are in the record. Never waits.
    fn push(&mut self, facts: Option<usize>, end: &RowEnd<'_>) -> Result<(), LogDrop> {
        let (length, record) = self.record.split_at_mut(LENGTH);
        let mut size = match facts {
            Some(size) => size,
            None => encode_facts(None, record).map_err(|_| LogDrop::TooLarge)?,
        };
        size += encode_end(end, &mut record[size..]).map_err(|_| LogDrop::TooLarge)?;

        let size_bytes = u32::try_from(size)
            .expect("less than the ring")
            .to_le_bytes();
        length.copy_from_slice(&size_bytes);
        let record = &self.record[..LENGTH + size];
        self.producer
            .push_entire_slice(record)
            .map_err(|_| LogDrop::Ring)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_second_has_its_rows_whatever_the_order_of_requests() {
        let allowance = Allowance::new(2);
        let mut take = |seconds| allowance.take(allowance.begun + Duration::from_millis(seconds));
        assert_eq!([0, 500, 999].map(&mut take), [true, true, false]);
        // A slow request of the second before takes from the new one.
        assert_eq!([1000, 900, 1001].map(&mut take), [true, true, false]);
        assert_eq!([60_000, 60_000, 60_000].map(take), [true, true, false]);
    }
}
