//! The bytes of a row between a worker and the log's thread.
//!
//! A record has the key of the device: the log's thread gives it its name in the files. Both belong
//! to one process, so the bytes have no version and are not checked. Numbers are little-endian. A
//! text is its length in 4 bytes and its bytes, a list its length in 2 bytes and its elements; the
//! highest length means that it is absent.

use rtad_core::device::DeviceKey;

use crate::row::{
    AudienceFact, CapState, DecisionFact, ExperimentFact, InAudience, LoggedFacts, LookedUpIds,
    NUMBERS, RowEnd,
};

/// The length of a text that is absent.
const ABSENT: u32 = u32::MAX;
/// The length of a list that is absent.
const NO_LIST: u16 = u16::MAX;

/// A row that does not fit into the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the row is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Writes a part of a record.
struct Encoder<'b> {
    buffer: &'b mut [u8],
    /// Bytes written; more than the buffer's if they did not fit.
    length: usize,
}

impl Encoder<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(to) = self.buffer.get_mut(self.length..end) {
            to.copy_from_slice(bytes);
        }
        self.length = end;
    }

    fn byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    fn text(&mut self, text: Option<&[u8]>) {
        // A longer text does not fit into the buffer either.
        let length = text.map_or(ABSENT, |text| text.len() as u32);
        self.put(&length.to_le_bytes());
        self.put(text.unwrap_or_default());
    }

    fn list<T>(&mut self, list: impl IntoIterator<Item = T>, element: impl Fn(&mut Self, T)) {
        let (at, mut count) = (self.length, 0_u16);
        self.put(&NO_LIST.to_le_bytes());
        for one in list {
            element(self, one);
            count = count.saturating_add(1);
        }
        if count == NO_LIST {
            // The row is refused as a whole: a part of a list would be another fact.
            self.length = usize::MAX / 2;
        }
        if let Some(to) = self.buffer.get_mut(at..at + size_of::<u16>()) {
            to.copy_from_slice(&count.to_le_bytes());
        }
    }

    const fn finish(self) -> Result<usize, TooLarge> {
        if self.length > self.buffer.len() {
            return Err(TooLarge(self.buffer.len()));
        }
        Ok(self.length)
    }
}

/// Encodes a row without facts, its first part, into a buffer. Returns the length.
///
/// # Errors
///
/// [`TooLarge`] if the buffer is too small.
pub fn encode_no_facts(buffer: &mut [u8]) -> Result<usize, TooLarge> {
    let mut to = Encoder { buffer, length: 0 };
    to.byte(0);
    to.finish()
}

impl<'a, Asked, Audiences, Experiments, Decisions>
    LoggedFacts<'a, DeviceKey, Asked, Audiences, Experiments, Decisions>
where
    Asked: IntoIterator<Item = &'a str>,
    Audiences: IntoIterator<Item = AudienceFact<'a>>,
    Experiments: IntoIterator<Item = ExperimentFact<'a>>,
    Decisions: IntoIterator<Item = DecisionFact<'a>>,
{
    /// Encodes the facts of a row, its first part, into a buffer. Returns their length. Costs a
    /// copy of the texts.
    ///
    /// # Errors
    ///
    /// [`TooLarge`] if the buffer is too small.
    pub fn encode(self, buffer: &mut [u8]) -> Result<usize, TooLarge> {
        let mut to = Encoder { buffer, length: 0 };
        to.byte(1);
        to.text(self.request_id.map(str::as_bytes));
        to.byte(self.device.is_some().into());
        if let Some(key) = &self.device {
            to.put(key.as_bytes());
        }
        to.byte(self.ids as u8);
        for attribute in self.attributes {
            to.text(attribute.map(str::as_bytes));
        }
        match self.asked {
            Some(asked) => to.list(asked, |to, id| to.text(Some(id.as_bytes()))),
            None => to.put(&NO_LIST.to_le_bytes()),
        }
        to.list(self.audiences, |to, fact| {
            to.text(Some(fact.name.as_bytes()));
            to.byte(fact.member as u8);
            to.byte(fact.value.map_or(0, |value| value + 1));
            // No generation is 0.
            to.put(&fact.generation.unwrap_or(0).to_le_bytes());
        });
        to.list(self.experiments, |to, fact| {
            to.text(Some(fact.name.as_bytes()));
            to.put(&fact.rule.to_le_bytes());
            to.text(Some(fact.bucket.as_bytes()));
            to.byte(fact.slots.is_some().into());
            for slot in fact.slots.into_iter().flatten() {
                to.put(&slot.to_le_bytes());
            }
        });
        to.list(self.decisions, |to, fact| {
            to.text(Some(fact.strategy.as_bytes()));
            to.text(Some(fact.reason.as_bytes()));
            let scheduled = fact.scheduled.map_or(0, |holds| 1 + u8::from(holds));
            let cap = fact.cap.map_or(0, |cap| 1 + cap as u8);
            to.byte(u8::from(fact.bid) | u8::from(fact.shadow) << 1 | scheduled << 2 | cap << 4);
            let known = fact.numbers.iter().rev();
            to.byte(known.fold(0, |bits, number| bits << 1 | u8::from(number.is_some())));
            for number in fact.numbers.into_iter().flatten() {
                to.put(&number.to_le_bytes());
            }
        });
        to.finish()
    }
}

