//! Asks at a fixed rate, whatever the answers do: an open loop. A latency counts from the moment when its request was due, so that a
//! server which keeps the asker waiting does not look the better for it. Spins on the core that it is given.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{CreateFlags, create, wait};

use crate::Outcome;
use crate::connection::{Connection, read};

/// So many requests a second for so long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phase {
    rate: u32,
    seconds: usize,
}

impl std::str::FromStr for Phase {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let phase = text.split_once(':').and_then(|(rate, seconds)| {
            Some(Self { rate: rate.parse().ok()?, seconds: seconds.parse().ok()? })
        });
        phase
            .filter(|phase| phase.rate > 0 && phase.seconds > 0)
            .ok_or("expected RATE:SECONDS, both above 0")
    }
}

/// What came of the requests that were due in one second, or in one phase. Latencies are in microseconds.
#[derive(Debug, Default, Clone)]
struct Tally {
    due: u64,
    ok: Vec<u32>,
    /// Answered with 503.
    shed: Vec<u32>,
    /// Other statuses, and connections that broke.
    failed: u64,
    /// Given up, as no connection was free in time.
    unsent: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.ok.extend(&other.ok);
        self.shed.extend(&other.shed);
        self.failed += other.failed;
        self.unsent += other.unsent;
    }

    /// One line: its name, then names and figures.
    fn line(&mut self, name: &str, in_time: Duration) -> String {
        self.ok.sort_unstable();
        self.shed.sort_unstable();
        let in_time =
            self.ok.partition_point(|latency| u128::from(*latency) <= in_time.as_micros());
        let at = |sorted: &[u32], share: f64| {
            let place = (sorted.len() as f64 * share) as usize;
            sorted.get(place).or(sorted.last()).copied().unwrap_or(0)
        };
        let Self { due, ok, shed, failed, unsent } = self;
        let (answered, refused) = (ok.len(), shed.len());
        let mut line = format!(
            "{name} due {due} ok {answered} in_time {in_time} shed {refused} failed {failed} unsent {unsent}"
        );
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            line += &format!(" {name} {} shed_{name} {}", at(ok, share), at(shed, share));
        }
        line
    }
}

/// So long after the last request was due all must be answered.
const STUCK: Duration = Duration::from_secs(30);

/// Asks what the file says, in its order and over again; prints a line for each second, then one for each phase. A request that has found
/// no free connection for longer than `patience` is given up.
pub(crate) fn ask(
    address: SocketAddr,
    requests: &Path,
    connections: usize,
    in_time: Duration,
    patience: Duration,
    phases: &[Phase],
) -> Outcome {
    let requests = read(requests)?;
    let epoll = create(CreateFlags::CLOEXEC)?;
    let mut open = Vec::with_capacity(connections);
    // When the request that each carries was due, and in which second.
    let mut carries: Vec<Option<(Instant, usize)>> = vec![None; connections];
    for place in 0..connections {
        open.push(Connection::open(address, &epoll, place)?);
    }
    // The one that has been idle for longest goes first, so that all take part.
    let mut idle: VecDeque<usize> = (0..connections).collect();
    let rates: Vec<u32> =
        phases.iter().flat_map(|phase| std::iter::repeat_n(phase.rate, phase.seconds)).collect();
    let mut seconds = vec![Tally::default(); rates.len()];
    let mut schedule = rates.iter().enumerate().flat_map(|(second, rate)| {
        let gap = Duration::from_secs(1) / *rate;
        (0..*rate).map(move |one| (Duration::from_secs(second as u64) + gap * one, second))
    });
    let mut asked = requests.iter().cycle();
    let (mut next, mut due, mut under_way) = (schedule.next(), VecDeque::new(), 0_u64);
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 64 << 10];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let begun = Instant::now();
    let end = begun + Duration::from_secs(rates.len() as u64) + STUCK;
    while next.is_some() || !due.is_empty() || under_way > 0 {
        let now = Instant::now();
        if now > end {
            return Err(format!("{under_way} requests are not answered").into());
        }
        while let Some((offset, second)) = next
            && begun + offset <= now
        {
            seconds[second].due += 1;
            due.push_back((begun + offset, second));
            next = schedule.next();
        }
        while let Some((at, second)) = due.front().copied() {
            if now.saturating_duration_since(at) > patience {
                seconds[second].unsent += 1;
            } else {
                let Some(place) = idle.pop_front() else { break };
                carries[place] = Some((at, second));
                under_way += 1;
                let request = asked.next().ok_or("the file has no requests")?;
                // A connection that has broken is seen when it is read.
                let _ = open[place].send(request);
            }
            due.pop_front();
        }
        events.clear();
        wait(&epoll, spare_capacity(&mut events), Some(&at_once))?;
        for event in &events {
            let place = event.data.u64() as usize;
            let connection = &mut open[place];
            let received =
                connection.receive(&mut buffer).map(|answer| answer.map(|(status, _)| status));
            if matches!(received, Ok(None)) {
                continue;
            }
            if let Some((at, second)) = carries[place].take() {
                under_way -= 1;
                let latency = at.elapsed().as_micros() as u32;
                match received {
                    Ok(Some(200)) => seconds[second].ok.push(latency),
                    Ok(Some(503)) => seconds[second].shed.push(latency),
                    _ => seconds[second].failed += 1,
                }
                idle.push_back(place);
            }
            if received.is_err() {
                *connection = Connection::open(address, &epoll, place)?;
            }
        }
    }
    let mut stdout = std::io::stdout().lock();
    for (second, tally) in seconds.iter_mut().enumerate() {
        writeln!(stdout, "{}", tally.line(&format!("second {second}"), in_time))?;
    }
    let mut rest = seconds.as_slice();
    for (number, phase) in phases.iter().enumerate() {
        let (of_phase, after) = rest.split_at(phase.seconds);
        let mut sum = Tally::default();
        of_phase.iter().for_each(|second| sum.add(second));
        writeln!(stdout, "{}", sum.line(&format!("phase {number}"), in_time))?;
        rest = after;
    }
    Ok(())
}
