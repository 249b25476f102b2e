//! Wire formats: bytes to ids and questions, decisions to bytes. One file per platform.
//!
//! An adapter reads a body, hands the ids it finds to a [`Decider`], asks it what each strategy decides, and writes the answer in
//! the platform's own words. It knows neither audiences nor sockets: as a strategy asks for memberships, an adapter asks for decisions.
//! So the same code serves a request, explains a captured one, and runs in a test.
//!
//! | file | job |
//! |---|---|
//! | `ids` | names of ids, ids to keys |
//! | `access` | secrets, and who may ask |
//! | `respond` | an answer whatever happens |
//! | `describe` | answers in words |
//! | `tencent`, `ocean` | the platforms' protocols, from the files in `proto/` |
//! | `custom` | any other's, mapped by the config |

pub mod access;

pub mod custom;
mod describe;
pub mod ids;
pub mod ocean;
mod respond;
pub mod tencent;

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::HeaderMap;

pub use access::{Access, Secret};
pub use custom::Custom;
pub use ids::{IdField, IdReader, Keys, MAX_IDS};
pub use ocean::Ocean;
pub use respond::{Admission, Answered};
pub use tencent::Tencent;

use crate::strategy::{Decision, Outcome, Reason};

/// Strategies that one platform's ids may stand for.
pub const MAX_STRATEGIES: usize = 64;

/// What an adapter notes beside a [`Failure::BadBody`]: what is wrong with the body, in its decoder's words.
pub const UNREADABLE: &str = "unreadable";

/// An id as a request carries it.
#[derive(Clone, Copy)]
pub struct Id<'a> {
    /// What the platform calls its field, such as `device.imei_md5sum`.
    pub path: &'a str,
    /// What it is: a place in [`IdField::ALL`].
    pub field: usize,
    /// Its value.
    pub value: &'a [u8],
}

/// Hides the value.
impl std::fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Id").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Bytes as text, for whoever reads a note; nothing is done about them before.
struct Lossy<'a>(&'a [u8]);

impl std::fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}

/// `Debug` for generated messages that hold ids: their names, and nothing of what is in them.
macro_rules! hide {
    ($($message:path),+) => {$(
        impl std::fmt::Debug for $message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($message), "(hidden)"))
            }
        }
    )+};
}
use hide;

/// Who takes a request's ids from an adapter and decides about the device they name.
pub trait Decider {
    /// Takes an id; whether it is usable is the decider's to see. Adapters leave out fields that are not there.
    fn id(&mut self, id: Id<'_>);

    /// Takes note of an id that the platform itself holds for junk: it decides nothing.
    fn doubtful(&mut self, id: Id<'_>);

    /// Whether [`Decider::skipped`] is of use to it: adapters remember what they skip only then.
    fn wants_skipped(&self) -> bool {
        false
    }

    /// Takes note of an id that is not handed over, because the config does not say what it is. It does not count towards [`MAX_IDS`].
    fn skipped(&mut self, path: &str, why: &dyn std::fmt::Display) {
        let _ = (path, why);
    }

    /// Takes note of something else that the request says, for whoever explains it.
    fn note(&mut self, what: &'static str, value: &dyn std::fmt::Display) {
        let _ = (what, value);
    }

    /// Takes note that the request asks about a strategy by an id of the platform's, and at which place that strategy is; `None`
    /// if the id is not configured.
    fn asked(&mut self, id: &dyn std::fmt::Display, strategy: Option<usize>) {
        let _ = (id, strategy);
    }

    /// Takes note of what is wrong with a request that is answered all the same.
    fn observed(&mut self, failure: Failure) {
        let _ = failure;
    }

    /// What the strategy at that place of the catalog decides about the ids taken so far.
    fn decide(&mut self, strategy: usize) -> Decision;

    /// Is told that the request cannot be read: from now on every decision is the one for want of an audience.
    fn give_up(&mut self);
}

/// Why a request is not answered by its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The body does not parse.
    BadBody,
    /// The body is over `server.max_body`.
    TooLarge,
    /// The body did not arrive in time, or broke off.
    BodyLost,
    /// None of the headers that admit a caller is there.
    Unauthorized,
    /// The signature is not there or not right.
    BadSignature,
    /// The timestamp is further from now than may be.
    BadTimestamp,
    /// More requests than are answered at a time.
    Overload,
    /// More than [`MAX_IDS`] ids.
    TooManyIds,
    /// A fault of rtad's own.
    Internal,
}

impl Failure {
    /// All failures, in the order of their counters.
    pub const ALL: [Self; 9] = [
        Self::BadBody,
        Self::TooLarge,
        Self::BodyLost,
        Self::Unauthorized,
        Self::BadSignature,
        Self::BadTimestamp,
        Self::Overload,
        Self::TooManyIds,
        Self::Internal,
    ];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadBody => "bad_body",
            Self::TooLarge => "too_large",
            Self::BodyLost => "body_lost",
            Self::Unauthorized => "unauthorized",
            Self::BadSignature => "bad_signature",
            Self::BadTimestamp => "bad_timestamp",
            Self::Overload => "overload",
            Self::TooManyIds => "too_many_ids",
            Self::Internal => "internal",
        }
    }

    /// Whether the caller is not the platform, as far as one can tell: then it learns nothing of what is configured.
    pub const fn is_of_a_stranger(self) -> bool {
        matches!(self, Self::Unauthorized | Self::BadSignature | Self::BadTimestamp)
    }
}

