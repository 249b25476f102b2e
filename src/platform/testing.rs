//! A decider for tests of adapters: records its calls, and returns scripted decisions.

use bytes::Bytes;
use http::HeaderMap;

use super::adapter::{Adapter, Admission, Head};
use super::decider::{Decider, Failure, Id};
use crate::strategy::{Decision, Outcome, Reason};
use rtad_core::device::IdField;

/// Records its calls as text.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// Decisions, by index of the strategy.
    pub(super) decisions: Vec<Decision>,
    /// `path field value` of each id.
    pub(super) ids: Vec<String>,
    pub(super) doubtful: Vec<String>,
    pub(super) notes: Vec<String>,
    /// `path: reason` of each skipped id.
    pub(super) skipped: Vec<String>,
    /// Indexes of the deciding strategies, in order.
    pub(super) asked: Vec<usize>,
    pub(super) gave_up: bool,
}

pub(super) const BID: Decision = Decision { outcome: Outcome::Bid, reason: Reason::NotMember };
pub(super) const NO_BID: Decision = Decision { outcome: Outcome::NoBid, reason: Reason::Member };
pub(super) const BID_UNAVAILABLE: Decision =
    Decision { outcome: Outcome::Bid, reason: Reason::Unavailable };
pub(super) const NO_BID_UNAVAILABLE: Decision =
    Decision { outcome: Outcome::NoBid, reason: Reason::Unavailable };

impl Script {
    pub(super) fn deciding(decisions: &[Decision]) -> Self {
        Self { decisions: decisions.to_vec(), ..Self::default() }
    }
}

fn text(id: Id<'_>) -> String {
    let value = String::from_utf8_lossy(id.value);
    format!("{} {} {value}", id.path, IdField::ALL[id.field].as_str())
}

/// The answer to an admitted request without headers.
pub(super) fn reply(
    adapter: &dyn Adapter,
    body: Bytes,
    decider: &mut dyn Decider,
) -> Result<Bytes, Failure> {
    let head = Head { headers: &HeaderMap::new(), query: None };
    adapter.answer(Admission::Granted, &head, body, decider)
}

impl Decider for Script {
    fn id(&mut self, id: Id<'_>) {
        self.ids.push(text(id));
    }

    fn doubtful(&mut self, id: Id<'_>) {
        self.doubtful.push(text(id));
    }

    fn wants_skipped(&self) -> bool {
        true
    }

    fn skipped(&mut self, path: &str, why: &dyn std::fmt::Display) {
        self.skipped.push(format!("{path}: {why}"));
    }

    fn note(&mut self, what: &'static str, value: &dyn std::fmt::Display) {
        self.notes.push(format!("{what}: {value}"));
    }

    fn requested_strategy(&mut self, id: &dyn std::fmt::Display, _: Option<usize>) {
        self.notes.push(format!("strategy: {id}"));
    }

    fn report_failure(&mut self, failure: Failure) {
        self.notes.push(format!("observed: {}", failure.as_str()));
    }

    fn decide(&mut self, strategy: usize) -> Decision {
        self.asked.push(strategy);
        self.decisions[strategy]
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}
