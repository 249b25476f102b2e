//! The network between processes and buckets: how long requests take, and what is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::random::Random;
use crate::schedule::Schedule;
use crate::trace::Trace;

/// Answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The bucket's.
    True,
    /// None: the connection broke.
    Broken,
    /// The client sent a create twice, as its first answer was lost: the object exists.
    Refused,
}

/// Fate of a request: its effect and its answer.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// Time until it takes effect; `None` if it never arrives.
    pub arrives_after: Option<Duration>,
    /// Time of the answer, after the effect; of a broken connection, after the request.
    pub answered_after: Duration,
    pub answer: Answer,
}

/// A request that was sent.
pub struct Sent {
    pub fate: Fate,
    /// Name of its event.
    pub name: String,
}

/// Faults in a thousand requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// The request is lost.
    pub lost: u64,
    /// The answer is lost.
    pub unanswered: u64,
    /// The connection breaks, and the request arrives later.
    pub late: u64,
    /// The client's second attempt finds the effect of the first one.
    pub repeated: u64,
    /// The body of a read ends early.
    pub cut: u64,
    /// Seconds instead of milliseconds.
    pub slow: u64,
}

/// How far a process is from a bucket: the time of a message, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Distance {
    pub least: u64,
    pub most: u64,
}

impl Default for Distance {
    fn default() -> Self {
        Self { least: 1, most: 80 }
    }
}

/// Longest time after which a late delete arrives: the product waits for a quarter of a minute.
const LATEST_DELETE: u64 = 12_000;
/// Longest time after which another request arrives whose connection broke.
const LATEST: u64 = 20 * 60_000;

struct State {
    weather: Weather,
    /// Processes and buckets that cannot reach each other.
    parted: BTreeSet<(String, &'static str)>,
    /// Requests of a name so far.
    sent: BTreeMap<String, u64>,
}

/// The network of a world.
pub struct Network {
    seed: u64,
    pub schedule: Arc<Schedule>,
    pub trace: Arc<Trace>,
    state: Mutex<State>,
}

impl Network {
    pub fn new(seed: u64, schedule: &Arc<Schedule>, trace: &Arc<Trace>) -> Arc<Self> {
        let state = State {
            weather: Weather::default(),
            parted: BTreeSet::new(),
            sent: BTreeMap::new(),
        };
        Arc::new(Self {
            seed,
            schedule: Arc::clone(schedule),
            trace: Arc::clone(trace),
            state: Mutex::new(state),
        })
    }

    pub fn set_weather(&self, weather: Weather) {
        self.state.lock().weather = weather;
    }

    /// Parts a process from a bucket.
    pub fn part(&self, actor: &str, bucket: &'static str) {
        self.state.lock().parted.insert((actor.to_owned(), bucket));
    }

    /// Joins all that is parted.
    pub fn join_all(&self) {
        self.state.lock().parted.clear();
    }

    /// Decides the fate of a request. The choice depends on the seed, the request, and how often it
    /// was sent: not on what others do.
    pub fn send(
        &self,
        actor: &str,
        bucket: &'static str,
        method: &'static str,
        request: String,
        distance: Distance,
    ) -> Sent {
        let mut state = self.state.lock();
        let count = state.sent.entry(request.clone()).or_default();
        *count += 1;
        let name = format!("{request} #{count}");
        let mut random = Random::named(self.seed, &name);
        let is_parted = state.parted.contains(&(actor.to_owned(), bucket));
        let fate = fate(&mut random, state.weather, method, distance, is_parted);
        Sent { fate, name }
    }

    /// Whether the body of an answer ends early.
    pub fn cuts_body(&self, actor: &str, bucket: &'static str, path: &str) -> bool {
        let mut state = self.state.lock();
        let name = format!("{actor} body {bucket}/{path}");
        let count = state.sent.entry(name.clone()).or_default();
        *count += 1;
        let mut random = Random::named(self.seed, &format!("{name} #{count}"));
        random.below(1000) < state.weather.cut
    }
}

fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn fate(
    random: &mut Random,
    weather: Weather,
    method: &str,
    distance: Distance,
    is_parted: bool,
) -> Fate {
    let is_slow = random.below(1000) < weather.slow;
    let longest = if is_slow { 8_000 } else { distance.most };
    let arrives = random.between(distance.least, longest);
    let answered_after = milliseconds(random.between(distance.least - 1, longest - 1));
    let broken = |arrives_after| Fate {
        arrives_after,
        answered_after,
        answer: Answer::Broken,
    };
    if is_parted {
        return broken(None);
    }

    let mut left = random.below(1000);
    let mut falls_in = |share: u64| {
        let is_in = left < share;
        left = left.wrapping_sub(share);
        is_in
    };
    if falls_in(weather.lost) {
        return broken(None);
    }
    if falls_in(weather.unanswered) {
        return broken(Some(milliseconds(arrives)));
    }
    if falls_in(weather.late) {
        let latest = if method == "DELETE" {
            LATEST_DELETE
        } else {
            LATEST
        };
        let most = random.between(longest, latest);
        return broken(Some(milliseconds(random.between(longest, most))));
    }
    let is_repeated = falls_in(weather.repeated) && method == "CREATE";
    Fate {
        arrives_after: Some(milliseconds(arrives)),
        answered_after,
        answer: if is_repeated {
            Answer::Refused
        } else {
            Answer::True
        },
    }
}
