//! The trait of a platform's protocol, and the parts that protocols share.

use std::fmt;
use std::time::Duration;

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::HeaderMap;
use prost::Message;

use super::decider::{Decider, Failure, UNREADABLE};
use crate::config::{KindRules, MAX_STRATEGIES, Mistake, PlatformConfig};
use crate::strategy::{Decision, Outcome, Reason};

/// A platform's protocol, with its configuration.
///
/// An adapter reads a body, passes the ids to a [`Decider`], gets each strategy's decision from it,
/// and writes the answer. It has no access to audiences or sockets. Many threads call it.
pub trait Adapter: fmt::Debug + Send + Sync {
    /// The protocol's `kind` in the config.
    fn kind(&self) -> &'static str;

    /// Answers a request of an admitted caller. Costs one pass over the body without copying it,
    /// and the answer's bytes.
    ///
    /// # Errors
    ///
    /// The reason why the ids were not used.
    fn answer(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: Bytes,
        decider: &mut dyn Decider,
    ) -> Result<Bytes, Failure>;

    /// The answer to an unreadable request: the decision of each configured strategy, after
    /// [`Decider::give_up`].
    fn unavailable(&self, decider: &mut dyn Decider) -> Bytes;

    /// The answer to an unauthorized caller, and after a second failure: no bid.
    fn refusal(&self) -> Bytes;

    /// The answers' media type, if the platform requires one.
    fn content_type(&self) -> Option<&'static str>;

    /// Its strategy ids as text, in the config's order, with the indexes of their strategies.
    fn strategy_ids(&self) -> Vec<(String, usize)>;

    /// An answer as text: one line per field that is set.
    ///
    /// # Errors
    ///
    /// The bytes are not an answer of this protocol.
    fn describe_answer(&self, answer: &[u8]) -> Result<String, prost::DecodeError>;

    /// Hash of the schema that the config names; 0 if it names none.
    fn schema_fingerprint(&self) -> u64 {
        0
    }
}

/// A kind of platform: its config rules and its builder.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its word in the config, and its strategy ids.
    pub rules: KindRules,
    /// Builds an adapter for the config's strategy ids.
    ///
    /// # Errors
    ///
    /// Mistakes that only the build finds; empty if mistakes while reading left too little to
    /// build.
    pub build: Build,
}

/// Builds an adapter from its config table and its strategies.
type Build = fn(&PlatformConfig, StrategyIds<String>) -> Result<Box<dyn Adapter>, Vec<Mistake>>;

/// The way a caller is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// By the headers that the platform sends.
    ByHeaders,
    /// By access to the config: a captured body is explained. Headers are not checked. A signature
    /// is, if the captured parts of the request suffice. Its time is reported only: a captured
    /// request is old.
    Granted,
}

/// Headers and query string of a request.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The query string, without `?`.
    pub query: Option<&'a str>,
}

/// Hides the values: a header may be a secret.
impl fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").finish_non_exhaustive()
    }
}

/// Seconds for which the platform may cache an answer; `None` = the platform decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTimes {
    /// For an answer with a bid.
    pub bid: Option<u32>,
    /// For an answer without a bid.
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

/// Cache time of a capped answer if none is configured, unless the period ends before.
const CAPPED_CACHE: u32 = 3600;

impl CacheTimes {
    /// The cache time of an answer with these verdicts. An answer that depends on a missing
    /// audience carries none: a short outage would be cached for a day. An answer without a
    /// decision carries none either, as it does not depend on the device.
    ///
    /// No answer of a strategy with a cap is cached beyond the cap's period: a cached bid would
    /// not be counted in the next one, a cached `capped` would refuse a device that it admits. So
    /// an answer with `capped` always carries a time.
    pub(super) fn of(&self, bids: bool, verdicts: &Verdicts<'_>) -> Option<u32> {
        if verdicts.unavailable || verdicts.made.is_empty() {
            return None;
        }
        let configured = if bids { self.bid } else { self.no_bid };
        let Some(left) = verdicts.cap_ends_in else { return configured };
        // Platforms read 0 as "not given".
        let left = u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(1);
        let usual = configured.or_else(|| verdicts.capped.then_some(CAPPED_CACHE));
        usual.map(|seconds| seconds.min(left))
    }
}

