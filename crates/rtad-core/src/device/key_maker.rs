//! Conversion of device ids to keys: trims, checks the shape, filters blank ids and hashes.

use super::blank::{BlankIds, is_placeholder};
use super::key::DeviceKey;
use super::kind::{Case, IdKind};

/// Reason why an id has no key. Not an error: such ids are counted and skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unusable {
    /// The id stands for "no id": zeros, `null`, an unexpanded macro, or the md5 of one of those.
    Blank,
    /// The id does not have the shape of its kind, such as an md5 that is not 32 hex digits.
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
    /// A key maker that treats the operator's `extra` ids as blank, besides the built-in set.
    pub fn with_extra_blanks<I: AsRef<str>>(extra: impl IntoIterator<Item = I>) -> Self {
        Self { blanks: BlankIds::with_extra(extra) }
    }

    /// The key of an id as received, in the kind's canonical case.
    ///
    /// # Errors
    ///
    /// [`Unusable`] if the id is blank or malformed.
    #[inline]
    pub fn key(&self, kind: IdKind, id: &[u8]) -> Result<DeviceKey, Unusable> {
        self.key_in_case(kind, kind.canonical_case(), id)
    }

    /// Rejects a key that was computed elsewhere if it is the key of a blank id.
    ///
    /// # Errors
    ///
    /// [`Unusable::Blank`].
    #[inline]
    pub fn usable(&self, key: DeviceKey) -> Result<DeviceKey, Unusable> {
        if self.blanks.contains(&key) { Err(Unusable::Blank) } else { Ok(key) }
    }

    /// Appends the distinct keys of an id in `case`: one key, or up to three for [`Case::All`].
    ///
    /// # Errors
    ///
    /// [`Unusable`] if the id is blank or malformed, in any case. Then no key is appended.
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
            match self.key_in_case(kind, case, id) {
                Ok(key) if keys[start..].contains(&key) => {}
                Ok(key) => keys.push(key),
                Err(unusable) => {
                    keys.truncate(start);
                    return Err(unusable);
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn key_in_case(&self, kind: IdKind, case: Case, id: &[u8]) -> Result<DeviceKey, Unusable> {
        let id = id.trim_ascii();
        let key = if kind == IdKind::Md5 {
            // Hex digits are a placeholder only as a run of one, which is in the set.
            if let Some(key) = DeviceKey::from_hex(id) {
                return self.usable(key);
            }
            None
        } else {
            kind.has_shape(id).then(|| case.apply(id, DeviceKey::of_canonical))
        };
        match key {
            Some(key) if self.blanks.contains(&key) || is_placeholder(id) => Err(Unusable::Blank),
            Some(key) => Ok(key),
            // Junk such as "null" has the shape of no kind, but counts as blank, not malformed.
            None if self.blanks.contains(&DeviceKey::of_canonical(id)) || is_placeholder(id) => {
                Err(Unusable::Blank)
            }
            None => Err(Unusable::Malformed),
        }
    }
}
