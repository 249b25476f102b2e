//! Answers as text, for explanations: protobuf's text format, one line per field that is set.

use std::sync::LazyLock;

use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

/// The messages of `proto/`. Strings are bytes, as in the decoders: an echo need not be UTF-8.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(&include_bytes!(concat!(env!("OUT_DIR"), "/proto.bin"))[..])
        .expect("the build script wrote descriptors")
});

/// A message of `proto/`.
pub fn message_of_proto(name: &str) -> Option<MessageDescriptor> {
    POOL.get_message_by_name(name)
}

/// The answer's fields, or its text if it is no protobuf message.
pub fn describe_answer(message: Option<MessageDescriptor>, answer: &[u8]) -> String {
    let Some(message) = message else {
        return String::from_utf8_lossy(answer).into_owned();
    };

    match DynamicMessage::decode(message, answer) {
        Ok(fields) => fields.to_text_format_with_options(&FormatOptions::new().pretty(true)),
        Err(error) => format!("not an answer of this protocol: {error}"),
    }
}
