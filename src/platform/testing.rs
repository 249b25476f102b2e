//! Requests and scripted decisions for tests of adapters.

use bytes::Bytes;
use http::HeaderMap;

use super::adapter::{Adapter, Admission, Request, RequestHead, Verdict, Verdicts};
use super::read::{Failure, Id, Read, ReadError, Value};
use crate::strategy::{BidValue, ChosenValue, Decision, Reason, ValueKey};

/// Text of the data that an adapter read.
#[derive(Debug, Default)]
pub struct Script {
    /// Decisions, by index of the strategy.
    pub decisions: Vec<Decision>,
    /// `path field value` of each id.
    pub ids: Vec<String>,
    pub doubtful: Vec<String>,
    pub notes: Vec<String>,
    /// `path: reason` of each skipped id.
    pub skipped: Vec<String>,
    /// Indexes of the deciding strategies, in order.
    pub asked: Vec<usize>,
}

pub const BID: Decision = Decision::bid(Reason::NotMember);
pub const NO_BID: Decision = Decision::no_bid(Reason::Member);
pub const BID_UNAVAILABLE: Decision = Decision::bid(Reason::Unavailable);
pub const NO_BID_UNAVAILABLE: Decision = Decision::no_bid(Reason::Unavailable);

/// A bid with the value at an index.
pub fn bid_with(index: u8) -> Decision {
    Decision {
        value: ChosenValue {
            index: Some(index),
            is_fallback: false,
        },
        ..BID
    }
}

/// A value of these numbers.
pub fn value(numbers: &[(ValueKey, f64)]) -> BidValue {
    let with = |value: BidValue, (key, number): &(ValueKey, f64)| value.with(*key, Some(*number));
    numbers.iter().fold(BidValue::default(), with)
}

/// These decisions as verdicts about a request.
pub fn verdicts(read: &Read<'_>, decisions: &[Decision]) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for strategy in read.strategies() {
        if verdicts
            .iter()
            .all(|verdict: &Verdict| verdict.strategy != strategy)
        {
            verdicts.push(Verdict {
                strategy,
                decision: decisions[strategy],
                changes_in: None,
                tag: None,
            });
        }
    }
    verdicts
}

/// The answer to an unreadable request.
pub fn fallback(adapter: &dyn Adapter, decisions: &[Decision]) -> Bytes {
    let mut read = Read::default();
    read.give_up(adapter.strategies());
    adapter.write(&read, &verdicts(&read, decisions))
}

/// The answer to an admitted request without headers.
pub fn reply(adapter: &dyn Adapter, body: Bytes, script: &mut Script) -> Result<Bytes, Failure> {
    let headers = HeaderMap::new();
    let head = RequestHead {
        headers: &headers,
        query: None,
    };
    let request = Request {
        admission: Admission::ByHeaders,
        head,
        body: &body,
    };
    let mut read = Read {
        body: Some(&body),
        ..Read::default()
    };
    let result = adapter.read(&request, &mut read);
    script.answer(adapter, &read, result)
}

fn text(id: &Id<'_>) -> String {
    format!("{} {} {}", id.path, id.field.as_str(), id.value)
}

impl Script {
    pub fn deciding(decisions: &[Decision]) -> Self {
        Self {
            decisions: decisions.to_vec(),
            ..Self::default()
        }
    }

    /// The answer to a request that was read.
    pub fn answer(
        &mut self,
        adapter: &dyn Adapter,
        read: &Read<'_>,
        result: Result<(), ReadError>,
    ) -> Result<Bytes, Failure> {
        if let Err(error) = result {
            self.notes.push(format!("unreadable: {error}"));
            return Err(error.failure());
        }
        let (doubtful, ids) = read.ids.iter().partition::<Vec<_>, _>(|id| id.is_doubtful);
        self.ids = ids.into_iter().map(text).collect();
        self.doubtful = doubtful.into_iter().map(text).collect();
        if !matches!(read.request_id, Value::Absent) {
            self.notes.push(format!("request_id: {}", read.request_id));
        }
        self.notes.extend(
            read.notes
                .iter()
                .map(|one| format!("{}: {}", one.name, one.value)),
        );
        self.notes.extend(
            read.observed
                .iter()
                .map(|one| format!("observed: {}", one.as_str())),
        );
        if !read.asked.is_all() {
            self.notes
                .extend(read.asked.iter().map(|one| format!("strategy: {}", one.id)));
        }
        self.skipped = read.skipped.iter().map(ToString::to_string).collect();
        let verdicts = verdicts(read, &self.decisions);
        self.asked = verdicts.iter().map(|verdict| verdict.strategy).collect();
        Ok(adapter.write(read, &verdicts))
    }
}
