//! Schema lookup: the column of each name, and the form of its values.

use std::sync::Arc;

use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type};
use parquet::errors::ParquetError;
use parquet::schema::types::{self, ColumnDescriptor, SchemaDescriptor};

use super::super::arrow::ValueForm;
use super::super::layout::Column;
use super::super::{csv, member};
use super::caught::caught;
use super::fault::ParquetFault;

/// A selected column.
#[derive(Debug)]
pub struct Leaf {
    /// Index among all leaf columns.
    pub index: usize,
    pub form: ValueForm,
    /// Those of a schema with this column alone.
    pub levels: FieldLevels,
}

/// Finds a column by its path.
pub fn find(schema: &SchemaDescriptor, column: &Column) -> Result<Leaf, ParquetFault> {
    let path = member::path(&column.name);
    let mut found =
        (0..schema.num_columns()).filter(|index| schema.column(*index).path().parts() == path);

    match (found.next(), found.next()) {
        (Some(index), None) => {
            let descriptor = schema.column(index);
            let form = form(&descriptor).map_err(|found| refused(column, found))?;
            let levels = caught(|| levels(&descriptor))
                .map_err(|reason| ParquetFault::Metadata { reason })?;
            Ok(Leaf {
                index,
                form,
                levels,
            })
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
                    let member = member::written(schema.column(index).path().parts());
                    Err(refused(
                        column,
                        format!("a group of columns, such as \"{member}\""),
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

/// The form of a column's values, or the name of an unsupported type.
fn form(column: &ColumnDescriptor) -> Result<ValueForm, String> {
    let physical = column.physical_type();
    let logical = column.logical_type_ref();
    if column.max_rep_level() > 0 {
        return Err("in a list or a map".to_owned());
    }

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
    let is_plain = logical.is_none() && column.converted_type() == C::NONE;
    let is_integer = match logical {
        Some(logical) => matches!(logical, LogicalType::Integer(_)),
        None => matches!(
            column.converted_type(),
            C::NONE
                | C::INT_8
                | C::INT_16
                | C::INT_32
                | C::INT_64
                | C::UINT_8
                | C::UINT_16
                | C::UINT_32
                | C::UINT_64
        ),
    };

    match physical {
        Type::INT32 | Type::INT64 if is_integer => Ok(ValueForm::Text),
        // Nulls alone: pandas has no other type for a part of which no row has an id.
        Type::INT32 if is_of_nulls(column) => Ok(ValueForm::Text),
        Type::BYTE_ARRAY if is_plain => Ok(ValueForm::Binary),
        Type::BYTE_ARRAY if is_text => Ok(ValueForm::Text),
        Type::FIXED_LEN_BYTE_ARRAY if column.type_length() < 1 => Err(type_name(column)),
        Type::FIXED_LEN_BYTE_ARRAY if matches!(logical, Some(LogicalType::Uuid)) => {
            Ok(ValueForm::Uuid)
        }
        Type::FIXED_LEN_BYTE_ARRAY if is_plain => Ok(ValueForm::Binary),
        Type::FIXED_LEN_BYTE_ARRAY if is_text => Ok(ValueForm::Text),
        _ => Err(type_name(column)),
    }
}

/// The name of an unsupported type, for messages.
fn type_name(column: &ColumnDescriptor) -> String {
    let physical = column.physical_type();
    let annotation = match (column.logical_type_ref(), column.converted_type()) {
        (Some(logical), _) => format!("{logical:?}"),
        (None, ConvertedType::NONE) => return physical.to_string(),
        (None, converted) => converted.to_string(),
    };
    // The name without its parameters.
    let name = annotation.split('(').next().unwrap_or_default();
    format!("{physical} ({name})")
}

fn is_of_nulls(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Unknown))
}

/// The levels of a column alone. Texts are read as bytes, because one that is no UTF-8 is a
/// rejected value rather than a corrupt file.
fn levels(column: &ColumnDescriptor) -> Result<FieldLevels, ParquetError> {
    let leaf = column.self_type_ptr();
    let mut group_levels = column.max_def_level();
    if leaf.is_optional() {
        group_levels -= 1;
    }
    let mut field = match column.physical_type() {
        Type::INT32 | Type::INT64 if !is_of_nulls(column) => leaf,
        physical => {
            let bytes = types::Type::primitive_type_builder(leaf.name(), physical)
                .with_repetition(leaf.get_basic_info().repetition())
                .with_length(column.type_length());
            Arc::new(bytes.build()?)
        }
    };

    // Each optional group around it has a level of its own.
    for _ in 0..group_levels {
        let group = types::Type::group_type_builder("group")
            .with_repetition(Repetition::OPTIONAL)
            .with_fields(vec![field]);
        field = Arc::new(group.build()?);
    }
    let root = types::Type::group_type_builder("schema").with_fields(vec![field]);
    let schema = SchemaDescriptor::new(Arc::new(root.build()?));
    parquet_to_arrow_field_levels(&schema, ProjectionMask::all(), None)
}

fn names(schema: &SchemaDescriptor) -> String {
    match schema.num_columns() {
        0 => "none".to_owned(),
        count => {
            let columns = schema.columns().iter();
            csv::listed(columns.map(|it| member::written(it.path().parts())), count)
        }
    }
}
