//! Device ids and the one key they all become.
//!
//! A platform names a device by many ids (IDFA, IMEI, OAID, …), raw or hashed, in several
//! spellings. All of them end as one [`DeviceKey`]: the md5 of the id's canonical form. Two places
//! must agree on that form to the byte, the loader and the service, so both come here.
//!
//! Ids are personal data even when hashed: nothing in this module prints one, and `Debug` of a key
//! hides it.
//!
//! This module does *not* know about files, filters or requests.

mod blank;
mod field;
mod kind;

pub use blank::BlankIds;
pub use field::IdField;
pub use kind::{Case, IdKind, ParseCaseError, ParseKindError};

use md5::{Digest, Md5};

/// Number of shards: one per value of a key's first 16 bits.
pub const SHARDS: usize = 1 << 16;

/// The md5 of a canonical device id: 16 bytes, the only key in the system.
///
/// Two devices collide with probability 2⁻¹²⁸ per pair, so the key stands for the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey([u8; 16]);

impl DeviceKey {
    /// Wraps the 16 bytes of an md5 that was computed elsewhere.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The key of an id that is already in canonical form. Costs one md5: about 80 ns for 36 bytes.
    #[inline]
    pub fn of_canonical(id: &[u8]) -> Self {
        Self(Md5::digest(id).into())
    }

    /// Reads 32 hex digits of either case; anything else is `None`.
    #[inline]
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let digits: &[u8; 32] = hex.try_into().ok()?;
        // The decoder also takes a "0x" prefix, but never in exactly 32 bytes that are all digits.
        if digits[1] == b'x' {
            return None;
        }
        const_hex::decode_to_array(digits).ok().map(Self)
    }

    /// The 16 bytes of the md5.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Which of the 65,536 shards holds this key: its first two bytes, big-endian, so the first
    /// four hex digits.
    #[inline]
    pub const fn shard(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }
}

/// Hides the value: a key identifies a person as well as the id it was made from.
impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceKey(hidden)")
    }
}

/// Why an id does not become a key. Neither is an error: such ids are counted and left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unusable {
    /// The id stands for "no id": zeros, `null`, an unexpanded macro, or the md5 of one of those.
    Blank,
    /// The id cannot be of the stated kind, such as an md5 that is not 32 hex digits.
    Malformed,
}

impl Unusable {
    /// The word used in metrics and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Malformed => "malformed",
        }
    }
}

/// Turns ids into keys. Built once; shared by all threads.
#[derive(Debug, Clone, Default)]
pub struct KeyMaker {
    blanks: BlankIds,
}

impl KeyMaker {
    /// A key maker that also leaves out the operator's own `extra` blank ids, besides the built-in
    /// ones.
    pub fn with_extra_blanks<I: AsRef<str>>(extra: impl IntoIterator<Item = I>) -> Self {
        Self { blanks: BlankIds::with_extra(extra) }
    }

    /// The key of an id as it came from outside, in the kind's own canonical case.
    ///
    /// # Errors
    ///
    /// [`Unusable`] says why there is no key.
    #[inline]
    pub fn key(&self, kind: IdKind, id: &[u8]) -> Result<DeviceKey, Unusable> {
        self.key_in_case(kind, kind.canonical_case(), id)
    }

    /// Passes a key that was made elsewhere, unless it is that of a blank id.
    ///
    /// # Errors
    ///
    /// [`Unusable::Blank`].
    #[inline]
    pub fn usable(&self, key: DeviceKey) -> Result<DeviceKey, Unusable> {
        if self.blanks.contains(&key) { Err(Unusable::Blank) } else { Ok(key) }
    }

    /// The keys of an id in every case that `case` names, each once; one key unless `case` is
    /// [`Case::All`].
    ///
    /// # Errors
    ///
    /// [`Unusable`] if the id is blank or malformed; its case makes no difference to that.
    pub fn keys(
        &self,
        kind: IdKind,
        case: Case,
        id: &[u8],
        keys: &mut Vec<DeviceKey>,
    ) -> Result<(), Unusable> {
        if case != Case::All || kind == IdKind::Md5 {
            keys.push(self.key_in_case(kind, case, id)?);
            return Ok(());
        }
        let start = keys.len();
        for case in [Case::AsIs, Case::Lower, Case::Upper] {
            let key = self.key_in_case(kind, case, id)?;
            if !keys[start..].contains(&key) {
                keys.push(key);
            }
        }
        Ok(())
    }

    #[inline]
    fn key_in_case(&self, kind: IdKind, case: Case, id: &[u8]) -> Result<DeviceKey, Unusable> {
        let id = id.trim_ascii();
        let key = if kind == IdKind::Md5 {
            DeviceKey::from_hex(id)
        } else {
            kind.has_shape(id).then(|| case.apply(id, DeviceKey::of_canonical))
        };
        match key {
            Some(key) if self.blanks.contains(&key) || blank::is_run_of_one(id) => {
                Err(Unusable::Blank)
            }
            Some(key) => Ok(key),
            // Junk such as "null" has no kind's shape, yet it says "no id", not "a broken id".
            None if self.blanks.contains(&DeviceKey::of_canonical(id))
                || blank::is_run_of_one(id) =>
            {
                Err(Unusable::Blank)
            }
            None => Err(Unusable::Malformed),
        }
    }
}

#[cfg(test)]
mod tests;
