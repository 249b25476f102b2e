//! Ids in Arrow arrays: the text of each, or the bytes of a digest.
//!
//! The columns of Parquet files and those of the Python package's tables are Arrow arrays. A null
//! is empty text, which is blank. Integers are their digits. The bytes of an md5 and those of a
//! UUID become text. Every format and the Python package have this one rule: of kind md5, 16 bytes
//! of a column that is not declared as text are a digest, unless they are printable text.

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    StringArray, StructArray, make_array,
};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{ArrowError, DataType, Field};
use rtad_core::device::{DeviceKey, IdKind, KeyMaker, Reading, Unusable, digest_key};

use super::kinds::Kinds;

/// Name of the extension type of text that is followed by zero bytes, as NumPy has it.
pub const PADDED_TEXT: &str = "rtad.padded";
const UUID: &str = "arrow.uuid";
const ANY_UUID: &[u8] = b"00000000-0000-0000-0000-000000000000";
const DIGEST_BYTES: usize = 16;

/// Hexadecimal digits of a digest.
pub type HexDigits = [u8; 2 * DIGEST_BYTES];

/// Meaning of a column's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// Text, or numbers.
    Text,
    /// Text, or digests if they have 16 bytes and a kind is md5.
    Binary,
    /// UUIDs: text if a kind accepts it, else digests if a kind is md5.
    Uuid,
    /// Text followed by zero bytes, or digests whose last bytes may be zero.
    Padded,
}

/// A column whose values are no ids.
#[derive(Debug, thiserror::Error)]
#[error(
    "column {column:?} is of type {found}: expected text, binary, fixed binary or integers, or a \
     dictionary of them"
)]
pub struct UnsupportedType {
    column: String,
    found: DataType,
}

/// The ids of an array, without copies where Arrow has them as bytes.
#[derive(Debug)]
pub struct IdArray {
    values: Values,
    form: ValueForm,
    has_digests: bool,
}

/// The keys that were made of an id.
#[derive(Debug, Clone, Copy)]
pub struct MadeKeys {
    /// Its row in the array.
    pub row: usize,
    /// The kind that it was read as.
    pub kind: IdKind,
    /// Their number: one, or more of a UUID that may be of two kinds.
    pub keys: Result<usize, Unusable>,
}

#[derive(Debug)]
enum Values {
    Small(BinaryArray),
    Large(LargeBinaryArray),
    View(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
}

impl ValueForm {
    /// The form of a column's values.
    ///
    /// # Errors
    ///
    /// The column has other values than ids.
    pub fn of(field: &Field) -> Result<Self, UnsupportedType> {
        let value_type = match field.data_type() {
            DataType::Dictionary(_, values) => values,
            other => other,
        };
        let extension = field.metadata().get(EXTENSION_TYPE_NAME_KEY);

        match value_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
                Ok(Self::Text)
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => match extension.map(String::as_str) {
                Some(UUID) => Ok(Self::Uuid),
                Some(PADDED_TEXT) => Ok(Self::Padded),
                _ => Ok(Self::Binary),
            },
            integer if integer.is_integer() => Ok(Self::Text),
            _ => Err(UnsupportedType {
                column: field.name().clone(),
                found: field.data_type().clone(),
            }),
        }
    }
}

