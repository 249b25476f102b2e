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

/// State of a trimmed id before it is hashed.
pub(super) enum Form {
    /// The id is a digest or a placeholder: no hash is needed.
    Known(Result<DeviceKey, Unusable>),
    /// The id needs a hash. An id with the shape of its kind is hashed in its case, any other id as
    /// it is, to distinguish placeholders from malformed ids.
    Unhashed { has_shape: bool },
}

/// Turns ids into keys. Built once; shared by all threads.
#[derive(Debug, Clone, Default)]
pub struct KeyMaker {
    blanks: BlankIds,
}

impl KeyMaker {
    /// A key maker that treats the operator's `extra` ids as blank, besides the built-in set.
    pub fn with_extra_blanks<I: AsRef<str>>(extra: impl IntoIterator<Item = I>) -> Self {
        Self {
            blanks: BlankIds::with_extra(extra),
        }
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
        if self.blanks.contains(&key) {
            Err(Unusable::Blank)
        } else {
            Ok(key)
        }
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
        let cases = [Case::AsIs, Case::Lower, Case::Upper].into_iter();
        append_distinct(cases.map(|case| self.key_in_case(kind, case, id)), keys)
    }

    #[inline]
    fn key_in_case(&self, kind: IdKind, case: Case, id: &[u8]) -> Result<DeviceKey, Unusable> {
        let id = trim(id);
        // The same as `form` finds, without its way through memory: 9 ns of 16.
        if kind == IdKind::Md5
            && let Some(key) = DeviceKey::from_hex(id)
        {
            return self.usable(key);
        }
        match self.form(kind, id) {
            Form::Known(result) => result,
            Form::Unhashed { has_shape } => {
                let case = if has_shape { case } else { Case::AsIs };
                self.hashed(case.apply(id, DeviceKey::of_canonical), has_shape)
            }
        }
    }

    /// The form of a trimmed id.
    #[inline]
    pub(super) fn form(&self, kind: IdKind, id: &[u8]) -> Form {
        if kind == IdKind::Md5 {
            // Hex digits are a placeholder only as a run of one, which is in the set.
            if let Some(key) = DeviceKey::from_hex(id) {
                return Form::Known(self.usable(key));
            }
        }
        if is_placeholder(id) {
            return Form::Known(Err(Unusable::Blank));
        }
        Form::Unhashed {
            has_shape: kind != IdKind::Md5 && kind.has_shape(id),
        }
    }

    /// The result for an id that was hashed.
    #[inline]
    pub(super) fn hashed(&self, hash: DeviceKey, has_shape: bool) -> Result<DeviceKey, Unusable> {
        // Junk such as "null" has the shape of no kind, but counts as blank, not malformed.
        match self.usable(hash) {
            Ok(_) if !has_shape => Err(Unusable::Malformed),
            result => result,
        }
    }
}

/// Trims white space, also that of word processors and web pages: no-break and ideographic spaces,
/// zero-width characters, byte order marks.
#[inline]
pub fn trim(id: &[u8]) -> &[u8] {
    let id = id.trim_ascii();
    match id {
        [first, .., last] if *first >= 0x80 || *last >= 0x80 => trim_unicode(id),
        _ => id,
    }
}

#[cold]
fn trim_unicode(mut id: &[u8]) -> &[u8] {
    const SPACES: [&str; 8] = [
        "\u{a0}", "\u{3000}", "\u{200b}", "\u{200c}", "\u{200d}", "\u{2060}", "\u{feff}",
        "\u{202f}",
    ];
    while let Some(rest) = SPACES
        .iter()
        .find_map(|space| id.strip_prefix(space.as_bytes()))
    {
        id = rest.trim_ascii_start();
    }
    while let Some(rest) = SPACES
        .iter()
        .find_map(|space| id.strip_suffix(space.as_bytes()))
    {
        id = rest.trim_ascii_end();
    }
    id
}

/// Appends the distinct ones of an id's keys; none if the id is unusable in any case.
pub fn append_distinct(
    results: impl Iterator<Item = Result<DeviceKey, Unusable>>,
    keys: &mut Vec<DeviceKey>,
) -> Result<(), Unusable> {
    let start = keys.len();
    for result in results {
        match result {
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
