//! Open-loop load with verified answers, until the end of standard input: the traffic of
//! `tests/suites/fleet`. Sleeps between requests, as the fleet runs on the same cores.
//!
//! Publishing changes answers, so each request has two, before and after. Lines on standard input
//! select the correct ones. Each is acknowledged by a line on standard output:
//!
//! | line | answer |
//! |---|---|
//! | `before`, `either`, `after` | `expected` |
//! | `report` | results since the last report, in JSON |
//! | end of input | no more requests; once all are answered, a last report |

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Outcome;
use crate::connection::{Connections, read_records};

/// The reported quantiles and their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];
const BEFORE: u8 = 1;
const AFTER: u8 = 2;
/// Time after the end of the input within which all requests must be answered.
const MAX_DRAIN: Duration = Duration::from_secs(30);
/// Longest delay of reading a line of the input.
const INPUT_POLL: Duration = Duration::from_millis(10);
/// Limit of wrong answers and failures listed in a report.
const MAX_LISTED: usize = 1000;

/// A request, its answer before a change, and its answer after it.
type Record = [Vec<u8>; 3];

/// A request in flight.
#[derive(Clone, Copy)]
struct Sent {
    due: Instant,
    at: Instant,
    /// Index of its record.
    record: usize,
    /// Correct answers when it was sent.
    expected: u8,
}

/// A request without an answer, or with a status other than 200.
struct Failure {
    reason: String,
    sent_unix: f64,
}

/// Results since the last report.
#[derive(Default)]
struct Stats {
    due: u64,
    /// Of correct answers, in microseconds since they were due.
    latencies: Vec<u32>,
    /// Indexes of the records with wrong answers.
    wrong: Vec<usize>,
    failures: Vec<Failure>,
}

impl Stats {
    fn fail(&mut self, reason: String, request: Sent) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let sent_unix = now.saturating_sub(request.at.elapsed()).as_secs_f64();
        self.failures.push(Failure { reason, sent_unix });
    }

    fn json(&mut self, in_time: Duration) -> String {
        self.latencies.sort_unstable();
        let Self {
            due,
            latencies,
            wrong,
            failures,
        } = self;
        let (ok, failed) = (latencies.len(), failures.len());
        let in_time = in_time.as_micros();
        let late = ok - latencies.partition_point(|latency| u128::from(*latency) <= in_time);
        let mut line = format!(
            r#"{{"due":{due},"ok":{ok},"late":{late},"failed":{failed},"wrong":{}"#,
            wrong.len()
        );
        for (name, share) in QUANTILES {
            let _ = write!(line, r#","{name}_us":{}"#, quantile(latencies, share));
        }
        let wrong = &wrong[..wrong.len().min(MAX_LISTED)];
        let listed = failures
            .iter()
            .take(MAX_LISTED)
            .map(|Failure { reason, sent_unix }| {
                format!(r#"{{"reason":"{reason}","sent_unix":{sent_unix}}}"#)
            });
        let failures = listed.collect::<Vec<_>>().join(",");
        let _ = write!(
            line,
            r#","wrong_requests":{wrong:?},"failures":[{failures}]}}"#
        );
        line
    }
}

/// The latency at this share of all; 0 if there is none.
fn quantile(sorted: &[u32], share: f64) -> u32 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index).or(sorted.last()).copied().unwrap_or(0)
}

