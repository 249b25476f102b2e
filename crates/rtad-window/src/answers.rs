//! Answers kept for retries: a client whose answer was lost sends the same request key again and
//! gets the same answer.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::window::Seen;

/// Identity of a request, chosen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestKey(pub [u8; 16]);

/// A request key, and the digest of its request: the key belongs to one request.
pub type Retry = (RequestKey, [u8; 16]);

/// Bounds of kept answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLimits {
    /// Memory; the oldest answers go first.
    pub memory_bytes: u64,
    /// Time within which a retry finds its answer.
    pub time: Duration,
}

/// Memory of an answer beside its outcomes.
const OVERHEAD_BYTES: u64 = 128;

/// Outcome per event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcomes {
    /// Whether each event was new: of a window without counts.
    News { events: u32, bits: Box<[u8]> },
    /// 0 for new, else the count.
    Counts(Box<[u16]>),
}

impl Outcomes {
    pub(crate) fn new(seen: &[Seen]) -> Self {
        if seen
            .iter()
            .any(|seen| !matches!(seen, Seen::New | Seen::Duplicate(1)))
        {
            let code = |seen: &Seen| match seen {
                Seen::New => 0,
                Seen::Duplicate(count) => *count,
            };
            return Self::Counts(seen.iter().map(code).collect());
        }
        let mut bits = vec![0; seen.len().div_ceil(8)];
        for (index, seen) in seen.iter().enumerate() {
            bits[index / 8] |= u8::from(*seen == Seen::New) << (index % 8);
        }
        Self::News {
            events: seen.len() as u32,
            bits: bits.into(),
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        match self {
            Self::News { events, bits } => {
                let is_new = |n: usize| bits[n / 8] >> (n % 8) & 1 == 1;
                let seen = |n| {
                    if is_new(n) {
                        Seen::New
                    } else {
                        Seen::Duplicate(1)
                    }
                };
                (0..*events as usize).map(seen).collect()
            }
            Self::Counts(counts) => {
                let seen = |count: &u16| match count {
                    0 => Seen::New,
                    count => Seen::Duplicate(*count),
                };
                counts.iter().map(seen).collect()
            }
        }
    }

    const fn events(&self) -> usize {
        match self {
            Self::News { events, .. } => *events as usize,
            Self::Counts(counts) => counts.len(),
        }
    }

    const fn bytes(&self) -> u64 {
        match self {
            Self::News { bits, .. } => bits.len() as u64,
            Self::Counts(counts) => 2 * counts.len() as u64,
        }
    }
}

/// Answer to a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Window's time of the first request.
    pub(crate) seconds: u64,
    /// Digest of the request.
    pub(crate) request: [u8; 16],
    pub(crate) outcomes: Outcomes,
}

impl Answer {
    /// Whether it is the answer to a request of this digest and number of events.
    pub(crate) fn is_of(&self, request: &[u8; 16], events: usize) -> bool {
        self.request == *request && self.outcomes.events() == events
    }

    const fn bytes(&self) -> u64 {
        OVERHEAD_BYTES + self.outcomes.bytes()
    }
}

/// The last answers.
pub(crate) struct Answers {
    limits: AnswerLimits,
    by_request_key: HashMap<RequestKey, Answer>,
    /// Insertion order. A request key that was inserted again is here twice.
    order: VecDeque<(u64, RequestKey)>,
    /// Number of the first of `order`, counted from the first ever.
    first: u64,
    pub(crate) bytes: u64,
    /// Time of the latest answer.
    pub(crate) seconds: u64,
    /// Answers that left before their time.
    pub(crate) evicted: u64,
}

impl Answers {
    pub(crate) fn new(limits: AnswerLimits) -> Self {
        let (by_request_key, order) = (HashMap::new(), VecDeque::new());
        Self {
            limits,
            by_request_key,
            order,
            first: 0,
            bytes: 0,
            seconds: 0,
            evicted: 0,
        }
    }

    /// Times of answers are whole seconds: an answer is kept for its time and less than two
    /// seconds more.
    fn is_expired(&self, at: u64, seconds: u64) -> bool {
        let time = self.limits.time;
        let whole = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        at + whole < seconds
    }

    pub(crate) fn get(&self, request_key: &RequestKey, seconds: u64) -> Option<&Answer> {
        self.by_request_key
            .get(request_key)
            .filter(|answer| !self.is_expired(answer.seconds, seconds))
    }

