//! Declared kinds of the ids in a list or a column.

use std::fmt;
use std::str::FromStr;

use rtad_core::device::{Case, IdKind, ParseKindError, Reading, trim};
use rtad_core::synth::Synth;

/// Ids of a kind that must be told from those of the other kinds, most of them.
const SAMPLE_IDS: u64 = 32;

/// The declared kinds, at least one, in the order of [`Reading::NARROWEST_FIRST`]: their order in
/// the text changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kinds(Vec<IdKind>);

/// Kinds that are unknown, or that their ids do not tell apart.
#[derive(Debug, thiserror::Error)]
pub enum KindsError {
    #[error(transparent)]
    Unknown(#[from] ParseKindError),
    #[error(
        "ids of kind {kind} would be read as {by}, which accepts them too: keep the two in inputs \
         or columns of their own"
    )]
    Ambiguous { kind: IdKind, by: IdKind },
}

impl From<IdKind> for Kinds {
    fn from(kind: IdKind) -> Self {
        Self(vec![kind])
    }
}

impl FromStr for Kinds {
    type Err = KindsError;

    /// Parses `KIND[,KIND]`.
    fn from_str(text: &str) -> Result<Self, KindsError> {
        let named: Vec<IdKind> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let mut ordered = Vec::with_capacity(named.len());
        for kind in Reading::NARROWEST_FIRST {
            if named.contains(&kind) {
                ordered.push(kind);
            }
        }
        let kinds = Self(ordered);

        for kind in &kinds.0 {
            let mut others = Vec::new();
            for index in 0..SAMPLE_IDS {
                let id = Synth::new(*kind, 0).id(index);
                let reading = kinds.reading(id.as_bytes());
                if reading.kind != *kind && !has_key_of_uuid(reading, *kind, &id) {
                    others.push(reading.kind);
                }
            }
            if others.len() as u64 * 2 > SAMPLE_IDS {
                return Err(KindsError::Ambiguous {
                    kind: *kind,
                    by: others[0],
                });
            }
        }
        Ok(kinds)
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(IdKind::to_string).collect();
        f.write_str(&names.join(","))
    }
}

impl Kinds {
    /// The kind, if it is the only one.
    #[inline]
    pub fn only(&self) -> Option<IdKind> {
        let [kind] = self.0[..] else { return None };
        Some(kind)
    }

    /// Whether this kind is declared.
    pub fn contains(&self, kind: IdKind) -> bool {
        self.0.contains(&kind)
    }

    /// Whether a kind accepts this id.
    pub fn accept(&self, id: &[u8]) -> bool {
        self.0.iter().any(|kind| kind.has_shape(id))
    }

    /// Whether a UUID may have the keys of two kinds.
    pub fn may_have_two_keys(&self) -> bool {
        let is_any = |kinds: [IdKind; 2]| kinds.iter().any(|kind| self.contains(*kind));
        is_any([IdKind::Idfa, IdKind::Gaid]) && is_any([IdKind::Oaid, IdKind::Openid])
    }

    /// The reading of an id.
    #[inline]
    pub fn reading(&self, id: &[u8]) -> Reading {
        match self.only() {
            Some(kind) => Reading::of(kind),
            None => Reading::among(&self.0, trim(id)),
        }
    }
}

/// Whether a UUID of a kind that keeps its case has its key also as another kind.
fn has_key_of_uuid(reading: Reading, kind: IdKind, id: &str) -> bool {
    let is_uuid = matches!(reading.kind, IdKind::Idfa | IdKind::Gaid);
    let is_unchanged = match reading.case {
        Case::Lower => id.to_ascii_lowercase() == id,
        Case::Upper => id.to_ascii_uppercase() == id,
        Case::AsIs | Case::All => true,
    };
    is_uuid && kind.canonical_case() == Case::AsIs && is_unchanged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_mixed_list_are_told_apart() {
        let kinds: Kinds = "idfa,imei,md5,mac,oaid".parse().unwrap();
        for kind in [IdKind::Idfa, IdKind::Imei, IdKind::Md5, IdKind::Mac] {
            let synth = Synth::new(kind, 1);
            for index in 0..1000 {
                let id = synth.id(index);
                let reading = kinds.reading(format!("\u{3000}{id} ").as_bytes());
                assert_eq!(reading, Reading::of(kind), "{id}");
            }
        }
    }

    #[test]
    fn kinds_of_one_form_are_a_mistake() {
        for (text, kind, by) in [
            ("md5,caid", "caid", "md5"),
            ("caid,md5", "caid", "md5"),
            ("openid,oaid", "openid", "oaid"),
        ] {
            let error = text.parse::<Kinds>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("ids of kind {kind} would be read as {by}")));
        }
        for unknown in ["", "md5,", "imei,imsi", "md5|oaid"] {
            assert!(
                matches!(unknown.parse::<Kinds>(), Err(KindsError::Unknown(_))),
                "{unknown}"
            );
        }
        for accepted in [
            "md5",
            "md5,oaid",
            "idfa,gaid",
            "imei,android_id",
            "imei,oaid",
            "openid,imei",
            "idfa,oaid",
            "gaid,oaid",
            "oaid,caid",
            "openid,caid",
        ] {
            let kinds: Kinds = accepted.parse().unwrap();
            let reversed: Vec<_> = accepted.rsplit(',').collect();
            assert_eq!(reversed.join(",").parse::<Kinds>().unwrap(), kinds);
        }
    }
}
