//! The trait of a platform's protocol: a body to data, and data to an answer. Beside it, what an
//! answer is written from: verdicts, its cache time, and values in the form of a protocol.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use prost_reflect::MessageDescriptor;
use smallvec::SmallVec;

use super::read::{Asked, Known, Read, ReadError, StrategyIds};
use crate::config::{KindRules, Mistake, PlatformConfig};
use crate::strategy::{BidValue, Decision, Reason, Tag};

/// A platform's protocol, with its configuration.
///
/// An adapter reads a body into data, and writes an answer from the data and the verdicts about it.
/// It has no access to audiences or sockets. Many threads call it.
pub trait Adapter: fmt::Debug + Send + Sync {
    /// The protocol's `kind` in the config.
    fn kind(&self) -> &'static str;

    /// Its strategy ids.
    fn strategies(&self) -> &StrategyIds;

    /// Whether it rejects requests without a valid signature.
    fn requires_signature(&self) -> bool {
        false
    }

    /// Reads a request of an admitted caller. Costs one pass over the body without copying it.
    /// `read` is empty before.
    ///
    /// # Errors
    ///
    /// The reason why the ids are not used.
    fn read<'a>(&'a self, request: &Request<'a>, read: &mut Read<'a>) -> Result<(), ReadError>;

    /// Writes the answer to a request. Costs the answer's bytes.
    fn write(&self, read: &Read<'_>, verdicts: &[Verdict]) -> Bytes;

    /// The answer to an unauthorized caller, and after a second failure: no bid.
    fn refusal(&self) -> Bytes;

    /// The answers' media type, if the platform requires one.
    fn content_type(&self) -> Option<&'static str>;

    /// The message of its answers, to show one as text; `None` if they are text already.
    fn answer_message(&self) -> Option<MessageDescriptor>;

    /// Hash of the schema that the config names; 0 if it names none.
    fn schema_fingerprint(&self) -> u64 {
        0
    }
}

/// A request of an admitted caller.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The way the caller was admitted.
    pub admission: Admission,
    /// Headers and query string.
    pub head: RequestHead<'a>,
    /// The body.
    pub body: &'a Bytes,
}

/// Hides the body: it holds ids.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}

/// A kind of platform: its config rules and its builder.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its word in the config, and its strategy ids.
    pub rules: KindRules,
    /// Builds an adapter for the config's strategy ids, the values of all strategies, and the tags
    /// of all buckets. A tag has no content if no strategy of the platform reads its experiment.
    ///
    /// # Errors
    ///
    /// Mistakes that only the build finds; empty if mistakes while reading left too little to
    /// build.
    pub build: Build,
    /// A `[[platform]]` table with comments, whose strategy is `new-users`, for a new config.
    pub example: &'static str,
}

/// Builds an adapter from its config table, and its strategy ids with their strategies' indexes.
type Build = fn(
    &PlatformConfig,
    Vec<(String, usize)>,
    &StrategyValues,
    &[Tag],
) -> Result<Box<dyn Adapter>, Vec<Mistake>>;

/// The way a caller is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The headers that the platform sends admit it.
    ByHeaders,
    /// It has access to the config: a captured body is explained. Headers are not checked. A
    /// signature is, if the captured parts of the request suffice. Its time is reported only: a
    /// captured request is old.
    Granted,
}

/// Headers and query string of a request.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The query string, without `?`.
    pub query: Option<&'a str>,
}

/// Hides the values: a header may be a secret.
impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead").finish_non_exhaustive()
    }
}

/// The bytes of a response.
#[inline]
pub fn encode(response: &impl Message) -> Bytes {
    response.encode_to_vec().into()
}

/// Whether a text has 1 to `longest` characters, all visible ASCII.
pub fn is_visible(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A strategy's decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the strategy in the catalog.
    pub strategy: usize,
    /// Its decision.
    pub decision: Decision,
    /// Time until its cap counts anew or its schedule changes, zero if each request decides anew;
    /// `None` otherwise. It is the upper limit of a cache time in the answer.
    pub changes_in: Option<Duration>,
    /// Index of the tag of the device's bucket.
    pub tag: Option<u16>,
}

/// The verdicts about a request, one per strategy.
pub type Verdicts = SmallVec<[Verdict; 8]>;

/// Whether a strategy bids.
#[inline]
pub fn bids(verdicts: &[Verdict], id: Option<Known>) -> bool {
    verdict_of(verdicts, id).is_some_and(Verdict::bids)
}

/// The verdict about a strategy id.
#[inline]
pub fn verdict_of(verdicts: &[Verdict], id: Option<Known>) -> Option<&Verdict> {
    let id = id?;
    verdicts
        .iter()
        .find(|verdict| verdict.strategy == id.strategy)
}

impl Verdict {
    /// Whether it is a bid.
    #[inline]
    pub fn bids(&self) -> bool {
        self.decision.is_bid()
    }
}

/// Seconds for which the platform may cache an answer; `None` = the platform decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTimes {
    /// Seconds of an answer with a bid.
    pub bid: Option<u32>,
    /// Seconds of an answer without a bid.
    pub no_bid: Option<u32>,
}

impl From<&PlatformConfig> for CacheTimes {
    fn from(config: &PlatformConfig) -> Self {
        Self {
            bid: config.bid_cache.map(whole_seconds),
            no_bid: config.no_bid_cache.map(whole_seconds),
        }
    }
}

fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Cache time of an answer without a bid that a cap or a schedule refuses, if none is configured:
/// at most until the cap's period ends or the schedule changes.
const REFUSED_CACHE: u32 = 3600;

impl CacheTimes {
    /// The cache time of an answer with these verdicts. An answer that depends on a missing
    /// audience or grant carries none: a short outage would be cached for a day. Nor
    /// does one with a default value in place of one that depends on a missing audience. An answer
    /// without a decision carries none either, as it does not depend on the device.
    ///
    /// The time in an answer of a strategy with a cap ends with the cap's period: a bid cached for
    /// longer would not be counted in the next one, a cached `capped` would refuse a device that it
    /// admits. It ends with the next change of a schedule too. An answer without a bid always
    /// carries a time if it has `capped` or `not_scheduled`; one with a bid only if one is
    /// configured.
    pub(super) fn of(&self, bids: bool, verdicts: &[Verdict]) -> Option<u32> {
        if verdicts.is_empty() {
            return None;
        }
        let mut is_refused = false;
        let mut ends_in = None;
        for Verdict {
            decision,
            changes_in,
            ..
        } in verdicts
        {
            match decision.reason {
                Reason::Unavailable | Reason::NoGrant => return None,
                _ if decision.value.is_fallback => return None,
                Reason::Capped | Reason::NotScheduled => is_refused = true,
                Reason::Member
                | Reason::NotMember
                | Reason::NoDevice
                | Reason::Rule
                | Reason::Bucket => {}
            }
            ends_in = ends_in.into_iter().chain(*changes_in).min();
        }

        let configured = if bids { self.bid } else { self.no_bid };
        let usual = configured.or_else(|| (is_refused && !bids).then_some(REFUSED_CACHE));
        let Some(left) = ends_in else { return usual };
        // Platforms read 0 as "not given".
        let left = whole_seconds(left).max(1);
        usual.map(|seconds| seconds.min(left))
    }
}

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
