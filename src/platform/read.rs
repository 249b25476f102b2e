//! A request as data: its ids, the strategies it asks for, and its other fields; values of a
//! request, and the causes why one cannot be read.
//!
//! An adapter fills a [`Read`], the catalog decides about it, and the adapter writes the answer
//! from both. Explanations show the same data. Values are borrowed from the body. They may be
//! device ids, so `Debug` hides them.

use std::fmt::{self, Write as _};

use arrayvec::ArrayString;
use bytes::Bytes;
use rtad_core::device::{IdField, IdKind};
use smallvec::SmallVec;
use strum::VariantArray as _;

use super::ids::{MAX_IDS, MAX_READ_IDS};
use crate::config::MAX_STRATEGIES;
use crate::strategy::{Attribute, AttributeValue, AttributeValues};

/// Strategies or ads that one request may name. Each is looked up, and has a part of the answer.
pub const MAX_ASKED: usize = 1024;

/// A request of a platform: everything that decisions, answers and explanations depend on.
///
/// The lists have room for a usual request without an allocation. An adapter fills the value in
/// place, as moving it would cost more than reading a body.
#[derive(Default)]
pub struct Read<'a> {
    /// The kind of answer that the request expects.
    pub purpose: Purpose,
    /// The request's own id, which the answer repeats.
    pub request_id: Value<'a>,
    /// The device's ids in the order of the adapter, usable or not: at most one more than
    /// [`MAX_READ_IDS`], which shows that there are too many.
    pub ids: SmallVec<[Id<'a>; 12]>,
    /// The strategies that are asked for.
    pub asked: AskedList<'a>,
    /// Attributes that conditions read, by index in [`Attribute::ALL`].
    pub attributes: [Value<'a>; Attribute::ALL.len()],
    /// The kind of id by which the platform caches an answer, if the request names one: it is the
    /// unit of experiments.
    pub cached_kind: Option<IdKind>,
    /// Other fields of the request, for explanations.
    pub notes: SmallVec<[Note<'a>; 4]>,
    /// The first ids whose types the config does not map.
    pub skipped: SmallVec<[SkippedId<'a>; 2]>,
    /// Whether its `os` is not known, and therefore absent.
    pub has_unknown_os: bool,
    /// A failed check that is counted beside the answer: of a signature in `observe` mode, or too
    /// many ids.
    pub observed: Option<Failure>,
    /// The body.
    pub(super) body: Option<&'a Bytes>,
}

/// Hides the contents: ids must not reach a log.
impl fmt::Debug for Read<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read")
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

/// The kind of answer that a request expects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Decisions of strategies.
    #[default]
    Strategies,
    /// A decision per ad: Tencent's second request.
    Ads,
    /// A decision per id, each of which is a device of its own.
    Devices,
    /// A sign of life.
    Ping,
    /// Every strategy's `unavailable` answer: the request is unreadable, or the device is one of
    /// too many.
    Fallback,
}

/// An id as a request carries it.
#[derive(Debug, Clone)]
pub struct Id<'a> {
    /// Path of its field, such as `device.imei_md5sum`.
    pub path: &'a str,
    /// Its field of ids.
    pub field: IdField,
    /// Its value.
    pub value: Value<'a>,
    /// Whether the platform marks it as doubtful. Such an id does not affect the decision.
    pub is_doubtful: bool,
    /// Whether a strategy bids for the device of this id; with [`Purpose::Devices`] only.
    pub is_accepted: bool,
}

/// A requested strategy.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The platform's id of the strategy.
    pub id: Value<'a>,
    /// The configured strategy of this id.
    pub known: Option<Known>,
    /// The ad that it is requested for.
    pub ad: Option<u64>,
}

/// Index among the strategy ids of a platform, of which several may stand for one strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdIndex(pub(super) usize);

/// A configured strategy id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its index.
    pub id: IdIndex,
    /// Index of its strategy in the catalog.
    pub strategy: usize,
}

