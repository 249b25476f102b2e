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

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use request::{IdListConfig, RequestConfig};
pub use response::{CodeConfig, ResponseConfig, StrategiesAs, VerdictsConfig};
pub use signature::{Algorithm, HexCase, SignatureConfig, SignatureMode, TimestampUnit};

use crate::config::mistake::Named;
use crate::config::reader::{Document, Section};
use crate::config::values::word;

/// The keys of a mapping that could be read.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct CustomConfig {
    /// Format of the request and response bodies.
    pub body: Option<Body>,
    /// Schema of the bodies. Required for `protobuf`, unknown for `json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto: Option<Named>,
    /// Path of [`Self::proto`], resolved against the config's folder.
    #[serde(skip)]
    pub proto_path: PathBuf,
    /// Full name of the request message. Required for `protobuf`, unknown for `json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_message: Option<Named>,
    /// Full name of the response message. Required for `protobuf`, unknown for `json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_message: Option<Named>,
    /// Fields of the request, see `[platform.request]`.
    pub request: RequestConfig,
    /// Fields of the response, see `[platform.response]`.
    pub response: ResponseConfig,
    /// Signature of the request, see `[platform.signature]`; unset = signatures are not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<SignatureConfig>,
    /// Whether `request`, `response` and `signature` have no mistakes so far.
    #[serde(skip)]
    pub is_whole: bool,
}

/// Format of the bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// Messages of a `.proto`.
    Protobuf,
    /// JSON.
    Json,
}

const REQUEST: &str = "[platform.request] with request_id, strategies, ids and so on";
const RESPONSE: &str = "[platform.response] with code, verdicts, accepted and so on";
const SIGNATURE: &str = "[platform.signature] with algorithm, template and so on";

pub(super) fn read(d: &mut Document<'_>, section: &mut Section) -> CustomConfig {
    let body = section.read_required(d, "body", "protobuf or json", word);
    let (mut proto, mut request_message, mut response_message) = (None, None, None);
    match body {
        Some(Body::Protobuf) => {
            let message = "a message's full name";
            proto = section.read_required_named(d, "proto", "a .proto file, beside this one");
            request_message = section.read_required_named(d, "request_message", message);
            response_message = section.read_required_named(d, "response_message", message);
        }
        Some(Body::Json) => {}
        None => {
            // The keys are known for either format.
            for key in ["proto", "request_message", "response_message"] {
                let _ = section.read(d, key, "", |_| Some(()));
            }
        }
    }
    let proto_path = proto.as_ref().map(|proto| d.beside(&proto.text)).unwrap_or_default();
    let request = section.required_section(d, "request", REQUEST);
    let request = request.and_then(|table| request::read(d, table));
    let is_json = body != Some(Body::Protobuf);
    let response = section.required_section(d, "response", RESPONSE);
    let response = response.map(|table| response::read(d, table, is_json));
    let had_signature = section.line_of("signature").is_some();
    let signature = section.section(d, "signature", SIGNATURE);
    let signature = signature.and_then(|table| signature::read(d, table));
    let is_whole = request.is_some() && response.is_some() && signature.is_some() == had_signature;
    CustomConfig {
        body,
        proto,
        proto_path,
        request_message,
        response_message,
        request: request.unwrap_or_default(),
        response: response.unwrap_or_default(),
        signature,
        is_whole,
    }
}
