//! Values of ids: Arrow arrays, NumPy arrays and lists, a batch at a time.
//!
//! A value is what the loader's parsers get of a Parquet file: text, or the 16 bytes of a digest. A
//! null is empty text, which is blank. Integers are their digits.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    StringArray, make_array,
};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_cast::cast;
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyInt, PyList, PyString};
use pyo3_arrow::input::AnyArray;

use rtad_core::device::{DeviceKey, IdKind, KeyDigest, KeyMaker, Unusable};

/// Rows whose keys are made together: their keys fit the second-level cache.
const BATCH_ROWS: usize = 8192;
/// Bytes of a digest.
const DIGEST_BYTES: usize = 16;

/// Arrays of ids, one after the other.
pub type Arrays = Box<dyn Iterator<Item = Result<ArrayRef, ArrowError>> + Send>;

/// A column of ids, or a table.
pub struct IdColumn {
    pub(crate) arrays: Arrays,
    pub(crate) field: FieldRef,
    pub(crate) form: ValueForm,
}

/// Form of the values of binary arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// Text, or digests if they have 16 bytes and the kind is md5.
    Binary,
    /// UUIDs: text, or digests if the kind is md5.
    Uuid,
    /// Text followed by zero bytes, as NumPy has it.
    Padded,
}

/// A batch of values.
pub struct IdBatch {
    texts: TextBatch,
    /// Whether values of 16 bytes are digests.
    has_digests: bool,
}

/// A batch of texts, without copies where Arrow has them as bytes.
pub struct TextBatch {
    array: Binaries,
    is_padded: bool,
}

enum Binaries {
    Small(BinaryArray),
    Large(LargeBinaryArray),
    View(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
}

impl IdColumn {
    /// Reads an object of `rtad._ids`: one that exports Arrow, the bytes, width and padding of a
    /// NumPy array, or a list.
    pub fn read(ids: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(list) = ids.cast::<PyList>() {
            return Ok(Self::of(listed(list)?, ValueForm::Binary));
        }
        if let Ok((bytes, width, is_padded)) = ids.extract::<(PyBackedBytes, i32, bool)>() {
            let array = FixedSizeBinaryArray::try_new(width, Buffer::from(&bytes[..]), None);
            let array = array.map_err(|error| PyValueError::new_err(error.to_string()))?;
            let form = if is_padded {
                ValueForm::Padded
            } else {
                ValueForm::Binary
            };
            return Ok(Self::of(Arc::new(array), form));
        }
        let reader = ids.extract::<AnyArray>()?.into_reader()?;
        let field = reader.field();
        let form = match field.data_type() {
            DataType::Struct(_) => ValueForm::Binary,
            _ => form_of(&field)?,
        };
        Ok(Self {
            arrays: Box::new(reader),
            field,
            form,
        })
    }

    /// Reads an object with one column.
    pub fn read_column(ids: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Self {
            arrays,
            field,
            form,
        } = Self::read(ids)?;
        let DataType::Struct(columns) = field.data_type() else {
            return Ok(Self {
                arrays,
                field,
                form,
            });
        };
        let [column] = &columns[..] else {
            return Err(PyTypeError::new_err(format!(
                "ids: a table: expected one column, found {}",
                columns.len()
            )));
        };
        let (field, form) = (Arc::clone(column), form_of(column)?);
        let column = |table: ArrayRef| column_of(&table, 0);
        let arrays = Box::new(arrays.map(move |table| table.and_then(column)));
        Ok(Self {
            arrays,
            field,
            form,
        })
    }

    fn of(array: ArrayRef, form: ValueForm) -> Self {
        let field = Arc::new(Field::new("", array.data_type().clone(), true));
        Self {
            arrays: Box::new(std::iter::once(Ok(array))),
            field,
            form,
        }
    }