/// Requested strategies.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is filled in place, without an allocation"
)]
pub enum AskedList<'a> {
    /// Every configured one, as the request names none.
    All(&'a [Asked<'static>]),
    /// Those that the request names.
    Named(SmallVec<[Asked<'a>; 8]>),
}

impl Default for AskedList<'_> {
    fn default() -> Self {
        Self::Named(SmallVec::new())
    }
}

impl<'a> AskedList<'a> {
    /// The requested strategies, in the request's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Asked<'a>> {
        match self {
            Self::All(all) => all.iter(),
            Self::Named(named) => named.iter(),
        }
    }

    /// Whether the request names no strategy.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All(_))
    }
}

/// Another field of a request.
#[derive(Debug, Clone)]
pub struct Note<'a> {
    /// Its name in explanations.
    pub name: &'static str,
    /// Its value.
    pub value: Value<'a>,
}

/// The types of an id that the config does not map.
#[derive(Debug, Clone)]
pub struct SkippedId<'a> {
    /// Path of the id's field.
    pub path: &'a str,
    /// Its type.
    pub kind: Value<'a>,
    /// Its second type.
    pub secure: Value<'a>,
}

/// Path and types, for explanations.
impl fmt::Display for SkippedId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: type {:?}", self.path, self.kind.to_string())?;
        let secure = self.secure.to_string();
        if !secure.is_empty() {
            write!(f, " with secure {secure:?}")?;
        }
        f.write_str(" is not in kinds")
    }
}

impl<'a> Read<'a> {
    /// The configured strategies that it asks for, some more than once.
    #[inline]
    pub fn strategies(&self) -> impl Iterator<Item = usize> {
        let known = self.asked.iter().filter_map(|asked| asked.known);
        known.map(|known| known.strategy)
    }

    /// Its attributes. A blank text is an absent one.
    pub fn attributes(&self) -> AttributeValues<'_> {
        let mut attributes = AttributeValues::default();
        for (found, value) in attributes.iter_mut().zip(&self.attributes) {
            *found = match value {
                Value::Absent => None,
                Value::Int(number) => Some(AttributeValue::Number(*number)),
                Value::Uint(number) => i64::try_from(*number).ok().map(AttributeValue::Number),
                text => {
                    let text = text.bytes().trim_ascii();
                    (!text.is_empty()).then_some(AttributeValue::Text(text))
                }
            };
        }
        attributes
    }

    /// Turns an unreadable request into one for every strategy's `unavailable` answer. What was
    /// read stays for explanations, without the ids.
    pub(super) fn give_up(&mut self, all: &'a StrategyIds) {
        self.purpose = Purpose::Fallback;
        let request_id = std::mem::take(&mut self.request_id);
        if !request_id.is_absent() {
            self.note("request_id", request_id);
        }
        self.ids.clear();
        self.asked = AskedList::All(&all.0);
    }

    /// Whether a decision is about one device of a batch, looked up or not. A request that was
    /// given up has no ids.
    pub fn is_of_batch(&self) -> bool {
        match self.purpose {
            Purpose::Devices => true,
            Purpose::Fallback => !self.ids.is_empty(),
            _ => false,
        }
    }

    /// Adds an id.
    #[inline]
    pub(super) fn add_id(&mut self, id: Id<'a>) {
        if self.ids.len() <= MAX_READ_IDS {
            self.ids.push(id);
        }
    }

    /// Adds an id whose type is not mapped.
    pub(super) fn skip_id(&mut self, skipped: SkippedId<'a>) {
        // A body may hold thousands; `MAX_IDS` of them are enough to see the mistake.
        if self.skipped.len() < MAX_IDS {
            self.skipped.push(skipped);
        }
    }

    /// The request's own id, shared with the body: not copied.
    pub(super) fn shared_request_id(&self) -> Option<Bytes> {
        match (&self.request_id, self.body) {
            (Value::Bytes(part), Some(body)) => Some(body.slice_ref(part)),
            (Value::Absent, _) => None,
            (other, _) => Some(Bytes::copy_from_slice(other.text(&mut Digits::new()))),
        }
    }

    /// Adds another field.
    #[inline]
    pub(super) fn note(&mut self, name: &'static str, value: Value<'a>) {
        self.notes.push(Note { name, value });
    }
}

