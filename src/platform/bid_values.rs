//! Values of bids in the form that a protocol writes, made when a platform is built.

use super::read::{Asked, Known, StrategyIds};
use super::verdict::{Verdict, verdict_of};
use crate::strategy::BidValue;

/// The values of all strategies, by the strategies' indexes.
pub type StrategyValues = [Vec<BidValue>];

/// Forms of values, by index of the platform's strategy id and of the value. `None` for values of
/// which the protocol carries nothing.
#[derive(Debug)]
pub struct ValueTable<T>(Vec<Vec<Option<T>>>);

/// A table without values.
impl<T> Default for ValueTable<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ValueTable<T> {
    /// The forms that `make` returns for each id and value.
    pub fn new(
        ids: &StrategyIds,
        values: &StrategyValues,
        make: impl Fn(&Asked<'static>, &BidValue) -> Option<T>,
    ) -> Self {
        let mut table = Vec::new();
        for asked in ids.iter() {
            let values = asked.known.and_then(|known| values.get(known.strategy));
            let mut made = Vec::new();
            for value in values.into_iter().flatten() {
                made.push(make(asked, value));
            }
            table.push(made);
        }

        if table.iter().flatten().all(Option::is_none) {
            Self::default()
        } else {
            Self(table)
        }
    }

    /// Whether no bid has a value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of the verdict about a strategy id, if it is a bid with one.
    #[inline]
    pub fn of(&self, verdicts: &[Verdict], id: Option<Known>) -> Option<&T> {
        let values = self.0.get(id?.id.0)?;
        let index = verdict_of(verdicts, id)?.decision.value.index?;
        values.get(usize::from(index))?.as_ref()
    }
}