/// How long the platform may keep an answer for a device, in seconds; `None` leaves it to the platform.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTimes {
    /// If any strategy bids.
    pub bid: Option<u32>,
    /// If none does.
    pub no_bid: Option<u32>,
}

impl CacheTimes {
    /// The time for an answer with these verdicts. None for one that hangs on an audience that could not say, as a minute's trouble
    /// would be remembered for a day; nor for one that no strategy decided, which says nothing of the device.
    fn of(&self, bids: bool, verdicts: &Verdicts<'_, impl Decider>) -> Option<u32> {
        match verdicts.unavailable || verdicts.made.is_empty() {
            true => None,
            false if bids => self.bid,
            false => self.no_bid,
        }
    }
}

/// A platform's own strategy ids, in the config's order, and the places of the strategies that they stand for.
#[derive(Debug, Clone)]
pub struct StrategyIds<I>(Vec<(I, usize)>);

impl<I: PartialEq> StrategyIds<I> {
    /// At most [`MAX_STRATEGIES`] of them.
    ///
    /// # Panics
    ///
    /// If there are more: the config's checks let no such list through.
    pub fn new(ids: Vec<(I, usize)>) -> Self {
        assert!(ids.len() <= MAX_STRATEGIES, "at most {MAX_STRATEGIES} strategies");
        Self(ids)
    }

    /// The place of the strategy that an id stands for.
    #[inline]
    fn place(&self, id: &I) -> Option<usize> {
        self.0.iter().find(|(known, _)| known == id).map(|(_, place)| *place)
    }

    fn iter(&self) -> impl Iterator<Item = (&I, usize)> {
        self.0.iter().map(|(id, place)| (id, *place))
    }

    fn texts(&self, text: impl Fn(&I) -> String) -> Vec<(String, usize)> {
        self.iter().map(|(id, place)| (text(id), place)).collect()
    }
}

/// The decisions of one request: each strategy is asked once, however many ids stand for it.
struct Verdicts<'d, D> {
    decider: &'d mut D,
    made: ArrayVec<(usize, Decision), MAX_STRATEGIES>,
    /// Whether any was made for want of an audience.
    unavailable: bool,
}

impl<'d, D: Decider> Verdicts<'d, D> {
    fn new(decider: &'d mut D) -> Self {
        Self { decider, made: ArrayVec::new(), unavailable: false }
    }

    /// The request asks about a strategy by this id.
    fn asked(&mut self, id: &dyn std::fmt::Display, strategy: Option<usize>) {
        self.decider.asked(id, strategy);
    }

    /// Whether the strategy bids.
    #[inline]
    fn bids(&mut self, strategy: usize) -> bool {
        let made = self.made.iter().find(|(place, _)| *place == strategy);
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

/// What comes with a body.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// What stands behind the `?` of its target.
    pub query: Option<&'a str>,
}

/// Hides the values: one of the headers is a secret.
impl std::fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").finish_non_exhaustive()
    }
}

/// One configured platform.
#[derive(Debug)]
pub struct Platform {
    /// Its name in metrics, and for `explain`.
    pub name: String,
    /// The path that it asks at.
    pub path: String,
    /// Who may ask.
    pub access: Access,
    /// Its protocol.
    pub adapter: Adapter,
}