    /// Passes all values to `each`, a batch at a time.
    pub fn each_batch(
        self,
        kind: IdKind,
        mut each: impl FnMut(&IdBatch),
    ) -> Result<(), ArrowError> {
        for array in self.arrays {
            let array = array?;
            for start in (0..array.len()).step_by(BATCH_ROWS) {
                let rows = BATCH_ROWS.min(array.len() - start);
                each(&IdBatch::of(&array.slice(start, rows), self.form, kind)?);
            }
        }
        Ok(())
    }
}

impl TextBatch {
    /// The texts of an array: digests as hex digits.
    pub fn of(array: &ArrayRef, form: ValueForm, kind: IdKind) -> Result<Self, ArrowError> {
        let IdBatch { texts, has_digests } = IdBatch::of(array, form, kind)?;
        if !has_digests {
            return Ok(texts);
        }
        let rows = array.len();
        let mut hex = BinaryBuilder::with_capacity(rows, rows * 2 * DIGEST_BYTES);
        let mut digits = [0; 2 * DIGEST_BYTES];
        for row in 0..rows {
            let text = texts.text(row);
            match text.len() == DIGEST_BYTES
                && const_hex::encode_to_slice(text, &mut digits).is_ok()
            {
                true => hex.append_value(digits),
                false => hex.append_value(text),
            }
        }
        Ok(Self {
            array: Binaries::Small(hex.finish()),
            is_padded: false,
        })
    }

