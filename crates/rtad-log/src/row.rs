//! A row: the facts of one request, from which its decisions can be made again under other rules.
//!
//! Texts are borrowed: a worker encodes a row from a request, the log's thread decodes it from the
//! bytes of a ring. Lists have room for a usual request without an allocation.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Numbers of a bid's value, in the order of the columns: weight, price of a conversion, price of a
/// click, factor of that price, quality.
pub const NUMBERS: usize = 5;
/// Attributes of a request, in the order of the columns: os, app, slot, region, request type.
pub const ATTRIBUTES: usize = 5;

/// A logged request. Its encoding is that of its facts, then that of a [`RowEnd`]: a worker knows
/// the facts before the end of the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogRow<'a> {
    /// Facts of the decisions; `None` without decisions, as for an unauthorized caller.
    #[serde(borrow)]
    pub facts: Option<LoggedFacts<'a>>,
    /// Time of the answer, in microseconds since 1970.
    pub time: i64,
    /// Time from the request's arrival to its answer, in microseconds.
    pub latency: u32,
    /// Name of the platform; `api` for `/v1/decide`.
    pub platform: &'a str,
    /// The cause of an answer that ignores the ids.
    pub failure: Option<&'a str>,
    /// Probability with which a row of this kind is in the log.
    pub probability: f64,
    /// The first 16 hex digits of the SHA-256 of the configuration file.
    pub config: &'a str,
    /// The request itself, where the configuration asks for it.
    #[serde(borrow)]
    pub raw: Option<Raw<'a>>,
}

/// The fields of a [`LogRow`] after its facts, in the same order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields of LogRow")]
pub struct RowEnd<'a> {
    pub time: i64,
    pub latency: u32,
    pub platform: &'a str,
    pub failure: Option<&'a str>,
    pub probability: f64,
    pub config: &'a str,
    pub raw: Option<Raw<'a>>,
}

/// Facts on which the decisions depend, and the decisions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoggedFacts<'a> {
    /// The request's own id.
    pub request_id: Option<&'a str>,
    /// The device; `None` without a usable id.
    #[serde(borrow)]
    pub device: Option<Device<'a>>,
    /// The part of the request's ids that was looked up.
    pub ids: Ids,
    /// Attributes of the request.
    #[serde(borrow)]
    pub attributes: [Option<&'a str>; ATTRIBUTES],
    /// The platform's ids of the requested strategies; `None` = all.
    #[serde(borrow)]
    pub asked: Option<SmallVec<[&'a str; 8]>>,
    /// The device in each audience of the pod; empty without a usable id.
    #[serde(borrow)]
    pub audiences: SmallVec<[AudienceFact<'a>; 8]>,
    /// The device in each experiment.
    #[serde(borrow)]
    pub experiments: SmallVec<[ExperimentFact<'a>; 4]>,
    /// A decision per strategy, those in shadow too.
    #[serde(borrow)]
    pub decisions: SmallVec<[DecisionFact<'a>; 4]>,
}

/// A device, without its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device<'a> {
    /// The first 16 bytes of the HMAC-SHA256 of its key.
    pub hmac: [u8; 16],
    /// Id of the HMAC's secret.
    pub secret: &'a str,
}

/// The part of a request's ids that was looked up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ids {
    /// No id was usable.
    #[default]
    None,
    /// All usable ids.
    All,
    /// The first ones: an unread id might be a member.
    TooMany,
    /// None, as the request was not readable.
    Unread,
}

/// A device in an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudienceFact<'a> {
    /// Name of the audience.
    pub name: &'a str,
    /// The generation that was asked; `None` if none was loaded.
    pub generation: Option<u64>,
    /// Whether the device is in it.
    pub member: InAudience,
    /// The member's value, from 0 to 15.
    pub value: Option<u8>,
}

/// Whether a device is in an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InAudience {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// The audience is missing or too old.
    Unavailable,
}

/// A device in an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentFact<'a> {
    /// Name of the experiment.
    pub name: &'a str,
    /// Number of its rule from a device to slots, so that slots of another rule are not taken for
    /// it.
    pub rule: u32,
    /// Name of the bucket, or `none` or `holdout`.
    pub bucket: &'a str,
    /// Slots of the device in the layer and among the buckets; `None` without a unit.
    pub slots: Option<[u32; 2]>,
}

/// A strategy's decision.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DecisionFact<'a> {
    /// Name of the strategy.
    pub strategy: &'a str,
    /// Whether it bids.
    pub bid: bool,
    /// The reason.
    pub reason: &'a str,
    /// Whether it answers nothing.
    pub shadow: bool,
    /// Whether its cap admits the device; `None` without a cap.
    pub cap: Option<Cap>,
    /// Whether its schedule holds; `None` without a schedule.
    pub scheduled: Option<bool>,
    /// Numbers of the bid's value.
    pub numbers: [Option<f64>; NUMBERS],
}

/// A cap and a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cap {
    /// It admits the device.
    Admitted,
    /// It is reached.
    Capped,
    /// The pod has leased no more of it.
    NoLease,
}

/// A request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raw<'a> {
    /// The query string.
    pub query: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// A row that does not fit into the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the row is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Encodes the facts of a row, its first part, into a buffer. Returns their length.
///
/// # Errors
///
/// [`TooLarge`] if the buffer is too small.
pub fn encode_facts(facts: Option<&LoggedFacts<'_>>, buffer: &mut [u8]) -> Result<usize, TooLarge> {
    encode(&facts, buffer)
}

fn encode(part: &impl Serialize, buffer: &mut [u8]) -> Result<usize, TooLarge> {
    let length = buffer.len();
    postcard::to_slice(part, buffer).map(|bytes| bytes.len()).map_err(|_| TooLarge(length))
}

impl RowEnd<'_> {
    /// Encodes the rest of a row into a buffer. Returns its length. Costs a copy of its texts.
    ///
    /// # Errors
    ///
    /// [`TooLarge`] if the buffer is too small.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, TooLarge> {
        encode(self, buffer)
    }
}

impl<'a> LogRow<'a> {
    /// Decodes a row; `None` if the bytes are none.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

impl Ids {
    /// The word in the files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
            Self::TooMany => "too_many",
            Self::Unread => "unread",
        }
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::None, Self::All, Self::TooMany, Self::Unread]
            .into_iter()
            .find(|ids| ids.as_str() == word)
    }
}

impl InAudience {
    /// The word in the files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unavailable => "unavailable",
        }
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Yes, Self::No, Self::Unavailable].into_iter().find(|member| member.as_str() == word)
    }
}

impl Cap {
    /// The word in the files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Capped => "capped",
            Self::NoLease => "no_lease",
        }
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Admitted, Self::Capped, Self::NoLease].into_iter().find(|cap| cap.as_str() == word)
    }
}