/// A platform's strategy ids, sorted as text, and the indexes of their strategies.
#[derive(Debug, Clone)]
pub struct StrategyIds(Vec<Asked<'static>>);

impl StrategyIds {
    /// At most [`MAX_STRATEGIES`] ids, and the indexes of their strategies.
    ///
    /// # Panics
    ///
    /// If there are more, which the config's checks prevent.
    pub fn new<I: Into<Value<'static>>>(ids: Vec<(I, usize)>) -> Self {
        assert!(
            ids.len() <= MAX_STRATEGIES,
            "at most {MAX_STRATEGIES} strategies"
        );

        let mut all = Vec::with_capacity(ids.len());
        for (index, (id, strategy)) in ids.into_iter().enumerate() {
            all.push(Asked {
                id: id.into(),
                known: Some(Known {
                    id: IdIndex(index),
                    strategy,
                }),
                ad: None,
            });
        }
        Self(all)
    }

    /// A request for all of them.
    pub(super) fn all(&self) -> AskedList<'_> {
        AskedList::All(&self.0)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Asked<'static>> + Clone {
        self.0.iter()
    }

    /// The id at an index.
    pub fn get(&self, index: IdIndex) -> &Value<'static> {
        &self.0[index.0].id
    }

    /// The first id that is equal. Scans a short list.
    #[inline]
    pub(super) fn find(&self, is_equal: impl Fn(&Value<'static>) -> bool) -> Option<Known> {
        self.0
            .iter()
            .find(|asked| is_equal(&asked.id))
            .and_then(|asked| asked.known)
    }
}

/// Checks the number of requested strategies or ads.
pub const fn check_asked(count: usize) -> Result<(), ReadError> {
    if count <= MAX_ASKED {
        Ok(())
    } else {
        Err(ReadError::TooManyAsked(count))
    }
}

/// A buffer for any 64-bit number in decimal.
pub type Digits = ArrayString<20>;

/// A value.
#[derive(Clone, Default, PartialEq)]
pub enum Value<'a> {
    /// No value.
    #[default]
    Absent,
    /// A signed number.
    Int(i64),
    /// An unsigned number, or a bool as 1 or 0.
    Uint(u64),
    /// A slice of the body.
    Bytes(&'a [u8]),
    /// A text that the body does not contain: a JSON string that had escapes, or one of the config.
    Owned(Box<[u8]>),
}

impl Value<'_> {
    /// Whether there is no value.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The bytes of a text; nothing for numbers.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            _ => b"",
        }
    }

    /// Whether it is this text.
    #[inline]
    pub fn is_text(&self, text: &[u8]) -> bool {
        matches!(self, Self::Bytes(_) | Self::Owned(_)) && self.bytes() == text
    }

    /// The bytes of a string, the decimal digits of a number, or nothing if absent.
    #[inline]
    pub fn text<'v>(&'v self, digits: &'v mut Digits) -> &'v [u8] {
        digits.clear();
        let written = match self {
            Self::Absent => return b"",
            Self::Bytes(bytes) => return bytes,
            Self::Owned(bytes) => return bytes,
            Self::Int(number) => write!(digits, "{number}"),
            Self::Uint(number) => write!(digits, "{number}"),
        };
        written.expect("20 digits hold any 64-bit number");
        digits.as_bytes()
    }

    /// The number, also if written as text.
    pub fn integer(&self) -> Option<i128> {
        match self {
            Self::Absent => None,
            Self::Int(number) => Some((*number).into()),
            Self::Uint(number) => Some((*number).into()),
            Self::Bytes(text) => integer_of(text),
            Self::Owned(text) => integer_of(text),
        }
    }

    /// Whether it is true: a nonzero number, `"true"` or `"1"`.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Absent => false,
            Self::Int(number) => *number != 0,
            Self::Uint(number) => *number != 0,
            Self::Bytes(text) => matches!(*text, b"true" | b"1"),
            Self::Owned(text) => matches!(&**text, b"true" | b"1"),
        }
    }
}

