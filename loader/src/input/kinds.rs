//! Declared kinds of the ids in a list or a column.

use std::fmt;
use std::str::FromStr;

use rtad_core::device::{Case, IdKind, ParseKindError, trim};
use rtad_core::synth::Synth;

use super::lookalike::lookalike;

/// Ids of a kind that must be told from those of the other kinds, most of them.
const SAMPLE_IDS: u64 = 32;

/// The declared kinds, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kinds(Vec<IdKind>);

/// Kinds that are unknown, or that their ids do not tell apart.
#[derive(Debug, thiserror::Error)]
pub enum KindsError {
    #[error(transparent)]
    Unknown(#[from] ParseKindError),
    #[error(
        "ids of kind {kind} would be read as {by}, which accepts them too: name {kind} before \
         {by}, or keep the two in inputs or columns of their own"
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
        let kinds = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let kinds = Self(kinds);
        for kind in &kinds.0 {
            let ids = (0..SAMPLE_IDS).map(|index| Synth::new(*kind, 0).id(index));
            let others: Vec<_> = ids
                .map(|id| kinds.of(id.as_bytes()))
                .filter(|found| found != kind)
                .collect();
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
    /// The first kind.
    pub fn first(&self) -> IdKind {
        self.0[0]
    }

    /// The kind of an id: the first that accepts it as it is, otherwise the first that accepts it
    /// in another case; another declared kind if it looks like that.
    #[inline]
    pub fn of(&self, id: &[u8]) -> IdKind {
        let [kind] = self.0[..] else {
            return self.by_form(trim(id));
        };
        kind
    }

    fn by_form(&self, id: &[u8]) -> IdKind {
        let accepts = |kind: &&IdKind| kind.has_shape(id);
        // Only its case tells an IDFA from a GAID, and from an OAID that is a UUID.
        let is_canonical = |kind: &&IdKind| match kind.canonical_case() {
            Case::Upper => !id.iter().any(u8::is_ascii_lowercase),
            Case::Lower => !id.iter().any(u8::is_ascii_uppercase),
            Case::AsIs | Case::All => true,
        };
        let mut accepting = self.0.iter().filter(accepts);
        let canonical = accepting.clone().find(is_canonical);
        let first = *canonical.or_else(|| accepting.next()).unwrap_or(&self.0[0]);
        lookalike(first, id)
            .filter(|other| self.0.contains(other))
            .unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_mixed_list_are_told_apart() {
        let kinds: Kinds = "idfa,imei,md5,mac,oaid".parse().unwrap();
        for kind in [
            IdKind::Idfa,
            IdKind::Imei,
            IdKind::Oaid,
            IdKind::Md5,
            IdKind::Mac,
        ] {
            let synth = Synth::new(kind, 1);
            for index in 0..1000 {
                let id = synth.id(index);
                assert_eq!(kinds.of(format!("\u{3000}{id} ").as_bytes()), kind, "{id}");
            }
        }
        // An IDFA in lower case, where no other kind accepts it.
        let kinds: Kinds = "idfa,imei".parse().unwrap();
        assert_eq!(
            kinds.of(b"fe699f7e-9d6d-445d-8486-7f19c69c37bc"),
            IdKind::Idfa
        );
    }

    #[test]
    fn kinds_of_one_form_are_a_mistake() {
        for (text, kind, by) in [
            ("md5,caid", "caid", "md5"),
            ("oaid,idfa", "idfa", "oaid"),
            ("oaid,caid", "caid", "oaid"),
            ("caid,oaid", "oaid", "caid"),
            ("openid,mac", "mac", "openid"),
            ("gaid,oaid", "oaid", "gaid"),
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
            "oaid,md5",
            "idfa,gaid",
            "imei,android_id",
            "imei,oaid",
        ] {
            accepted.parse::<Kinds>().unwrap();
        }
    }
}
