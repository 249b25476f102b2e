//! Fields of device ids: the kind of an id, and whether it arrives hashed.

use super::kind::IdKind;

/// Nine kinds, and all but md5 hashed as well.
const FIELDS: usize = 17;

/// An id field: its name in requests, the config and metrics, and the kind its value is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdField {
    name: &'static str,
    /// The kind that the field's value is read as: md5 if it is a hash.
    pub kind: IdKind,
}

impl IdField {
    /// Every field a device may have. A raw field has the name and the index of its kind. A hashed
    /// field has that name with `_md5`.
    pub const ALL: [Self; FIELDS] = [
        Self::raw(IdKind::Md5),
        Self::raw(IdKind::Idfa),
        Self::raw(IdKind::Imei),
        Self::raw(IdKind::Oaid),
        Self::raw(IdKind::AndroidId),
        Self::raw(IdKind::Mac),
        Self::raw(IdKind::Caid),
        Self::raw(IdKind::Gaid),
        Self::raw(IdKind::Openid),
        Self::hashed("idfa_md5"),
        Self::hashed("imei_md5"),
        Self::hashed("oaid_md5"),
        Self::hashed("android_id_md5"),
        Self::hashed("mac_md5"),
        Self::hashed("caid_md5"),
        Self::hashed("gaid_md5"),
        Self::hashed("openid_md5"),
    ];

    const fn raw(kind: IdKind) -> Self {
        Self { name: kind.as_str(), kind }
    }

    const fn hashed(name: &'static str) -> Self {
        Self { name, kind: IdKind::Md5 }
    }

    /// The index in [`IdField::ALL`] of the field of that name.
    pub fn named(name: &str) -> Option<usize> {
        Self::ALL.iter().position(|field| field.name == name)
    }

    /// The same as [`IdField::named`], for constants.
    ///
    /// # Panics
    ///
    /// There is no such field; the panic is at compile time.
    pub const fn at(name: &str) -> usize {
        let mut index = 0;
        while index < Self::ALL.len() {
            if same(Self::ALL[index].name.as_bytes(), name.as_bytes()) {
                return index;
            }
            index += 1;
        }
        panic!("no such field")
    }

    /// The name in a request and the label in metrics.
    pub const fn as_str(&self) -> &'static str {
        self.name
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

    const HASHED_OAID: usize = IdField::at("oaid_md5");

    #[test]
    fn each_raw_field_has_the_index_of_its_kind() {
        for kind in IdKind::ALL {
            assert_eq!(IdField::ALL[kind as usize].kind, kind);
            assert_eq!(IdField::named(kind.as_str()), Some(kind as usize));
        }
        assert_eq!(
            IdField::named("imei_md5").map(|field| IdField::ALL[field].kind),
            Some(IdKind::Md5)
        );
        assert_eq!(IdField::named("IMEI"), None);
        assert_eq!(Some(HASHED_OAID), IdField::named("oaid_md5"));
    }
}
