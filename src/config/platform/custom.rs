//! What `kind = "custom"` adds to a `[[platform]]`: the bodies' schema, and where things stand in them.
//!
//! The keys' shapes are read here; what the names in them mean, [`crate::platform::custom`] finds out, and its mistakes are told with
//! the lines that were kept.

mod request;
mod response;
mod signature;

use std::fmt::Display;

use bytes::Bytes;
use serde::Serialize;

use self::request::RequestConfig;
use self::response::ResponseConfig;
use self::signature::SignatureConfig;
use super::{Document, Section};
use crate::platform::custom::{Custom, Mapping, Named, Place, Schema, compile_schema, messages};
use crate::platform::{CacheTimes, StrategyIds};

/// The keys of a custom platform.
#[derive(Debug, Clone, Serialize)]
pub struct CustomConfig {
    body: Body,
    #[serde(skip_serializing_if = "Option::is_none")]
    proto: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_message: Option<String>,
    request: RequestConfig,
    response: ResponseConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<SignatureConfig>,
}

/// What the bodies are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Body {
    Protobuf,
    Json,
}

const PATH: &str = "a path of field names, such as device.imei";
const REQUEST: &str = "[platform.request] with request_id, strategies, ids and so on";
const RESPONSE: &str = "[platform.response] with code, verdicts, accepted and so on";
const SIGNATURE: &str = "[platform.signature] with algorithm, template and so on";

/// Reads the keys; `None` if they do not make a mapping, and then there was a mistake.
pub(super) fn read(d: &mut Document<'_>, section: &mut Section) -> Option<(CustomConfig, Mapping)> {
    let body = section.read_required(d, "body", "protobuf or json", |text| match text {
        "protobuf" => Some(Body::Protobuf),
        "json" => Some(Body::Json),
        _ => None,
    });
    let mut schema = None;
    let (mut proto, mut request_message, mut response_message) = (None, None, None);
    match body {
        Some(Body::Protobuf) => {
            proto = required(d, section, "proto", "a .proto file, beside this one");
            request_message = required(d, section, "request_message", "a message's full name");
            response_message = required(d, section, "response_message", "a message's full name");
            schema = read_schema(d, proto.as_ref(), request_message.as_ref(), response_message.as_ref());
        }
        Some(Body::Json) => schema = Some(Schema::Json),
        None => {
            // Whatever the bodies are to be, the keys are known.
            for key in ["proto", "request_message", "response_message"] {
                let _ = section.read(d, key, "", |_| Some(()));
            }
        }
    }
    let is_json = body != Some(Body::Protobuf);
    let request = subsection(d, section, "request", REQUEST).and_then(|table| request::read(d, table));
    let response =
        subsection(d, section, "response", RESPONSE).map(|table| response::read(d, table, is_json));
    let had_signature = section.line_of("signature").is_some();
    let signature = section.section(d, "signature", SIGNATURE).and_then(|table| signature::read(d, table));
    let (request, request_mapping) = request?;
    let (response, response_mapping) = response?;
    let (signature, signature_mapping) = match signature {
        Some((config, mapping)) => (Some(config), mapping),
        None if had_signature => return None,
        None => (None, None),
    };
    let text = |named: Option<Named>| named.map(|named| named.text);
    let config = CustomConfig {
        body: body?,
        proto: text(proto),
        request_message: text(request_message),
        response_message: text(response_message),
        request,
        response,
        signature,
    };
    let mapping = Mapping {
        schema: schema?,
        request: request_mapping,
        response: response_mapping,
        signature: signature_mapping,
    };
    Some((config, mapping))
}

/// Makes the adapter; `None` if there was a mistake.
pub(super) fn build(
    d: &mut Document<'_>,
    mapping: &Mapping,
    ids: StrategyIds<Bytes>,
    cache: CacheTimes,
) -> Option<Custom> {
    match Custom::compile(mapping, ids, cache) {
        Ok(custom) => Some(custom),
        Err(mistakes) => {
            for mistake in mistakes {
                d.mistake(mistake.place.line, &mistake.place.key, &mistake.found, &mistake.accepted);
            }
            None
        }
    }
}

fn read_schema(
    d: &mut Document<'_>,
    proto: Option<&Named>,
    request: Option<&Named>,
    response: Option<&Named>,
) -> Option<Schema> {
    let proto = proto?;
    let pool = match compile_schema(&d.beside(&proto.text)) {
        Ok(pool) => pool,
        Err(why) => {
            told(d, proto, &why, "a .proto file that compiles");
            return None;
        }
    };
    // Those that it imports are in it.
    d.saw(&pool.encode_to_vec());
    let mut message = |named: Option<&Named>| {
        let named = named?;
        let message = pool.get_message_by_name(&named.text);
        if message.is_none() {
            let accepted = messages(&pool).join(", ");
            told(d, named, &"there is no such message", &accepted);
        }
        message
    };
    let (request, response) = (message(request), message(response));
    Some(Schema::Protobuf { request: request?, response: response? })
}

fn told(d: &mut Document<'_>, named: &Named, why: &dyn Display, accepted: &str) {
    d.mistake(named.place.line, &named.place.key, &format!("is {:?}: {why}", named.text), accepted);
}

/// A table that must be there.
fn subsection(
    d: &mut Document<'_>,
    section: &mut Section,
    key: &'static str,
    accepted: &str,
) -> Option<Section> {
    let table = section.section(d, key, accepted);
    if !section.had(key) {
        d.mistake(section.line(), &format!("{}.{key}", section.path()), "is missing", accepted);
    }
    table
}

fn place(section: &Section, key: &str) -> Place {
    Place { line: section.line_of(key), key: format!("{}.{key}", section.path()) }
}

/// A string that may be there and is not empty.
fn optional(d: &mut Document<'_>, section: &mut Section, key: &'static str, accepted: &str) -> Option<Named> {
    let place = place(section, key);
    let text = section.read(d, key, accepted, not_empty)?;
    Some(Named { place, text })
}

/// A string that must be there.
fn required(d: &mut Document<'_>, section: &mut Section, key: &'static str, accepted: &str) -> Option<Named> {
    let place = place(section, key);
    let text = section.read_required(d, key, accepted, not_empty)?;
    Some(Named { place, text })
}

fn not_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// What is written back of a name.
fn text(named: Option<&Named>) -> Option<String> {
    named.map(|named| named.text.clone())
}

const SEPARATOR: &str = "what stands between two strategies, such as a comma";

#[cfg(test)]
mod tests;
