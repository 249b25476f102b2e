//! The schema of a file.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::errors::ParquetError;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;

/// Version of the schema, in each file's metadata under `rtad.log.version`. A column that is added
/// keeps it; one that is removed, or means something else, raises it.
pub const VERSION: &str = "1";
/// Key of the version.
pub const VERSION_KEY: &str = "rtad.log.version";
/// Key of a config, before its id.
pub const CONFIG_KEY: &str = "rtad.config.";

const SCHEMA: &str = "
message decision {
  required int64 time (TIMESTAMP(MICROS, true));
  required int32 latency_us;
  required binary platform (STRING);
  optional binary failure (STRING);
  required double probability;
  required boolean sampled;
  required binary config (STRING);
  optional binary request_id (STRING);
  optional fixed_len_byte_array(16) device;
  optional binary secret (STRING);
  optional binary ids (STRING);
  optional binary os (STRING);
  optional binary app (STRING);
  optional binary slot (STRING);
  optional binary region (STRING);
  optional binary request_type (STRING);
  optional group asked (LIST) { repeated group list { required binary element (STRING); } }
  required group audiences (LIST) { repeated group list { required group element {
    required binary name (STRING);
    optional int64 generation (INTEGER(64, false));
    required binary member (STRING);
    optional int32 value;
  } } }
  required group experiments (LIST) { repeated group list { required group element {
    required binary name (STRING);
    required int32 rule (INTEGER(32, false));
    required binary bucket (STRING);
    optional int32 layer_slot;
    optional int32 bucket_slot;
  } } }
  required group decisions (LIST) { repeated group list { required group element {
    required binary strategy (STRING);
    required boolean bid;
    required binary reason (STRING);
    optional binary condition (STRING);
    required boolean shadow;
    optional binary cap (STRING);
    optional binary cap_name (STRING);
    optional boolean scheduled;
    optional double weight;
    optional double cpa_price;
    optional double cpc_price;
    optional double cpc_factor;
    optional double quality;
  } } }
  optional binary query (STRING);
  optional binary body;
}";

/// The schema.
pub fn schema() -> Result<SchemaDescriptor, ParquetError> {
    let schema = parse_message_type(SCHEMA)?;
    Ok(SchemaDescriptor::new(Arc::new(schema)))
}

/// The types of Arrow of its columns.
pub fn columns_of(schema: &SchemaDescriptor) -> Result<SchemaRef, ParquetError> {
    Ok(Arc::new(parquet_to_arrow_schema(schema, None)?))
}
