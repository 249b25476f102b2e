//! Schema lookup: the column of each name, and the conversion of its values to the text of ids.

use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use rtad_core::device::IdKind;

use super::super::layout::Column;
use super::super::{csv, member};
use super::fault::ParquetFault;

/// Conversion of a value to text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The bytes are the text.
    Text,
    /// A number, written as its digits.
    Digits { signed: bool },
    /// The 16 bytes of an md5, written as 32 hex digits.
    Digest,
    /// 16 bytes, written as a UUID.
    Uuid,
}

/// A selected column.
#[derive(Debug)]
pub struct Leaf {
    /// Index among all leaf columns.
    pub(super) index: usize,
    pub(super) form: Form,
}

/// The selected columns, in the order of `columns`.
pub fn find(schema: &SchemaDescriptor, columns: &[Column]) -> Result<Vec<Leaf>, ParquetFault> {
    columns
        .iter()
        .map(|column| find_one(schema, column))
        .collect()
}

fn find_one(schema: &SchemaDescriptor, column: &Column) -> Result<Leaf, ParquetFault> {
    let path = member::path(&column.name);
    let named = |index: &usize| schema.column(*index).path().parts() == path;
    let mut found = (0..schema.num_columns()).filter(named);
    match (found.next(), found.next()) {
        (Some(index), None) => {
            let descriptor = schema.column(index);
            let form =
                form(&descriptor, column.kinds.first()).map_err(|found| refused(column, found))?;
            Ok(Leaf { index, form })
        }
        (Some(_), Some(_)) => Err(ParquetFault::ColumnTwice {
            column: column.name.clone(),
        }),
        (None, _) => {
            let inside = (0..schema.num_columns())
                .find(|index| schema.column(*index).path().parts().starts_with(&path));
            match inside {
                // A list or a map has a group inside that repeats.
                Some(index) if schema.column(index).max_rep_level() > 0 => {
                    Err(refused(column, "a list or a map".to_owned()))
                }
                Some(index) => {
                    let member = schema.column(index).path().parts().join(".");
                    Err(refused(
                        column,
                        format!("a group of columns, such as {member:?}"),
                    ))
                }
                None => Err(ParquetFault::Column {
                    column: column.name.clone(),
                    found: names(schema),
                }),
            }
        }
    }
}

fn refused(column: &Column, found: String) -> ParquetFault {
    ParquetFault::ColumnType {
        column: column.name.clone(),
        found,
    }
}

/// The conversion of a column's type, or the name of an unsupported type.
fn form(column: &ColumnDescriptor, kind: IdKind) -> Result<Form, String> {
    let (physical, logical) = (column.physical_type(), column.logical_type_ref());
    if column.max_rep_level() > 0 {
        return Err("in a list or a map".to_owned());
    }
    let type_name = || match logical {
        // The name without its parameters.
        Some(logical) => {
            let logical = format!("{logical:?}");
            format!(
                "{physical} ({})",
                logical.split('(').next().unwrap_or_default()
            )
        }
        None => match column.converted_type() {
            ConvertedType::NONE => physical.to_string(),
            converted => format!("{physical} ({converted})"),
        },
    };
    use ConvertedType as C;
    let is_text = matches!(
        logical,
        None | Some(
            LogicalType::String | LogicalType::Enum | LogicalType::Json | LogicalType::Unknown
        )
    ) && matches!(
        column.converted_type(),
        C::NONE | C::UTF8 | C::ENUM | C::JSON
    );
    let signed = match (logical, column.converted_type()) {
        (Some(LogicalType::Integer(integer)), _) => Some(integer.is_signed),
        (None, C::UINT_8 | C::UINT_16 | C::UINT_32 | C::UINT_64) => Some(false),
        (None, C::NONE | C::INT_8 | C::INT_16 | C::INT_32 | C::INT_64) => Some(true),
        _ => None,
    };
    match (physical, signed) {
        (Type::INT32 | Type::INT64, Some(signed)) => Ok(Form::Digits { signed }),
        (Type::FIXED_LEN_BYTE_ARRAY, _) if column.type_length() < 1 => Err(type_name()),
        (Type::FIXED_LEN_BYTE_ARRAY, _) if column.type_length() == 16 => match logical {
            None if kind == IdKind::Md5 && column.converted_type() == C::NONE => Ok(Form::Digest),
            Some(LogicalType::Uuid) if kind == IdKind::Md5 => Ok(Form::Digest),
            Some(LogicalType::Uuid) => Ok(Form::Uuid),
            _ if is_text => Ok(Form::Text),
            _ => Err(type_name()),
        },
        (Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY, _) if is_text => Ok(Form::Text),
        _ => Err(type_name()),
    }
}

fn names(schema: &SchemaDescriptor) -> String {
    match schema.num_columns() {
        0 => "none".to_owned(),
        count => {
            let name = |index| schema.column(index).path().parts().join(".");
            csv::listed((0..count).map(name), count)
        }
    }
}
