//! Mapping of a custom platform: the schema of its bodies, and the fields in use.
//!
//! Field names are resolved later, when the platform is built, so they keep their locations.
//!
//! | file | job |
//! |---|---|
//! | `signature` | `[platform.signature]` |
//! | `response` | `[platform.response]` |
//! | `request` | `[platform.request]` |

mod request;
mod response;
mod signature;

use rtad_config::Named;
use rtad_config::values::named;
use serde::{Deserialize, Deserializer, Serialize};

pub use request::{IdListConfig, RequestConfig};
pub use response::{Code, CodeConfig, ResponseConfig, VerdictsConfig};
pub use signature::{Algorithm, SignatureConfig, SignatureMode};

/// Format of the bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyFormat {
    /// Messages of a `.proto`.
    Protobuf,
    /// JSON.
    Json,
    /// Requests in the form of HTML (`application/x-www-form-urlencoded`), or in the query string;
    /// answers in JSON.
    Form,
}

impl BodyFormat {
    /// The word in the config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Protobuf => "protobuf",
            Self::Json => "json",
            Self::Form => "form",
        }
    }
}

/// A path of field names.
fn path<'de, D: Deserializer<'de>, T: From<Named>>(deserializer: D) -> Result<T, D::Error> {
    named(deserializer, "a path of field names, such as device.imei")
}
