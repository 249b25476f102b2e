//! Answers kept for retries: a client whose answer was lost sends the same token again and gets the
//! same answer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Identity of a request, chosen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

/// Time within which a retry finds its answer.
pub(crate) const KEPT_SECONDS: u64 = 600;
/// Memory of kept answers; the oldest go first.
const MAX_BYTES: usize = 64 << 20;
const OVERHEAD_BYTES: usize = 128;

/// Answer to a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Window's time of the first request.
    pub(crate) seconds: u64,
    /// Ticket of its events; 0 for those that a log had. Not part of the log.
    pub(crate) ticket: u64,
    /// Digest of the request: a token belongs to one request.
    pub(crate) request: [u8; 16],
    /// Outcome per event.
    pub(crate) counts: Arc<[u16]>,
}

/// Answers of the last ten minutes.
#[derive(Default)]
pub(crate) struct Answers {
    by_token: HashMap<Token, Answer>,
    /// Insertion order. A token that was removed and inserted again is here twice.
    order: VecDeque<(u64, Token)>,
    bytes: usize,
}

impl Answers {
    pub(crate) fn get(&self, token: &Token, seconds: u64) -> Option<&Answer> {
        let answer = self.by_token.get(token)?;
        (answer.seconds + KEPT_SECONDS > seconds).then_some(answer)
    }

    pub(crate) fn insert(&mut self, token: Token, answer: Answer) {
        while let Some((at, oldest)) = self.order.front().copied() {
            let is_expired = at + KEPT_SECONDS <= answer.seconds;
            if !is_expired && self.bytes <= MAX_BYTES {
                break;
            }
            self.order.pop_front();
            if self.by_token.get(&oldest).is_some_and(|held| held.seconds == at) {
                self.remove(&oldest);
            }
        }
        self.bytes += size_of_answer(&answer);
        self.order.push_back((answer.seconds, token));
        if let Some(replaced) = self.by_token.insert(token, answer) {
            self.bytes -= size_of_answer(&replaced);
        }
    }

    pub(crate) fn remove(&mut self, token: &Token) {
        if let Some(removed) = self.by_token.remove(token) {
            self.bytes -= size_of_answer(&removed);
        }
    }

    /// Answers that a retry may still ask for and whose tickets are written, oldest first.
    pub(crate) fn kept(
        &self,
        seconds: u64,
        written: u64,
    ) -> impl Iterator<Item = (&Token, &Answer)> {
        self.order.iter().filter_map(move |(at, token)| {
            let answer = self.get(token, seconds)?;
            (answer.seconds == *at && answer.ticket <= written).then_some((token, answer))
        })
    }
}

fn size_of_answer(answer: &Answer) -> usize {
    OVERHEAD_BYTES + 2 * answer.counts.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(seconds: u64, counts: usize) -> Answer {
        Answer { seconds, ticket: 0, request: [0; 16], counts: vec![1; counts].into() }
    }

    #[test]
    fn answers_are_kept_for_ten_minutes() {
        let mut answers = Answers::default();
        answers.insert(Token([1; 16]), answer(1000, 1));
        assert!(answers.get(&Token([1; 16]), 1599).is_some());
        assert!(answers.get(&Token([1; 16]), 1600).is_none());
        answers.insert(Token([2; 16]), answer(1600, 1));
        assert_eq!(answers.by_token.len(), 1);
    }

    #[test]
    fn memory_of_answers_is_bounded() {
        let mut answers = Answers::default();
        for n in 0..10_000_u32 {
            let mut token = [0; 16];
            token[..4].copy_from_slice(&n.to_le_bytes());
            answers.insert(Token(token), answer(1000, 10_000));
        }
        assert!(answers.bytes <= MAX_BYTES + 2 * 10_000 + OVERHEAD_BYTES);
        assert_eq!(answers.bytes, answers.by_token.len() * (OVERHEAD_BYTES + 20_000));
    }
}