/// A 64-bit number in decimal.
pub fn integer_of(text: &[u8]) -> Option<i128> {
    let number: i128 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (i128::from(i64::MIN)..=i128::from(u64::MAX))
        .contains(&number)
        .then_some(number)
}

/// A decimal number without plus or leading zeros. Strategy ids are compared as text, so another
/// spelling would be another id.
pub fn canonical_integer_of(text: &[u8]) -> Option<i128> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = text == b"0"
        || digits
            .first()
            .is_some_and(|digit| (b'1'..=b'9').contains(digit));
    if is_canonical { integer_of(text) } else { None }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Owned(text.into_bytes().into())
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes())
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// The text, with replacement characters for invalid UTF-8.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.text(&mut Digits::new())))
    }
}

/// Hides the value.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_absent() {
            "Absent"
        } else {
            "Value(hidden)"
        })
    }
}

/// The reason why a request's ids are not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The body is empty. An empty message is valid protobuf, but no platform sends one: it is a
    /// probe, or a request whose body was lost on the way.
    #[error("it is empty")]
    Empty,
    /// The body is not a message of the protocol.
    #[error(transparent)]
    Protobuf(#[from] prost::DecodeError),
    /// The body does not have the mapped form.
    #[error("it is not {0}, or a mapped field has another type")]
    Mapped(&'static str),
    /// The body is compressed, by its header or its first bytes.
    #[error("it is compressed; platforms send it as it is")]
    Encoded,
    /// The request names too many strategies or ads. An answer to some would accept or reject the
    /// others.
    #[error("it names {0} strategies or ads, {MAX_ASKED} are allowed")]
    TooManyAsked(usize),
    /// Another failure.
    #[error("{}", .0.as_str())]
    Failed(Failure),
}

impl ReadError {
    /// The failure that is counted.
    pub const fn failure(&self) -> Failure {
        match self {
            Self::Failed(failure) => *failure,
            Self::Encoded => Failure::BadEncoding,
            _ => Failure::BadBody,
        }
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Cause of an answer that is not based on the request's ids, or not on all of them. Its status is
/// 200 all the same: platforms do not read another one as a no-bid.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum Failure {
    /// The body does not parse.
    BadBody,
    /// The body is compressed.
    BadEncoding,
    /// The body is over `server.max_body`.
    TooLarge,
    /// The body was incomplete or arrived too late.
    BodyLost,
    /// No header carries a configured value.
    Unauthorized,
    /// The signature is missing or wrong.
    BadSignature,
    /// The timestamp is too far from the current time.
    BadTimestamp,
    /// Too many requests in flight.
    Overload,
    /// More than [`MAX_IDS`] usable ids or [`MAX_READ_IDS`] ids. Those up to the
    /// limit can still prove membership.
    TooManyIds,
    /// Internal error of rtad.
    Internal,
}

impl Failure {
    /// All failures, in the order of their counters.
    pub const ALL: [Self; 10] = *Self::VARIANTS.as_array().expect("every variant");

    /// The label value in metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns true for authentication failures. Their answer must not reveal the config.
    pub const fn is_auth_failure(self) -> bool {
        matches!(
            self,
            Self::Unauthorized | Self::BadSignature | Self::BadTimestamp
        )
    }
}

#[cfg(test)]
mod tests {
    use testkit::reference::assert_listed;

    use super::*;

    #[test]
    fn error_reference_lists_every_failure() {
        let rows = Failure::ALL.map(|failure| [failure.as_str().to_owned()]);
        assert_listed("errors.md", "Platform failures", rows);
    }
}