impl IdArray {
    /// The ids of an array whose type [`ValueForm::of`] accepts.
    ///
    /// # Errors
    ///
    /// The array has another type, or is invalid.
    pub fn new(array: &ArrayRef, form: ValueForm, kinds: &Kinds) -> Result<Self, ArrowError> {
        if let DataType::Dictionary(_, value_type) = array.data_type() {
            return Self::new(&cast(array, value_type)?, form, kinds);
        }

        let has_digests = match form {
            ValueForm::Text => false,
            ValueForm::Binary | ValueForm::Padded => kinds.contains(IdKind::Md5),
            ValueForm::Uuid => kinds.contains(IdKind::Md5) && !kinds.accept(ANY_UUID),
        };
        let values = match array.data_type() {
            DataType::Utf8 => Values::Small(array.as_string::<i32>().clone().into()),
            DataType::LargeUtf8 => Values::Large(array.as_string::<i64>().clone().into()),
            DataType::Utf8View => Values::View(array.as_string_view().clone().to_binary_view()),
            DataType::Binary => Values::Small(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Values::Large(array.as_binary::<i64>().clone()),
            DataType::BinaryView => Values::View(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) if form == ValueForm::Uuid && !has_digests => {
                Values::Small(uuid_texts(array.as_fixed_size_binary()).into())
            }
            DataType::FixedSizeBinary(_) => Values::Fixed(array.as_fixed_size_binary().clone()),
            // Integers and columns of nulls alone.
            _ => {
                let digits = cast(array, &DataType::Utf8)?;
                Values::Small(digits.as_string::<i32>().clone().into())
            }
        };
        Ok(Self {
            values,
            form,
            has_digests,
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::Small(array) => array.len(),
            Values::Large(array) => array.len(),
            Values::View(array) => array.len(),
            Values::Fixed(array) => array.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of a row; empty for a null.
    #[inline]
    fn raw(&self, row: usize) -> &[u8] {
        match &self.values {
            Values::Small(array) if array.is_valid(row) => array.value(row),
            Values::Large(array) if array.is_valid(row) => array.value(row),
            Values::View(array) if array.is_valid(row) => array.value(row),
            Values::Fixed(array) if array.is_valid(row) => array.value(row),
            _ => &[],
        }
    }

    /// The text of a row; empty for a null.
    #[inline]
    pub fn bytes(&self, row: usize) -> &[u8] {
        let bytes = self.raw(row);
        if self.form == ValueForm::Padded {
            without_padding(bytes)
        } else {
            bytes
        }
    }

    /// The digest of a row that has one.
    #[inline]
    fn digest(&self, row: usize) -> Option<DeviceKey> {
        if !self.has_digests {
            return None;
        }
        match self.form {
            ValueForm::Uuid => Some(DeviceKey::from_bytes(*self.raw(row).as_array()?)),
            _ => digest_key(self.raw(row)),
        }
    }

    /// Appends the keys of all ids. Calls `each` once per id, in order.
    pub fn append_keys(
        &self,
        maker: &KeyMaker,
        kinds: &Kinds,
        keys: &mut Vec<DeviceKey>,
        mut each: impl FnMut(MadeKeys),
    ) {
        let mut row = 0;
        let mut next = |kind, keys| {
            each(MadeKeys { row, kind, keys });
            row += 1;
        };

        if let Some(kind) = kinds.only()
            && !self.has_digests
        {
            let texts = (0..self.len()).map(|row| self.bytes(row));
            maker.keys_of_many(kind, texts, keys, |made| next(kind, made.map(|()| 1)));
            return;
        }

        for row in 0..self.len() {
            if let Some(digest) = self.digest(row) {
                let made = maker.usable(digest).map(|key| keys.push(key));
                next(IdKind::Md5, made.map(|()| 1));
                continue;
            }
            let Reading { kind, case } = kinds.reading(self.bytes(row));
            let before = keys.len();
            let made = maker.keys(kind, case, self.bytes(row), keys);
            next(kind, made.map(|()| keys.len() - before));
        }
    }

    /// The text of a row; empty for a null. That of a digest is written into `digits`.
    #[inline]
    pub fn text<'a>(&'a self, row: usize, digits: &'a mut HexDigits) -> &'a [u8] {
        if let Some(digest) = self.digest(row)
            && const_hex::encode_to_slice(digest.as_bytes(), digits).is_ok()
        {
            return digits;
        }
        self.bytes(row)
    }
}

/// A column of a table. A null row is null in each column, though its values are still there.
///
/// # Errors
///
/// The column is invalid.
pub fn column_of(table: &StructArray, index: usize) -> Result<ArrayRef, ArrowError> {
    let column = table.column(index);
    if table.null_count() == 0 || column.data_type() == &DataType::Null {
        return Ok(column.clone());
    }
    let nulls = NullBuffer::union(table.nulls(), column.nulls());
    let data = column.to_data().into_builder().nulls(nulls).build()?;
    Ok(make_array(data))
}

fn without_padding(bytes: &[u8]) -> &[u8] {
    let mut text = bytes;
    while let Some((0, before)) = text.split_last() {
        text = before;
    }
    text
}

fn uuid_texts(array: &FixedSizeBinaryArray) -> StringArray {
    let mut texts = StringBuilder::with_capacity(array.len(), array.len() * 36);
    for uuid in array {
        texts.append_option(uuid.map(uuid_text));
    }
    texts.finish()
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = const_hex::encode(bytes);
    // From the last, so that the others keep their places.
    for dash in [20, 16, 12, 8] {
        if dash < text.len() {
            text.insert(dash, '-');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{DictionaryArray, Int64Array};

    use super::*;

    fn texts(array: ArrayRef, form: ValueForm, kind: IdKind) -> Vec<String> {
        let ids = IdArray::new(&array, form, &kind.into()).unwrap();
        let mut texts = Vec::new();
        for row in 0..ids.len() {
            let text = ids.text(row, &mut [0; 32]).to_vec();
            texts.push(String::from_utf8(text).unwrap());
        }
        texts
    }

    fn fixed(bytes: &[u8; 16]) -> ArrayRef {
        let values = [Some(bytes), None].into_iter();
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 16).unwrap())
    }

    #[test]
    fn numbers_and_dictionaries_are_text_and_nulls_are_blank() {
        let numbers = Int64Array::from(vec![Some(868_049_039_501_257), None, Some(-1)]);
        assert_eq!(
            texts(Arc::new(numbers), ValueForm::Text, IdKind::Imei),
            ["868049039501257", "", "-1"]
        );
        let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        assert_eq!(
            texts(Arc::new(words), ValueForm::Text, IdKind::Openid),
            ["a", "b", "a"]
        );
    }

    #[test]
    fn sixteen_bytes_are_a_digest_only_of_kind_md5() {
        let digest = fixed(b"xyz3456789abcde\xef");
        let hex = "78797a333435363738396162636465ef";
        assert_eq!(texts(digest, ValueForm::Binary, IdKind::Md5), [hex, ""]);
        let text = fixed(b"xyz3456789abcdef");
        let hex = "78797a33343536373839616263646566";
        assert_eq!(texts(text.clone(), ValueForm::Uuid, IdKind::Md5), [hex, ""]);
        for (form, kind) in [
            (ValueForm::Text, IdKind::Md5),
            (ValueForm::Padded, IdKind::Md5),
            (ValueForm::Binary, IdKind::Md5),
            (ValueForm::Binary, IdKind::Openid),
        ] {
            assert_eq!(texts(text.clone(), form, kind), ["xyz3456789abcdef", ""]);
        }
    }

    /// As every other format reads it: the line end of a text is no part of a digest.
    #[test]
    fn text_of_sixteen_bytes_in_a_binary_column_has_its_own_key() {
        let maker = KeyMaker::default();
        for (kinds, text, kind) in [
            ("md5,imei", b"868049039501257\r", IdKind::Imei),
            ("md5,openid", b"user_00000000_07", IdKind::Openid),
        ] {
            let kinds: Kinds = kinds.parse().unwrap();
            for form in [ValueForm::Binary, ValueForm::Padded] {
                let ids = IdArray::new(&fixed(text), form, &kinds).unwrap();
                let mut keys = Vec::new();
                ids.append_keys(&maker, &kinds, &mut keys, |_| ());
                assert_eq!(keys, [maker.key(kind, text).unwrap()], "{kinds} {form:?}");
            }
        }
    }

    #[test]
    fn uuids_of_md5_and_another_kind_are_text_if_it_accepts_them() {
        for (kinds, found) in [
            ("md5,oaid", "abababab-abab-abab-abab-abababababab"),
            ("md5,imei", "abababababababababababababababab"),
        ] {
            let kinds: Kinds = kinds.parse().unwrap();
            let ids = IdArray::new(&fixed(&[0xab; 16]), ValueForm::Uuid, &kinds).unwrap();
            assert_eq!(ids.text(0, &mut [0; 32]), found.as_bytes(), "{kinds}");
        }
    }

    #[test]
    fn padded_digests_may_end_in_zeros() {
        let digest = fixed(b"\x8d\x3e\xbd\x36\x54\xfb\x46\xa2\x83\x22\x96\x66\x9c\xf1\xb5\0");
        let hex = "8d3ebd3654fb46a2832296669cf1b500";
        assert_eq!(texts(digest, ValueForm::Padded, IdKind::Md5), [hex, ""]);
        let word = fixed(b"null\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(texts(word, ValueForm::Padded, IdKind::Md5), ["null", ""]);
    }

    #[test]
    fn uuids_and_padded_values_are_text() {
        assert_eq!(
            texts(fixed(&[0xab; 16]), ValueForm::Uuid, IdKind::Oaid),
            ["abababab-abab-abab-abab-abababababab", ""]
        );
        assert_eq!(
            texts(
                fixed(b"id\0x\0\0\0\0\0\0\0\0\0\0\0\0"),
                ValueForm::Padded,
                IdKind::Openid
            ),
            ["id\0x", ""]
        );
    }

    #[test]
    fn null_rows_of_a_table_are_null_in_its_columns() {
        let field = Arc::new(Field::new("id", DataType::Utf8, true));
        let ids: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("b"), None]));
        let nulls = NullBuffer::from(vec![true, false, true]);
        let table = StructArray::new(vec![field].into(), vec![ids], Some(nulls));
        let column = column_of(&table, 0).unwrap();
        assert_eq!(
            texts(column, ValueForm::Text, IdKind::Openid),
            ["a", "", ""]
        );
    }
}
