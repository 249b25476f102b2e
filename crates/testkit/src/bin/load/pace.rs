//! Open-loop load: requests at fixed rates, independent of the responses. Latency is measured from
//! the time a request was due, which avoids coordinated omission. The loop busy-polls one core.

use std::collections::VecDeque;
use std::io::Write as _;
use std::iter::{Cycle, Peekable};
use std::net::SocketAddr;
use std::path::Path;
use std::slice;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::connection::{Connections, read_records};
use crate::latency::{QUANTILES, quantile, within};

/// Part of a run with a constant rate, in requests per second.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    rate: u32,
    seconds: usize,
}

impl std::str::FromStr for Phase {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let phase = text.split_once(':').and_then(|(rate, seconds)| {
            Some(Self {
                rate: rate.parse().ok()?,
                seconds: seconds.parse().ok()?,
            })
        });
        phase
            .filter(|phase| phase.rate > 0 && phase.seconds > 0)
            .ok_or("expected RATE:SECONDS, both above 0")
    }
}

/// Results of the requests due in one second or phase, with latencies in microseconds.
#[derive(Debug, Default, Clone)]
struct Stats {
    due: u64,
    ok: Vec<u32>,
    /// Answered with 503.
    shed: Vec<u32>,
    /// Other statuses, and broken connections.
    failed: u64,
    /// Dropped because no connection was idle in time.
    unsent: u64,
}

impl Stats {
    fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.ok.extend(&other.ok);
        self.shed.extend(&other.shed);
        self.failed += other.failed;
        self.unsent += other.unsent;
    }

    /// Report line: `name`, then pairs of a metric and its value.
    fn line(&mut self, name: &str, in_time: Duration) -> String {
        self.ok.sort_unstable();
        self.shed.sort_unstable();
        let Self {
            due,
            ok,
            shed,
            failed,
            unsent,
        } = self;
        let mut line = format!(
            "{name} due {due} ok {} in_time {} shed {} failed {failed} unsent {unsent}",
            ok.len(),
            within(ok, in_time),
            shed.len(),
        );
        for (name, share) in QUANTILES {
            line += &format!(
                " {name} {} shed_{name} {}",
                quantile(ok, share),
                quantile(shed, share)
            );
        }
        line
    }
}

/// Due time of a request, and the second whose statistics it belongs to.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    second: usize,
}

/// Time limit for the last responses, from the end of the schedule.
const MAX_DRAIN: Duration = Duration::from_secs(30);

/// Sends the requests of a file in order, repeatedly. Drops a request if no connection becomes idle
/// within `max_wait`. Prints a line per second, then a line per phase.
pub fn run(
    address: SocketAddr,
    requests_file: &Path,
    connections: usize,
    in_time: Duration,
    max_wait: Duration,
    phases: &[Phase],
) -> Outcome {
    let requests = read_records(requests_file)?;
    if requests.is_empty() {
        return Err(format!("{}: no requests", requests_file.display()).into());
    }
    let mut run = Run::start(Connections::open(address, connections)?, &requests, phases);
    while run.is_unfinished() {
        let now = Instant::now();
        run.check_deadline(now)?;
        run.queue_due(now);
        run.send_queued(now, max_wait);
        run.receive()?;
    }
    print(run.seconds, phases, in_time)
}

/// State of a run.
struct Run<'a> {
    connections: Connections<Due>,
    requests: Cycle<slice::Iter<'a, Vec<u8>>>,
    schedule: Peekable<Box<dyn Iterator<Item = Due>>>,
    /// Requests that are due but not sent yet.
    queue: VecDeque<Due>,
    seconds: Vec<Stats>,
    deadline: Instant,
}

impl<'a> Run<'a> {
    fn start(connections: Connections<Due>, requests: &'a [Vec<u8>], phases: &[Phase]) -> Self {
        let rates: Vec<u32> = phases
            .iter()
            .flat_map(|phase| std::iter::repeat_n(phase.rate, phase.seconds))
            .collect();
        let start_time = Instant::now();
        Self {
            connections,
            requests: requests.iter().cycle(),
            queue: VecDeque::new(),
            seconds: vec![Stats::default(); rates.len()],
            deadline: start_time + Duration::from_secs(rates.len() as u64) + MAX_DRAIN,
            schedule: schedule(rates, start_time).peekable(),
        }
    }

    fn is_unfinished(&mut self) -> bool {
        self.schedule.peek().is_some() || !self.queue.is_empty() || self.connections.in_flight() > 0
    }

    fn check_deadline(&self, now: Instant) -> Outcome {
        match now > self.deadline {
            true => Err(format!(
                "{} requests unanswered {MAX_DRAIN:?} after the end of the schedule",
                self.connections.in_flight()
            )
            .into()),
            false => Ok(()),
        }
    }

    fn queue_due(&mut self, now: Instant) {
        while let Some(due) = self.schedule.next_if(|due| due.at <= now) {
            self.seconds[due.second].due += 1;
            self.queue.push_back(due);
        }
    }

    fn send_queued(&mut self, now: Instant, max_wait: Duration) {
        while let Some(due) = self.queue.front().copied() {
            if now.saturating_duration_since(due.at) > max_wait {
                self.seconds[due.second].unsent += 1;
            } else if self.connections.has_idle() {
                let request = self.requests.next().expect("`requests` is not empty");
                self.connections.send(due, request);
            } else {
                return;
            }
            self.queue.pop_front();
        }
    }

    fn receive(&mut self) -> std::io::Result<()> {
        let Self {
            connections,
            seconds,
            ..
        } = self;
        connections.receive(Duration::ZERO, |due, received| {
            let stats = &mut seconds[due.second];
            let latency = due.at.elapsed().as_micros() as u32;
            match received {
                Ok((200, _)) => stats.ok.push(latency),
                Ok((503, _)) => stats.shed.push(latency),
                _ => stats.failed += 1,
            }
            true
        })
    }
}

/// Due times of all requests, evenly spaced within each second.
fn schedule(rates: Vec<u32>, start_time: Instant) -> Box<dyn Iterator<Item = Due>> {
    Box::new(
        rates
            .into_iter()
            .enumerate()
            .flat_map(move |(second, rate)| {
                let start = start_time + Duration::from_secs(second as u64);
                let gap = Duration::from_secs(1) / rate;
                (0..rate).map(move |number| Due {
                    at: start + gap * number,
                    second,
                })
            }),
    )
}

fn print(mut seconds: Vec<Stats>, phases: &[Phase], in_time: Duration) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    for (second, stats) in seconds.iter_mut().enumerate() {
        writeln!(
            stdout,
            "{}",
            stats.line(&format!("second {second}"), in_time)
        )?;
    }
    let mut rest = seconds.as_slice();
    for (number, phase) in phases.iter().enumerate() {
        let (phase_seconds, later) = rest.split_at(phase.seconds);
        let mut sum = Stats::default();
        phase_seconds.iter().for_each(|second| sum.add(second));
        writeln!(stdout, "{}", sum.line(&format!("phase {number}"), in_time))?;
        rest = later;
    }
    Ok(())
}