/// A platform's strategy ids, in the config's order, and the indexes of their strategies.
#[derive(Debug, Clone)]
pub struct StrategyIds<I>(Vec<(I, usize)>);

impl<I> StrategyIds<I> {
    /// Takes at most [`MAX_STRATEGIES`] ids.
    ///
    /// # Panics
    ///
    /// If there are more, which the config's checks prevent.
    pub fn new(ids: Vec<(I, usize)>) -> Self {
        assert!(ids.len() <= MAX_STRATEGIES, "at most {MAX_STRATEGIES} strategies");
        Self(ids)
    }

    /// The same ids as another type.
    pub(super) fn map<J>(self, id: impl Fn(I) -> J) -> StrategyIds<J> {
        StrategyIds(self.0.into_iter().map(|(known, strategy)| (id(known), strategy)).collect())
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&I, usize)> + Clone {
        self.0.iter().map(|(id, strategy)| (id, *strategy))
    }

    /// All ids as text.
    pub(super) fn texts(&self, text: impl Fn(&I) -> String) -> Vec<(String, usize)> {
        self.iter().map(|(id, strategy)| (text(id), strategy)).collect()
    }
}

impl<I: PartialEq> StrategyIds<I> {
    /// The index of an id's strategy.
    #[inline]
    pub(super) fn strategy(&self, id: &I) -> Option<usize> {
        self.0.iter().find(|(known, _)| known == id).map(|(_, strategy)| *strategy)
    }
}

/// The decisions of one request. Each strategy decides once, even if several ids map to it.
pub(super) struct Verdicts<'d> {
    decider: &'d mut dyn Decider,
    made: ArrayVec<(usize, Decision), MAX_STRATEGIES>,
    /// Whether a needed audience was unavailable for any of them.
    unavailable: bool,
    /// Whether any of them was capped.
    capped: bool,
    /// Time until the first cap of these strategies counts anew.
    cap_ends_in: Option<Duration>,
}

impl<'d> Verdicts<'d> {
    pub(super) fn new(decider: &'d mut dyn Decider) -> Self {
        let (made, unavailable, capped, cap_ends_in) = Default::default();
        Self { decider, made, unavailable, capped, cap_ends_in }
    }

    /// Records a requested strategy id.
    pub(super) fn requested_strategy(&mut self, id: &dyn fmt::Display, strategy: Option<usize>) {
        self.decider.requested_strategy(id, strategy);
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
                self.capped |= decision.reason == Reason::Capped;
                let ends_in = self.decider.cap_ends_in(strategy);
                self.cap_ends_in = self.cap_ends_in.into_iter().chain(ends_in).min();
                self.made.push((strategy, decision));
                decision
            }
        };
        decision.outcome == Outcome::Bid
    }
}

/// Strategies or ads that one request may name. Each is looked up, and has a part of the answer.
pub(super) const MAX_ASKED: usize = 1024;

/// Checks the number of requested strategies or ads. More make a request unreadable: an answer to
/// some would accept or reject the others.
pub(super) fn check_asked(count: usize, decider: &mut dyn Decider) -> Result<(), Failure> {
    if count <= MAX_ASKED {
        return Ok(());
    }
    let found = format_args!("it names {count} strategies or ads, {MAX_ASKED} are allowed");
    decider.note(UNREADABLE, &found);
    Err(Failure::BadBody)
}

/// The note about an empty body. An empty message is valid protobuf, but no platform sends one: it
/// is a probe, or a request whose body was lost on the way.
pub(super) const EMPTY: &str = "it is empty";

/// Decodes a request; a failure is noted with the decoder's message.
#[inline]
pub(super) fn decode<M: Message + Default>(
    body: Bytes,
    decider: &mut dyn Decider,
) -> Result<M, Failure> {
    if body.is_empty() {
        decider.note(UNREADABLE, &EMPTY);
        return Err(Failure::BadBody);
    }
    M::decode(body).map_err(|error| {
        decider.note(UNREADABLE, &error);
        Failure::BadBody
    })
}

/// The bytes of a response.
#[inline]
pub(super) fn encode(response: &impl Message) -> Bytes {
    response.encode_to_vec().into()
}

/// Whether a text has 1 to `longest` characters, all visible ASCII.
pub(super) fn is_visible(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
