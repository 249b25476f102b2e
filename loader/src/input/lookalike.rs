//! Lookalikes: ids that their declared kind accepts, and that have the form of another kind.
//!
//! An md5 declared as an OAID is hashed again, and an IMEI declared as an Android id is hashed
//! without its own rules. No device has such a key, so one column of a wrong kind loses all its
//! devices. Single ids prove nothing: some kinds overlap. A majority of an input does.

use rtad_core::device::{IdKind, trim};

/// A declared kind, and the kind that its ids look like.
pub type Lookalike = (IdKind, IdKind);

/// Every pair that [`lookalike`] finds.
pub const LOOKALIKES: [Lookalike; 9] = [
    (IdKind::Oaid, IdKind::Md5),
    (IdKind::Openid, IdKind::Md5),
    (IdKind::Imei, IdKind::AndroidId),
    (IdKind::AndroidId, IdKind::Imei),
    (IdKind::AndroidId, IdKind::Mac),
    (IdKind::Oaid, IdKind::Imei),
    (IdKind::Oaid, IdKind::Mac),
    (IdKind::Caid, IdKind::Idfa),
    (IdKind::Caid, IdKind::Imei),
];

/// The other kind that an id of this kind looks like. CAIDs always look like md5s, and IDFAs like
/// GAIDs, so these are no lookalikes.
#[inline]
pub fn lookalike(kind: IdKind, id: &[u8]) -> Option<IdKind> {
    let id = trim(id);
    let is_decimal = || id.iter().all(u8::is_ascii_digit);
    let (other, is_other) = match (kind, id.len()) {
        (IdKind::Oaid | IdKind::Openid, 32) => (IdKind::Md5, IdKind::Md5.has_shape(id)),
        // Serial numbers of 16 digits are decimal.
        (IdKind::Imei, 16) => (IdKind::AndroidId, !is_decimal()),
        (IdKind::AndroidId | IdKind::Oaid | IdKind::Caid, 15) => (IdKind::Imei, is_decimal()),
        // An Android id loses four zeros at its start once in 65,536 ids.
        (IdKind::AndroidId, 12) => (IdKind::Mac, true),
        (IdKind::Oaid, 17) => (IdKind::Mac, IdKind::Mac.has_shape(id)),
        (IdKind::Caid, 36) => (IdKind::Idfa, IdKind::Idfa.has_shape(id)),
        _ => return None,
    };
    is_other.then_some(other)
}

#[cfg(test)]
mod tests {
    use rtad_core::synth::Synth;

    use super::*;

    #[test]
    fn ids_of_a_kind_are_no_lookalikes_of_another() {
        for kind in IdKind::ALL {
            let ids = (0..1000).map(|index| Synth::new(kind, 7).id(index));
            assert_eq!(
                ids.filter(|id| lookalike(kind, id.as_bytes()).is_some())
                    .count(),
                0,
                "{kind}"
            );
        }
    }

    #[test]
    fn ids_of_the_other_kind_are_found() {
        for (kind, other) in LOOKALIKES {
            let ids = (0..1000).map(|index| Synth::new(other, 7).id(index));
            let ids = ids.map(|id| {
                if kind == IdKind::AndroidId {
                    id.replace(':', "")
                } else {
                    id
                }
            });
            let accepted: Vec<_> = ids.filter(|id| kind.has_shape(id.as_bytes())).collect();
            assert_eq!(accepted.len(), 1000, "{kind} {other}");
            let found = accepted
                .iter()
                .filter(|id| lookalike(kind, id.as_bytes()) == Some(other));
            assert!(found.count() * 2 > accepted.len(), "{kind} {other}");
        }
    }
}
