//! A row: the facts of one request, from which its decisions can be made again under other rules.
//!
//! Texts are borrowed, from a request or from a file's columns. Lists have room for a usual request
//! without an allocation.
//!
//! Between a worker and the log's thread a row is a record of bytes. It has the key of the device:
//! the log's thread gives it its name in the files. Both belong to one process, so the bytes have
//! no version.

use postcard::{take_from_bytes, to_slice};
use rtad_core::device::DeviceKey;
use serde::{Deserialize, Serialize, Serializer};
use smallvec::SmallVec;

/// Numbers of a bid's value, in the order of the columns: weight, price of a conversion, price of a
/// click, factor of that price, quality.
pub const NUMBERS: usize = 5;
/// Attributes of a request, in the order of the columns: os, app, slot, region, request type.
pub const ATTRIBUTES: usize = 5;

/// A logged request, as a file has it. Between a worker and the log's thread, its device has no
/// name yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogRow<'a, Name = Device<'a>> {
    /// Facts of the decisions; `None` without decisions, as for an unauthorized caller.
    pub facts: Option<LoggedFacts<'a, Name>>,
    /// The rest.
    #[serde(flatten)]
    pub end: RowEnd<'a>,
}

/// The fields of a row beside its facts, which a worker knows before the end of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RowEnd<'a> {
    /// Time of the answer, in microseconds since 1970.
    pub time: i64,
    /// Time from the request's arrival to its answer, in microseconds.
    pub latency: u32,
    /// Name of the platform; `api` for `/v1/decide`.
    pub platform: &'a str,
    /// The cause of an answer that ignores the ids.
    #[serde(borrow)]
    pub failure: Option<&'a str>,
    /// Probability with which a row of this kind is in the log.
    pub probability: f64,
    /// Whether it is in the sample, whatever else it is logged for.
    pub sampled: bool,
    /// The first 16 hex digits of the SHA-256 of the configuration file.
    pub config: &'a str,
    /// The request itself, where the configuration asks for it.
    #[serde(borrow)]
    pub raw: Option<Raw<'a>>,
}

/// A config that decided about rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedConfig {
    /// Its id in the rows.
    pub id: String,
    /// The config in effect as TOML, without secrets.
    pub text: String,
}

/// The platform's ids of the requested strategies.
pub type AskedIds<'a> = SmallVec<[&'a str; 8]>;
/// A device in all audiences.
pub type AudienceFacts<'a> = SmallVec<[AudienceFact<'a>; 8]>;
/// A device in all experiments.
pub type ExperimentFacts<'a> = SmallVec<[ExperimentFact<'a>; 4]>;
/// The decisions about a device.
pub type DecisionFacts<'a> = SmallVec<[DecisionFact<'a>; 4]>;

/// Facts on which the decisions depend, and the decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedFacts<'a, Name = Device<'a>> {
    /// The request's own id.
    #[serde(borrow)]
    pub request_id: Option<&'a str>,
    /// The device; `None` without a usable id.
    pub device: Option<Name>,
    /// The part of the request's ids that was looked up.
    pub ids: LookedUpIds,
    /// Attributes of the request.
    #[serde(borrow)]
    pub attributes: [Option<&'a str>; ATTRIBUTES],
    /// The platform's ids of the requested strategies; `None` = all.
    #[serde(borrow)]
    pub asked: Option<AskedIds<'a>>,
    /// The device in each audience of the pod; empty without a usable id.
    #[serde(borrow)]
    pub audiences: AudienceFacts<'a>,
    /// The device in each experiment.
    #[serde(borrow)]
    pub experiments: ExperimentFacts<'a>,
    /// A decision per strategy, those in shadow too.
    #[serde(borrow)]
    pub decisions: DecisionFacts<'a>,
}

/// A device, without its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Device<'a> {
    /// The first 16 bytes of the HMAC-SHA256 of its key.
    pub hmac: [u8; 16],
    /// Id of the HMAC's secret.
    pub secret: &'a str,
}

/// The part of a request's ids that was looked up.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub enum LookedUpIds {
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
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
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
    /// Name of the bucket, or `none`.
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
    /// The condition that makes a no-bid: an audience, an attribute, or `EXPERIMENT:BUCKET`.
    #[serde(borrow)]
    pub condition: Option<&'a str>,
    /// Whether it answers nothing.
    pub shadow: bool,
    /// Its cap; `None` without one.
    #[serde(borrow)]
    pub cap: Option<CapFact<'a>>,
    /// Whether its schedule holds; `None` without a schedule.
    pub scheduled: Option<bool>,
    /// Numbers of the bid's value.
    pub numbers: [Option<f64>; NUMBERS],
}

/// A strategy's cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapFact<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it admits the device.
    pub state: CapState,
}

/// State of a cap for a device.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub enum CapState {
    /// It admits the device.
    Admitted,
    /// It is reached.
    Capped,
    /// The pod was granted no more of it.
    NoGrant,
}

/// A request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raw<'a> {
    /// The query string.
    #[serde(borrow)]
    pub query: Option<&'a str>,
    /// The body.
    #[serde(serialize_with = "as_bytes")]
    pub body: &'a [u8],
}

/// Bytes as a whole: a list would cost a call for each.
fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl LookedUpIds {
    /// The word in the files.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl InAudience {
    /// The word in the files.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl CapState {
    /// The word in the files.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A device that the log's thread has not named yet.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct UnnamedDevice<'a>(#[serde(serialize_with = "as_bytes")] &'a [u8]);

/// Hides the key.
impl std::fmt::Debug for UnnamedDevice<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnnamedDevice(hidden)")
    }
}

impl<'a> UnnamedDevice<'a> {
    /// The device of a key.
    pub const fn new(key: &'a DeviceKey) -> Self {
        Self(key.as_bytes())
    }

    /// Its key.
    pub fn key(self) -> DeviceKey {
        DeviceKey::from_bytes(self.0.try_into().expect("a worker wrote 16 bytes"))
    }
}

/// Facts of a row in memory.
pub type UnnamedFacts<'a> = LoggedFacts<'a, UnnamedDevice<'a>>;

/// A row that does not fit into the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the row is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Encodes the facts of a row, its first part, into a buffer. Returns their length.
///
/// # Errors
///
/// [`TooLarge`] if the buffer is too small.
pub fn encode_facts(
    facts: Option<&UnnamedFacts<'_>>,
    buffer: &mut [u8],
) -> Result<usize, TooLarge> {
    encode(&facts, buffer)
}

/// Encodes the rest of a row into a buffer. Returns its length.
///
/// # Errors
///
/// [`TooLarge`] if the buffer is too small.
pub fn encode_end(end: &RowEnd<'_>, buffer: &mut [u8]) -> Result<usize, TooLarge> {
    encode(end, buffer)
}

fn encode(part: &impl Serialize, buffer: &mut [u8]) -> Result<usize, TooLarge> {
    let size = buffer.len();
    // The parts of a row are serializable: a full buffer is the only error.
    let written = to_slice(part, buffer).map_err(|_| TooLarge(size))?;
    Ok(written.len())
}

/// The row of a record.
///
/// # Panics
///
/// At bytes that are no record.
pub(crate) fn decode(record: &[u8]) -> LogRow<'_, UnnamedDevice<'_>> {
    let (facts, rest) = take_from_bytes(record).expect("a worker wrote the facts");
    let (end, _) = take_from_bytes(rest).expect("a worker wrote the rest");
    LogRow { facts, end }
}
