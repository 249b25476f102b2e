//! A client: sends a request until it is answered, each attempt to one machine.

use std::time::Duration;

use super::machine::{Answer, AnswerSlot};
use super::model::{Ownership, Request};
use crate::random::Random;

/// An attempt that is under way.
pub struct Attempt {
    pub slot: AnswerSlot,
    /// The process that it was sent to.
    pub to: Ownership,
    /// The client waits no longer.
    pub until: Duration,
}

/// A request that is not answered.
pub struct Sending {
    pub request: Request,
    /// With it, the request is repeated until it is answered.
    pub request_key: Option<[u8; 16]>,
    pub attempt: Option<Attempt>,
    /// Whether an attempt may have been counted.
    pub is_unknown: bool,
}

pub struct Client {
    number: u64,
    random: Random,
    /// Requests so far.
    sent: u64,
    pub current: Option<Sending>,
    /// When it sends again.
    pub next_at: Duration,
    /// The machine that it asks.
    pub machine: usize,
}

impl Client {
    pub fn new(number: u64, random: Random) -> Self {
        Self {
            number,
            random,
            sent: 0,
            current: None,
            next_at: Duration::ZERO,
            machine: 0,
        }
    }

    pub fn is_sending(&self) -> bool {
        self.current.is_some()
    }

    /// The request to send now, if there is one.
    pub fn next_to_send(
        &mut self,
        keys: u64,
        sends_new: bool,
        now: Duration,
    ) -> Option<&mut Sending> {
        if self.next_at > now {
            return None;
        }
        if self.current.is_none() && sends_new {
            self.current = Some(self.next_request(keys, now));
        }
        self.current
            .as_mut()
            .filter(|sending| sending.attempt.is_none())
    }

    fn next_request(&mut self, keys: u64, now: Duration) -> Sending {
        self.sent += 1;
        let number = (self.number << 32) + self.sent;
        let mut events = Vec::new();
        for _ in 0..self.random.between(1, 5) {
            let key = self.random.below(keys);
            if !events.contains(&key) {
                events.push(key);
            }
        }
        let has_key = !self.random.is_one_of(4);
        Sending {
            request: Request {
                number,
                keys: events,
                first_sent: now,
            },
            request_key: has_key.then(|| u128::from(number).to_le_bytes()),
            attempt: None,
            is_unknown: false,
        }
    }

    /// The answer to the attempt that is under way; unknown if the client waits no longer.
    pub fn take_answer(&mut self, now: Duration) -> Option<(Answer, Attempt)> {
        let sending = self.current.as_mut()?;
        let attempt = sending.attempt.take()?;
        let answer = attempt.slot.lock().expect("no panic").take();
        if answer.is_none() && now < attempt.until {
            sending.attempt = Some(attempt);
            return None;
        }
        Some((answer.unwrap_or(Answer::Unknown), attempt))
    }
}