/// The lines of standard input.
fn lines() -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn print_line(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Sends the requests of a file in order, repeatedly: its records are a request and its two
/// answers, and so on. Expects the answers of before at first.
pub fn run(
    address: SocketAddr,
    requests: &Path,
    connections: usize,
    in_time: Duration,
    rate: u32,
) -> Outcome {
    let records = read_records(requests)?;
    let (records, rest) = records.as_chunks();
    if records.is_empty() || !rest.is_empty() {
        return Err("the file has no requests, or not two answers for each".into());
    }
    let mut run = Run {
        connections: Connections::open(address, connections)?,
        records,
        in_time,
        rate,
        lines: lines(),
        begun: Instant::now(),
        ended: None,
        scheduled: 0,
        sent: 0,
        queue: VecDeque::new(),
        expected: BEFORE,
        stats: Stats::default(),
    };
    while run.is_unfinished() {
        run.read_command()?;
        let now = Instant::now();
        if run.is_overdue(now) {
            break;
        }
        run.queue_due(now);
        run.send_queued();
        run.receive(now)?;
    }
    run.finish()
}

/// Open-loop run in progress.
struct Run<'a> {
    connections: Connections<Sent>,
    records: &'a [Record],
    in_time: Duration,
    rate: u32,
    lines: Receiver<String>,
    begun: Instant,
    /// When the input ended.
    ended: Option<Instant>,
    scheduled: u64,
    sent: usize,
    /// Due times of requests not sent yet.
    queue: VecDeque<Instant>,
    /// Correct answers at present.
    expected: u8,
    stats: Stats,
}

impl Run<'_> {
    fn is_unfinished(&self) -> bool {
        self.ended.is_none() || !self.queue.is_empty() || self.connections.in_flight() > 0
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.ended.is_some_and(|ended| now > ended + MAX_DRAIN)
    }

    fn read_command(&mut self) -> Outcome {
        let line = match self.lines.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => return Ok(()),
            Err(TryRecvError::Disconnected) => {
                self.ended.get_or_insert_with(Instant::now);
                return Ok(());
            }
        };
        self.expected = match line.as_str() {
            "report" => return self.report(),
            "before" => BEFORE,
            "after" => AFTER,
            "either" => BEFORE | AFTER,
            other => {
                let error = format!("expected before, either, after or report, found {other:?}");
                return Err(error.into());
            }
        };
        Ok(print_line("expected")?)
    }

    fn report(&mut self) -> Outcome {
        Ok(print_line(
            &std::mem::take(&mut self.stats).json(self.in_time),
        )?)
    }

    /// When the next request is due.
    fn next_due(&self) -> Instant {
        self.begun + Duration::from_nanos(self.scheduled * 1_000_000_000 / u64::from(self.rate))
    }

    fn queue_due(&mut self, now: Instant) {
        while self.ended.is_none() && self.next_due() <= now {
            self.queue.push_back(self.next_due());
            self.stats.due += 1;
            self.scheduled += 1;
        }
    }

    fn send_queued(&mut self) {
        while self.connections.has_idle()
            && let Some(due) = self.queue.pop_front()
        {
            let record = self.sent % self.records.len();
            let sent = Sent {
                due,
                at: Instant::now(),
                record,
                expected: self.expected,
            };
            self.connections.send(sent, &self.records[record][0]);
            self.sent += 1;
        }
    }

    /// Receives answers until the next request is due, or [`INPUT_POLL`] has passed.
    fn receive(&mut self, now: Instant) -> std::io::Result<()> {
        let is_idle = self.ended.is_none() && self.queue.is_empty();
        let next = if is_idle {
            self.next_due().saturating_duration_since(now)
        } else {
            INPUT_POLL
        };
        let Self {
            connections,
            records,
            expected,
            stats,
            ..
        } = self;
        connections.receive(next.min(INPUT_POLL), |request, received| {
            let [_, before, after] = &records[request.record];
            // A request sent before a change may be answered after it.
            let expected = *expected | request.expected;
            match received {
                Ok((200, body))
                    if expected & BEFORE != 0 && body == before
                        || expected & AFTER != 0 && body == after =>
                {
                    stats
                        .latencies
                        .push(request.due.elapsed().as_micros() as u32);
                }
                Ok((200, _)) => stats.wrong.push(request.record),
                Ok((status, _)) => {
                    stats.fail(format!("status {status}"), request);
                    // The server may close the connection after it.
                    return false;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    stats.fail("closed".into(), request);
                }
                Err(error) => stats.fail(error.kind().to_string(), request),
            }
            true
        })
    }

    fn finish(mut self) -> Outcome {
        for request in self.connections.into_tags() {
            self.stats.fail("no answer".into(), request);
        }
        Ok(print_line(&self.stats.json(self.in_time))?)
    }
}
