//! Fields of device ids: the kind of an id, and whether it arrives hashed.

use super::kind::IdKind;

/// An id field: its name in requests, the config and metrics, and the kind its value is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdField(u8);

/// Names and kinds of the fields: nine kinds, and all but md5 hashed as well. A raw field has the
/// index of its kind.
const FIELDS: [(&str, IdKind); 17] = [
    raw(IdKind::Md5),
    raw(IdKind::Idfa),
    raw(IdKind::Imei),
    raw(IdKind::Oaid),
    raw(IdKind::AndroidId),
    raw(IdKind::Mac),
    raw(IdKind::Caid),
    raw(IdKind::Gaid),
    raw(IdKind::Openid),
    hashed("idfa_md5"),
    hashed("imei_md5"),
    hashed("oaid_md5"),
    hashed("android_id_md5"),
    hashed("mac_md5"),
    hashed("caid_md5"),
    hashed("gaid_md5"),
    hashed("openid_md5"),
];

const fn raw(kind: IdKind) -> (&'static str, IdKind) {
    (kind.as_str(), kind)
}

const fn hashed(name: &'static str) -> (&'static str, IdKind) {
    (name, IdKind::Md5)
}

impl IdField {
    /// Every field a device may have. A raw field has the name and the index of its kind. A hashed
    /// field has that name with `_md5`.
    pub const ALL: [Self; FIELDS.len()] = {
        let mut all = [Self(0); FIELDS.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = Self(index as u8);
            index += 1;
        }
        all
    };

    /// The field of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == name)
    }

    /// The same as [`IdField::named`], for constants.
    ///
    /// # Panics
    ///
    /// There is no such field; the panic is at compile time.
    pub const fn at(name: &str) -> Self {
        let mut index = 0;
        while index < FIELDS.len() {
            if same(FIELDS[index].0.as_bytes(), name.as_bytes()) {
                return Self::ALL[index];
            }
            index += 1;
        }
        panic!("no such field")
    }

    /// Its index in [`IdField::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The kind that the field's value is read as: md5 if it is a hash.
    #[inline]
    pub const fn kind(self) -> IdKind {
        FIELDS[self.index()].1
    }

    /// The kind of the id, also if the value is its hash.
    #[inline]
    pub const fn id_kind(self) -> IdKind {
        let raw = IdKind::ALL.len();
        // The hashed fields follow the raw ones in their order, without md5 itself.
        IdKind::ALL[if self.index() < raw {
            self.index()
        } else {
            self.index() - raw + 1
        }]
    }

    /// The name in a request and the label in metrics.
    pub const fn as_str(self) -> &'static str {
        FIELDS[self.index()].0
    }
}

/// The raw field of a kind.
impl From<IdKind> for IdField {
    fn from(kind: IdKind) -> Self {
        Self(kind as u8)
    }
}

/// `==` for constants: slice comparison is not `const`.
const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut index = 0;
    while index < a.len() {
        if a[index] != b[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASHED_OAID: IdField = IdField::at("oaid_md5");

    #[test]
    fn each_raw_field_has_the_index_of_its_kind() {
        for kind in IdKind::ALL {
            assert_eq!(IdField::ALL[kind as usize].kind(), kind);
            assert_eq!(IdField::named(kind.as_str()), Some(kind.into()));
        }
        for field in IdField::ALL {
            assert_eq!(
                field.as_str().trim_end_matches("_md5"),
                field.id_kind().as_str()
            );
        }
        assert_eq!(
            IdField::named("imei_md5").map(IdField::kind),
            Some(IdKind::Md5)
        );
        assert_eq!(IdField::named("IMEI"), None);
        assert_eq!(Some(HASHED_OAID), IdField::named("oaid_md5"));
    }
}