    /// The text of a row; empty for a null.
    pub fn text(&self, row: usize) -> &[u8] {
        let text = match &self.array {
            Binaries::Small(array) if array.is_valid(row) => array.value(row),
            Binaries::Large(array) if array.is_valid(row) => array.value(row),
            Binaries::View(array) if array.is_valid(row) => array.value(row),
            Binaries::Fixed(array) if array.is_valid(row) => array.value(row),
            _ => &[],
        };
        if self.is_padded {
            without_padding(text)
        } else {
            text
        }
    }
}

impl IdBatch {
    fn of(array: &ArrayRef, form: ValueForm, kind: IdKind) -> Result<Self, ArrowError> {
        let is_md5 = kind == IdKind::Md5;
        let array = match array.data_type() {
            DataType::Dictionary(_, value) => cast(array, value)?,
            _ => Arc::clone(array),
        };
        let is_binary = matches!(
            array.data_type(),
            DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        );
        let has_digests = is_md5 && is_binary && form != ValueForm::Padded;
        let array = match array.data_type() {
            DataType::Utf8 => Binaries::Small(array.as_string::<i32>().clone().into()),
            DataType::LargeUtf8 => Binaries::Large(array.as_string::<i64>().clone().into()),
            DataType::Utf8View => Binaries::View(array.as_string_view().clone().to_binary_view()),
            DataType::Binary => Binaries::Small(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Binaries::Large(array.as_binary::<i64>().clone()),
            DataType::BinaryView => Binaries::View(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) if form == ValueForm::Uuid && !is_md5 => {
                Binaries::Small(uuids(array.as_fixed_size_binary()).into())
            }
            DataType::FixedSizeBinary(_) => Binaries::Fixed(array.as_fixed_size_binary().clone()),
            // Integers and columns of nulls alone.
            _ => Binaries::Small(
                cast(&array, &DataType::Utf8)?
                    .as_string::<i32>()
                    .clone()
                    .into(),
            ),
        };
        Ok(Self {
            texts: TextBatch {
                array,
                is_padded: form == ValueForm::Padded,
            },
            has_digests,
        })
    }

    /// Appends the key of each usable value. Calls `each` once per value, in order.
    pub fn keys(
        &self,
        maker: &KeyMaker,
        kind: (KeyDigest, IdKind),
        keys: &mut Vec<DeviceKey>,
        each: impl FnMut(Result<(), Unusable>),
    ) {
        match &self.texts.array {
            Binaries::Small(array) => self.keys_of(array.iter(), maker, kind, keys, each),
            Binaries::Large(array) => self.keys_of(array.iter(), maker, kind, keys, each),
            Binaries::View(array) => self.keys_of(array.iter(), maker, kind, keys, each),
            Binaries::Fixed(array) => self.keys_of(array.iter(), maker, kind, keys, each),
        }
    }

    fn keys_of<'v>(
        &self,
        values: impl Iterator<Item = Option<&'v [u8]>>,
        maker: &KeyMaker,
        kind: (KeyDigest, IdKind),
        keys: &mut Vec<DeviceKey>,
        mut each: impl FnMut(Result<(), Unusable>),
    ) {
        let (digest, kind) = kind;
        let values = values.map(Option::unwrap_or_default);
        if self.has_digests {
            for value in values {
                let key = match value.try_into() {
                    Ok(digest) => maker.usable(DeviceKey::from_bytes(digest)),
                    Err(_) => maker.key_in(digest, kind, value),
                };
                each(key.map(|key| keys.push(key)));
            }
            return;
        }
        let is_padded = self.texts.is_padded;
        let values = values.map(|value| {
            if is_padded {
                without_padding(value)
            } else {
                value
            }
        });
        maker.keys_of_many(digest, kind, values, keys, each);
    }
}

/// A column of a table. A null row of a bare struct array is null in each column, though its values
/// are still there.
pub fn column_of(table: &ArrayRef, index: usize) -> Result<ArrayRef, ArrowError> {
    let table = table.as_struct();
    let column = table.column(index);
    if table.null_count() == 0 || column.data_type() == &DataType::Null {
        return Ok(Arc::clone(column));
    }
    let nulls = NullBuffer::union(table.nulls(), column.nulls());
    Ok(make_array(
        column.to_data().into_builder().nulls(nulls).build()?,
    ))
}

/// The form of a column's values.
pub fn form_of(field: &Field) -> PyResult<ValueForm> {
    let found = field.data_type();
    let of_values = match found {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    let is_accepted = match of_values {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::FixedSizeBinary(_) | DataType::Null => true,
        other => other.is_integer(),
    };
    if !is_accepted {
        return Err(PyTypeError::new_err(format!(
            "column {:?} is of type {found}: expected text, binary, fixed binary or integers, or a \
             dictionary of them",
            field.name()
        )));
    }
    let extension = field.metadata().get(EXTENSION_TYPE_NAME_KEY);
    let is_uuid = extension.is_some_and(|name| name == "arrow.uuid");
    Ok(if is_uuid {
        ValueForm::Uuid
    } else {
        ValueForm::Binary
    })
}

/// The array of a list.
fn listed(list: &Bound<'_, PyList>) -> PyResult<ArrayRef> {
    let mut values: Vec<Option<ListValue>> = Vec::with_capacity(list.len());
    for value in list {
        values.push(ListValue::of(&value)?);
    }
    let is_text = |value: &Option<ListValue>| matches!(value, Some(ListValue::Text(_)));
    let is_binary = |value: &Option<ListValue>| matches!(value, Some(ListValue::Binary(_)));
    let bytes = || {
        values
            .iter()
            .map(|value| value.as_ref().map(ListValue::as_bytes))
    };
    match (values.iter().any(is_text), values.iter().any(is_binary)) {
        (true, true) => Err(PyTypeError::new_err(
            "ids: a list of text and bytes: expected ids of one type",
        )),
        (false, _) => Ok(Arc::new(bytes().collect::<BinaryArray>())),
        (true, false) => {
            let text = bytes().map(|value| value.map(String::from_utf8_lossy));
            Ok(Arc::new(text.collect::<StringArray>()))
        }
    }
}

/// A value of a list.
enum ListValue {
    Text(String),
    Binary(PyBackedBytes),
}

impl ListValue {
    /// `None` and NaN are nulls, as in pandas.
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Some(Self::Text(text.to_cow()?.into_owned())));
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Some(Self::Binary(bytes.clone().into())));
        }
        if value.is_instance_of::<PyInt>() {
            return Ok(Some(Self::Text(value.str()?.to_cow()?.into_owned())));
        }
        if value.is_none() || value.ne(value)? {
            return Ok(None);
        }
        Err(PyTypeError::new_err(format!(
            "ids: a value of type {}: expected str, bytes, int or None",
            value.get_type().name()?
        )))
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

fn without_padding(value: &[u8]) -> &[u8] {
    let end = value
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    &value[..end]
}

/// The texts of UUIDs, as Parquet inputs have them.
fn uuids(array: &FixedSizeBinaryArray) -> StringArray {
    let mut texts = StringBuilder::with_capacity(array.len(), array.len() * 36);
    for uuid in array {
        texts.append_option(uuid.map(uuid_text));
    }
    texts.finish()
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or_default());
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or_default());
    }
    text
}