    pub(crate) fn insert(&mut self, request_key: RequestKey, answer: Answer) {
        let seconds = answer.seconds;
        self.seconds = self.seconds.max(seconds);
        self.bytes += answer.bytes();
        self.order.push_back((seconds, request_key));
        if let Some(replaced) = self.by_request_key.insert(request_key, answer) {
            self.bytes -= replaced.bytes();
        }
        self.shrink(seconds);
    }

    /// Removes expired answers, and the oldest beyond the memory.
    pub(crate) fn shrink(&mut self, seconds: u64) {
        while let Some((at, oldest)) = self.order.front().copied() {
            let is_expired = self.is_expired(at, seconds);
            if !is_expired && self.bytes <= self.limits.memory_bytes {
                break;
            }
            self.order.pop_front();
            self.first += 1;
            if self
                .by_request_key
                .get(&oldest)
                .is_some_and(|held| held.seconds == at)
                && let Some(removed) = self.by_request_key.remove(&oldest)
            {
                self.bytes -= removed.bytes();
                self.evicted += u64::from(!is_expired);
            }
        }
    }

    /// Numbers of the answers.
    pub(crate) fn range(&self) -> Range<u64> {
        self.first..self.first + self.order.len() as u64
    }

    /// Answer of a number, unless it has left or was replaced.
    pub(crate) fn numbered(&self, number: u64) -> Option<(&RequestKey, &Answer)> {
        let (at, request_key) = self
            .order
            .get(usize::try_from(number.checked_sub(self.first)?).ok()?)?;
        let answer = self
            .by_request_key
            .get(request_key)
            .filter(|answer| answer.seconds == *at)?;
        Some((request_key, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AnswerLimits = AnswerLimits {
        memory_bytes: 1 << 20,
        time: Duration::from_secs(600),
    };

    fn answer(seconds: u64, events: usize) -> Answer {
        let outcomes = Outcomes::new(&vec![Seen::Duplicate(2); events]);
        Answer {
            seconds,
            request: [0; 16],
            outcomes,
        }
    }

    #[test]
    fn outcomes_of_each_kind_survive() {
        for seen in [
            vec![Seen::New, Seen::Duplicate(1), Seen::New],
            vec![Seen::New, Seen::Duplicate(3), Seen::Duplicate(1)],
            vec![Seen::New; 17],
            Vec::new(),
        ] {
            assert_eq!(Outcomes::new(&seen).seen(), seen);
        }
        assert_eq!(Outcomes::new(&[Seen::New; 10_000]).bytes(), 1250);
    }

    #[test]
    fn answers_are_kept_for_their_time() {
        let mut answers = Answers::new(LIMITS);
        answers.insert(RequestKey([1; 16]), answer(1000, 1));
        assert!(answers.get(&RequestKey([1; 16]), 1600).is_some());
        assert!(answers.get(&RequestKey([1; 16]), 1601).is_none());
        answers.insert(RequestKey([2; 16]), answer(1601, 1));
        assert_eq!((answers.by_request_key.len(), answers.evicted), (1, 0));
    }

    #[test]
    fn parts_of_a_second_shorten_no_time_of_answers() {
        let time = Duration::from_millis(1900);
        let mut answers = Answers::new(AnswerLimits { time, ..LIMITS });
        // Counted at 1000.9 s and repeated at 1002.8 s.
        answers.insert(RequestKey([1; 16]), answer(1000, 1));
        answers.shrink(1002);
        assert!(answers.get(&RequestKey([1; 16]), 1002).is_some());
        assert!(answers.get(&RequestKey([1; 16]), 1003).is_none());
    }

    #[test]
    fn memory_of_answers_is_bounded_and_evictions_are_counted() {
        let mut answers = Answers::new(LIMITS);
        let request_key = |n: u32| RequestKey(u128::from(n).to_le_bytes());
        for n in 0..1000 {
            answers.insert(request_key(n), answer(1000, 10_000));
        }
        assert!(answers.bytes <= LIMITS.memory_bytes);
        assert_eq!(
            answers.bytes,
            answers.by_request_key.len() as u64 * (OVERHEAD_BYTES + 20_000)
        );
        assert_eq!(answers.evicted, 1000 - answers.by_request_key.len() as u64);
        assert!(
            answers.get(&request_key(0), 1000).is_none()
                && answers.get(&request_key(999), 1000).is_some()
        );
        let numbers = answers.range();
        let request_keys: Vec<RequestKey> = numbers
            .filter_map(|n| Some(*answers.numbered(n)?.0))
            .collect();
        assert_eq!(
            (request_keys.len(), request_keys.last()),
            (answers.by_request_key.len(), Some(&request_key(999)))
        );
    }
}
