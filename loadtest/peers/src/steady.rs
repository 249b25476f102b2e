//! Asks at a fixed rate for as long as it is told to, and compares every answer with what it must be: the load under which `tests/suites/fleet`
//! does to a fleet what its operators do. An open loop as `pace` is, but it sleeps between requests: the fleet is on the same cores.
//!
//! What is published meanwhile changes answers, so each request has two, one of before and one of after. Lines on standard input say
//! which are right from now on, and each is answered by one on standard output:
//!
//! | line | answer |
//! |---|---|
//! | `before`, `either`, `after` | `expected` |
//! | `tally` | what came of the requests since the last one, in JSON |
//! | the end | no more are asked; once all are answered, a last tally |

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{CreateFlags, create, wait};

use crate::Outcome;
use crate::connection::{Connection, read};

const BEFORE: u8 = 1;
const AFTER: u8 = 2;
/// So long after the end of the input all must be answered.
const STUCK: Duration = Duration::from_secs(30);
/// A line of the input is heard so soon.
const HEARING: Duration = Duration::from_millis(10);
/// So many failures are told one by one.
const TOLD: usize = 1000;

/// A request that waits for its answer.
#[derive(Clone, Copy)]
struct Waiting {
    due: Instant,
    sent: Instant,
    /// Which of the file's.
    number: usize,
    /// The answers that were right when it was sent.
    right: u8,
}

/// A request that was not answered with 200, or not at all.
struct Failure {
    why: String,
    sent_unix: f64,
}

#[derive(Default)]
struct Tally {
    due: u64,
    /// Of the right answers, in microseconds since they were due.
    latencies: Vec<u32>,
    /// The requests' numbers.
    wrong: Vec<usize>,
    failures: Vec<Failure>,
}

impl Tally {
    fn fail(&mut self, why: String, request: Waiting) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sent_unix = now.saturating_sub(request.sent.elapsed()).as_secs_f64();
        self.failures.push(Failure { why, sent_unix });
    }

    fn json(&mut self, in_time: Duration) -> String {
        self.latencies.sort_unstable();
        let latencies = &self.latencies;
        let at = |share: f64| {
            let place = (latencies.len() as f64 * share) as usize;
            latencies.get(place).or(latencies.last()).copied().unwrap_or(0)
        };
        let late = latencies.len()
            - latencies.partition_point(|one| u128::from(*one) <= in_time.as_micros());
        let (due, ok, failed, wrong) =
            (self.due, latencies.len(), self.failures.len(), &self.wrong);
        let mut line = format!(
            r#"{{"due":{due},"ok":{ok},"late":{late},"failed":{failed},"wrong":{}"#,
            wrong.len()
        );
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            let _ = write!(line, r#","{name}_us":{}"#, at(share));
        }
        let wrong = &wrong[..wrong.len().min(TOLD)];
        let told = self.failures.iter().take(TOLD);
        let told = told.map(|Failure { why, sent_unix }| {
            format!(r#"{{"why":"{why}","sent_unix":{sent_unix}}}"#)
        });
        let failures = told.collect::<Vec<_>>().join(",");
        let _ = write!(line, r#","wrong_requests":{wrong:?},"failures":[{failures}]}}"#);
        line
    }
}

/// The lines of standard input.
fn lines() -> Receiver<String> {
    let (heard, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if heard.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn say(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Asks what the file says, in its order and over again: its records are a request and its two answers, and so on. Begins with the answers
/// of before.
pub(crate) fn ask(
    address: SocketAddr,
    requests: &Path,
    connections: usize,
    in_time: Duration,
    rate: u32,
) -> Outcome {
    let records = read(requests)?;
    let (records, rest) = records.as_chunks::<3>();
    if records.is_empty() || !rest.is_empty() {
        return Err("the file has no requests, or not two answers for each".into());
    }
    let epoll = create(CreateFlags::CLOEXEC)?;
    let mut open = Vec::with_capacity(connections);
    for place in 0..connections {
        open.push(Connection::open(address, &epoll, place)?);
    }
    let mut carries: Vec<Option<Waiting>> = vec![None; connections];
    // The one that has been idle for longest goes first, so that all take part.
    let mut idle: VecDeque<usize> = (0..connections).collect();
    let (mut due, mut under_way) = (VecDeque::new(), 0_u64);
    let (mut tally, mut right, mut asked) = (Tally::default(), BEFORE, 0_usize);
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 64 << 10];
    let lines = lines();
    let begun = Instant::now();
    let (mut ordered, mut ended) = (0_u64, None);
    let due_at =
        |number: u64| begun + Duration::from_nanos(number * 1_000_000_000 / u64::from(rate));
    while ended.is_none() || !due.is_empty() || under_way > 0 {
        match lines.try_recv() {
            Ok(line) if line == "tally" => say(&std::mem::take(&mut tally).json(in_time))?,
            Ok(line) => {
                right = match line.as_str() {
                    "before" => BEFORE,
                    "after" => AFTER,
                    "either" => BEFORE | AFTER,
                    other => {
                        return Err(format!(
                            "expected before, either, after or tally, found {other:?}"
                        )
                        .into());
                    }
                };
                say("expected")?;
            }
            Err(TryRecvError::Disconnected) => ended = ended.or(Some(Instant::now())),
            Err(TryRecvError::Empty) => {}
        }
        let now = Instant::now();
        if ended.is_some_and(|ended| now > ended + STUCK) {
            break;
        }
        while ended.is_none() && due_at(ordered) <= now {
            tally.due += 1;
            due.push_back(due_at(ordered));
            ordered += 1;
        }
        while !due.is_empty()
            && let Some(place) = idle.pop_front()
        {
            let Some(due) = due.pop_front() else { break };
            let number = asked % records.len();
            carries[place] = Some(Waiting { due, sent: Instant::now(), number, right });
            (asked, under_way) = (asked + 1, under_way + 1);
            // A connection that has broken is seen when it is read.
            let _ = open[place].send(&records[number][0]);
        }
        let next =
            if ended.is_none() { due_at(ordered).saturating_duration_since(now) } else { HEARING };
        let sleep = if due.is_empty() { next.min(HEARING) } else { HEARING };
        events.clear();
        let sleep = Timespec { tv_sec: 0, tv_nsec: sleep.subsec_nanos().into() };
        match wait(&epoll, spare_capacity(&mut events), Some(&sleep)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let place = event.data.u64() as usize;
            let received = open[place].receive(&mut buffer);
            if matches!(received, Ok(None)) {
                continue;
            }
            let mut is_over = received.is_err();
            if let Some(request) = carries[place].take() {
                under_way -= 1;
                idle.push_back(place);
                let [_, before, after] = &records[request.number];
                // What was sent before a change may be answered after it.
                let right = right | request.right;
                match received {
                    Ok(Some((200, body)))
                        if right & BEFORE != 0 && body == before
                            || right & AFTER != 0 && body == after =>
                    {
                        tally.latencies.push(request.due.elapsed().as_micros() as u32);
                    }
                    Ok(Some((200, _))) => tally.wrong.push(request.number),
                    Ok(Some((status, _))) => {
                        tally.fail(format!("status {status}"), request);
                        // It may be the last of this connection.
                        is_over = true;
                    }
                    Ok(None) => {}
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        tally.fail("closed".into(), request)
                    }
                    Err(error) => tally.fail(error.kind().to_string(), request),
                }
            }
            if is_over {
                open[place] = Connection::open(address, &epoll, place)?;
            }
        }
    }
    for request in carries.into_iter().flatten() {
        tally.fail("no answer".into(), request);
    }
    say(&tally.json(in_time))?;
    Ok(())
}
