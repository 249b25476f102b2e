//! Decoder of forms (`application/x-www-form-urlencoded`) along a plan.
//!
//! - The parameters of the query come first, then those of the body; the last value of a repeated
//!   name wins.
//! - A plus is a space. Invalid UTF-8 is replaced.
//! - A mapped object is JSON in a text.

use std::borrow::Cow;

use super::json;
use super::plan::RequestContent;
use super::reading::{Malformed, Reading};
use crate::platform::read::Value;

/// The parameters of a query and a body.
pub fn parameters<'a>(
    query: &'a [u8],
    body: &'a [u8],
) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
    form_urlencoded::parse(query).chain(form_urlencoded::parse(body))
}

/// Reads a query and a body.
pub fn read<'a>(
    query: &'a [u8],
    body: &'a [u8],
    reading: &mut Reading<'_, 'a>,
) -> Result<(), Malformed> {
    let root = &reading.plan.root;

    for (name, value) in parameters(query, body) {
        match root.named(&name).map(|field| &field.content) {
            None => {}
            Some(RequestContent::Leaf(leaf)) => {
                let value = match value {
                    Cow::Borrowed(text) => text.into(),
                    Cow::Owned(text) => Value::from(text),
                };
                reading.take(leaf, false, value)?;
            }
            Some(RequestContent::Node(node)) => json::read_text(&value, node, reading)?,
        }
    }

    reading.end(root)
}