/// A platform's protocol.
#[derive(Debug)]
pub enum Adapter {
    /// Tencent Ads.
    Tencent(Tencent),
    /// Ocean Engine.
    Ocean(Ocean),
    /// Whatever the config maps.
    Custom(Box<Custom>),
}

impl Platform {
    /// Answers a request: reads the body's ids into `decider`, asks it about the strategies that the request asks about, and
    /// writes the answer. Costs a pass over the body, whose bytes are not copied, and the answer's bytes.
    ///
    /// # Errors
    ///
    /// Why the ids were not asked for; [`Platform::respond`] has an answer to that too. A body that failed is reported only to who
    /// may ask: a stranger learns nothing by a broken one.
    #[inline]
    pub fn answer(
        &self,
        head: &Head<'_>,
        body: Result<Bytes, Failure>,
        decider: &mut impl Decider,
    ) -> Result<Bytes, Failure> {
        if !self.access.admits(head.headers) {
            return Err(Failure::Unauthorized);
        }
        self.admitted(Admission::ByHeaders, head, body?, decider)
    }

    /// The same for a caller whose headers let it in, or of whom none are asked.
    #[inline]
    fn admitted(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: Bytes,
        decider: &mut impl Decider,
    ) -> Result<Bytes, Failure> {
        match &self.adapter {
            Adapter::Tencent(tencent) => tencent.answer(body, decider),
            Adapter::Ocean(ocean) => ocean.answer(body, decider),
            Adapter::Custom(custom) => custom.answer(admission, head, body, decider),
        }
    }

    /// The answer when the request cannot be read: what each configured strategy decides, once the decider has given up.
    pub fn unavailable(&self, decider: &mut impl Decider) -> Bytes {
        match &self.adapter {
            Adapter::Tencent(tencent) => tencent.unavailable(decider),
            Adapter::Ocean(ocean) => ocean.unavailable(decider),
            Adapter::Custom(custom) => custom.unavailable(decider),
        }
    }

    /// The answer to a stranger, and when all else fails: no bid, whatever is configured.
    pub fn refusal(&self) -> Bytes {
        match &self.adapter {
            Adapter::Tencent(_) => Tencent::refusal(),
            Adapter::Ocean(_) => Ocean::refusal(),
            Adapter::Custom(custom) => custom.refusal(),
        }
    }

    /// The answers' media type, where the platform wants one.
    pub const fn content_type(&self) -> Option<&'static str> {
        match &self.adapter {
            Adapter::Tencent(_) => None,
            Adapter::Ocean(_) => Some("application/x-protobuf"),
            Adapter::Custom(custom) => Some(custom.content_type()),
        }
    }

    /// Its strategy ids as text, in the config's order, with the places of the strategies that they stand for.
    pub fn strategy_ids(&self) -> Vec<(String, usize)> {
        match &self.adapter {
            Adapter::Tencent(tencent) => {
                tencent.strategies.texts(|id| String::from_utf8_lossy(id).into_owned())
            }
            Adapter::Ocean(ocean) => ocean.strategies.texts(i64::to_string),
            Adapter::Custom(custom) => custom.strategies.texts(|id| String::from_utf8_lossy(id).into_owned()),
        }
    }

    /// Places of the strategies that its ids stand for; one that several stand for comes as often.
    pub fn strategies(&self) -> impl Iterator<Item = usize> {
        self.strategy_ids().into_iter().map(|(_, place)| place)
    }

    /// The word for its protocol in the config.
    pub const fn kind(&self) -> &'static str {
        match &self.adapter {
            Adapter::Tencent(_) => "tencent",
            Adapter::Ocean(_) => "ocean",
            Adapter::Custom(_) => "custom",
        }
    }

    /// An answer's bytes in words: a line for each field that is set.
    pub fn describe_answer(&self, answer: &[u8]) -> String {
        let described = match &self.adapter {
            Adapter::Tencent(_) => Tencent::describe_answer(answer),
            Adapter::Ocean(_) => Ocean::describe_answer(answer),
            Adapter::Custom(custom) => custom.describe_answer(answer),
        };
        described.unwrap_or_else(|error| format!("not an answer of this protocol: {error}"))
    }
}

#[cfg(test)]
mod testing;
