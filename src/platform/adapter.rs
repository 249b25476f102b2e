//! The contract of a platform's protocol, and the parts that protocols share.

use std::fmt;
use std::time::Duration;

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::HeaderMap;

use super::decider::{Decider, Failure};
use crate::config::{KindRules, MAX_STRATEGIES, Mistake, PlatformConfig};
use crate::strategy::{Decision, Outcome, Reason};

/// A platform's protocol, with what the config says of it.
///
/// An adapter reads a body, hands the ids it finds to a [`Decider`], asks it what each strategy
/// decides, and writes the answer in the platform's own words. It knows neither audiences nor
/// sockets, and is called from many threads.
pub trait Adapter: fmt::Debug + Send + Sync {
    /// The word for the protocol in the config.
    fn kind(&self) -> &'static str;

    /// Answers a request of a caller who is admitted. Costs a pass over the body, whose bytes are
    /// not copied, and the answer's bytes.
    ///
    /// # Errors
    ///
    /// Why the ids were not asked for.
    fn answer(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: Bytes,
        decider: &mut dyn Decider,
    ) -> Result<Bytes, Failure>;

    /// The answer when the request cannot be read: the decision of each configured strategy, once
    /// the decider has given up.
    fn unavailable(&self, decider: &mut dyn Decider) -> Bytes;

    /// The answer to a caller who is not the platform, and when all else fails: no bid, whatever is
    /// configured.
    fn refusal(&self) -> Bytes;

    /// The answers' media type, where the platform wants one.
    fn content_type(&self) -> Option<&'static str>;

    /// Its strategy ids as text, in the config's order, with the indices of the strategies that
    /// they stand for.
    fn strategy_ids(&self) -> Vec<(String, usize)>;

    /// An answer's bytes in words: a line for each field that is set.
    ///
    /// # Errors
    ///
    /// Why they are no answer of this protocol.
    fn describe_answer(&self, answer: &[u8]) -> Result<String, prost::DecodeError>;

    /// Another if the schema that the config names is another; 0 if it names none.
    fn schema_fingerprint(&self) -> u64 {
        0
    }
}

/// A kind of platform: its part in the config, and its builder.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its word, and what its strategy ids are.
    pub rules: KindRules,
    /// Builds an adapter for the config's strategy ids.
    ///
    /// # Errors
    ///
    /// What only building finds. Nothing at all if reading has found mistakes that leave nothing to
    /// build from.
    pub build: Build,
}

/// Builds an adapter from its table of the config and the strategies that its ids stand for.
type Build = fn(&PlatformConfig, StrategyIds<String>) -> Result<Box<dyn Adapter>, Vec<Mistake>>;

/// How it is settled whether a caller may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// By the headers that the platform sends.
    ByHeaders,
    /// By the right to read the config: a captured body is explained. Nothing is asked of its
    /// headers, and a fault of its signature is reported but decides nothing.
    Granted,
}

/// What comes with a body.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// What stands behind the `?` of its target.
    pub query: Option<&'a str>,
}

/// Hides the values: one of the headers is a secret.
impl fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").finish_non_exhaustive()
    }
}

/// How long the platform may keep an answer for a device, in seconds; `None` leaves it to the
/// platform.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTimes {
    /// If any strategy bids.
    pub bid: Option<u32>,
    /// If none does.
    pub no_bid: Option<u32>,
}

impl From<&PlatformConfig> for CacheTimes {
    fn from(config: &PlatformConfig) -> Self {
        let seconds = |time: Option<Duration>| {
            time.map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX))
        };
        Self { bid: seconds(config.bid_cache), no_bid: seconds(config.no_bid_cache) }
    }
}

impl CacheTimes {
    /// The time for an answer with these verdicts. Answers that depend on a missing audience carry
    /// none, as a minute's trouble would be remembered for a day; nor does one that no strategy
    /// decided, which says nothing of the device.
    pub(super) fn of(&self, bids: bool, verdicts: &Verdicts<'_>) -> Option<u32> {
        match verdicts.unavailable || verdicts.made.is_empty() {
            true => None,
            false if bids => self.bid,
            false => self.no_bid,
        }
    }
}

/// A platform's own strategy ids, in the config's order, and the indices of the strategies that
/// they stand for.
#[derive(Debug, Clone)]
pub struct StrategyIds<I>(Vec<(I, usize)>);

impl<I> StrategyIds<I> {
    /// At most [`MAX_STRATEGIES`] of them.
    ///
    /// # Panics
    ///
    /// If there are more: the config's checks let no such list through.
    pub fn new(ids: Vec<(I, usize)>) -> Self {
        assert!(ids.len() <= MAX_STRATEGIES, "at most {MAX_STRATEGIES} strategies");
        Self(ids)
    }

    /// The same ids of another type.
    pub(super) fn map<J>(self, id: impl Fn(I) -> J) -> StrategyIds<J> {
        StrategyIds(self.0.into_iter().map(|(known, strategy)| (id(known), strategy)).collect())
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&I, usize)> + Clone {
        self.0.iter().map(|(id, strategy)| (id, *strategy))
    }

    /// All as text.
    pub(super) fn texts(&self, text: impl Fn(&I) -> String) -> Vec<(String, usize)> {
        self.iter().map(|(id, strategy)| (text(id), strategy)).collect()
    }
}

impl<I: PartialEq> StrategyIds<I> {
    /// The index of the strategy that an id stands for.
    #[inline]
    pub(super) fn strategy(&self, id: &I) -> Option<usize> {
        self.0.iter().find(|(known, _)| known == id).map(|(_, strategy)| *strategy)
    }
}

/// The decisions of one request: each strategy is asked once, however many ids stand for it.
pub(super) struct Verdicts<'d> {
    decider: &'d mut dyn Decider,
    made: ArrayVec<(usize, Decision), MAX_STRATEGIES>,
    /// Whether any was made for want of an audience.
    unavailable: bool,
}

impl<'d> Verdicts<'d> {
    pub(super) fn new(decider: &'d mut dyn Decider) -> Self {
        Self { decider, made: ArrayVec::new(), unavailable: false }
    }

    /// The request asks about a strategy by this id.
    pub(super) fn asked(&mut self, id: &dyn fmt::Display, strategy: Option<usize>) {
        self.decider.asked(id, strategy);
    }

    /// Whether the strategy bids.
    #[inline]
    pub(super) fn bids(&mut self, strategy: usize) -> bool {
        let made = self.made.iter().find(|(known, _)| *known == strategy);
        let decision = match made {
            Some((_, decision)) => *decision,
            None => {
                let decision = self.decider.decide(strategy);
                self.unavailable |= decision.reason == Reason::Unavailable;
                self.made.push((strategy, decision));
                decision
            }
        };
        decision.outcome == Outcome::Bid
    }
}

/// Whether a text is a strategy id of 1 to `longest` visible characters.
pub(super) fn is_visible(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