impl RowEnd<'_> {
    /// Encodes the rest of a row into a buffer. Returns its length. Costs a copy of its texts.
    ///
    /// # Errors
    ///
    /// [`TooLarge`] if the buffer is too small.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, TooLarge> {
        let mut to = Encoder { buffer, length: 0 };
        to.put(&self.time.to_le_bytes());
        to.put(&self.latency.to_le_bytes());
        to.text(Some(self.platform.as_bytes()));
        to.text(self.failure.map(str::as_bytes));
        to.put(&self.probability.to_le_bytes());
        to.byte(self.sampled.into());
        to.text(Some(self.config.as_bytes()));
        to.text(self.raw.and_then(|raw| raw.query).map(str::as_bytes));
        to.text(self.raw.map(|raw| raw.body));
        to.finish()
    }
}

/// Reads a record in the order in which it was written.
///
/// # Panics
///
/// At bytes that are no record.
pub(crate) struct Decoder<'r>(&'r [u8]);

impl<'r> Decoder<'r> {
    pub(crate) const fn new(record: &'r [u8]) -> Self {
        Self(record)
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .expect("a worker wrote the record");
        self.0 = rest;
        *taken
    }

    pub(crate) fn device(&mut self) -> Option<DeviceKey> {
        (self.byte() != 0).then(|| DeviceKey::from_bytes(self.take()))
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.take())
    }

    pub(crate) fn f64(&mut self) -> f64 {
        f64::from_le_bytes(self.take())
    }

    #[inline]
    pub(crate) fn text(&mut self) -> Option<&'r [u8]> {
        let length = self.u32();
        if length == ABSENT {
            return None;
        }
        let (text, rest) = self.0.split_at(length as usize);
        self.0 = rest;
        Some(text)
    }

    /// The length of a list; `None` if it is absent.
    pub(crate) fn list(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take())).filter(|length| *length != NO_LIST)
    }

    pub(crate) fn ids(&mut self) -> LookedUpIds {
        LookedUpIds::ALL[usize::from(self.byte())]
    }

    pub(crate) fn member(&mut self) -> InAudience {
        InAudience::ALL[usize::from(self.byte())]
    }

    pub(crate) fn verdict(&mut self) -> VerdictBits {
        let bits = self.byte();
        VerdictBits {
            bid: bits & 1 != 0,
            shadow: bits & 2 != 0,
            scheduled: (bits >> 2 & 3).checked_sub(1).map(|holds| holds != 0),
            cap: (bits >> 4)
                .checked_sub(1)
                .map(|cap| CapState::ALL[usize::from(cap)]),
        }
    }

    pub(crate) fn numbers(&mut self) -> [Option<f64>; NUMBERS] {
        let known = self.byte();
        std::array::from_fn(|index| (known >> index & 1 != 0).then(|| self.f64()))
    }
}

/// The parts of a decision that take a byte together.
pub(crate) struct VerdictBits {
    pub(crate) bid: bool,
    pub(crate) shadow: bool,
    pub(crate) scheduled: Option<bool>,
    pub(crate) cap: Option<CapState>,
}
