//! Attributes of a request that conditions read.

use std::cell::Cell;

use serde::{Deserialize, Serialize};
use strum::VariantArray as _;

use super::experiment::Assignment;

/// A fact that a request carries beside the device's ids.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Attribute {
    /// Operating system: one of [`OS_WORDS`].
    Os,
    /// The app or site that shows the ad.
    App,
    /// The slot of the ad.
    Slot,
    /// The region of the device.
    Region,
    /// The kind of request.
    RequestType,
}

/// Operating systems.
pub const OS_WORDS: [&str; 7] = [
    "ios", "android", "harmony", "windows", "mac", "symbian", "java",
];

/// The operating system that a text names, in any case and with spaces around it.
pub fn os_word(text: &[u8]) -> Option<&'static str> {
    let text = text.trim_ascii();
    let mut words = OS_WORDS.into_iter();
    words.find(|word| text.eq_ignore_ascii_case(word.as_bytes()))
}

impl Attribute {
    /// All attributes, in the order of answers.
    pub const ALL: [Self; 5] = *Self::VARIANTS.as_array().expect("every variant");

    /// The word in the config and in answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a device's requests differ in it: an answer that depends on it is not the device's.
    pub const fn is_of_request(self) -> bool {
        !matches!(self, Self::Os)
    }
}

/// A value as a request carries it.
#[derive(Clone, Copy)]
pub enum AttributeValue<'a> {
    /// A text.
    Text(&'a [u8]),
    /// A number.
    Number(i64),
}

/// The attributes of one request, and the buckets of its device.
pub trait Attributes {
    /// The value of an attribute; `None` if it is absent.
    fn attribute(&self, attribute: Attribute) -> Option<AttributeValue<'_>>;

    /// The device's part in an experiment.
    fn assignment(&self, _experiment: usize) -> Assignment {
        Assignment::Unknown
    }
}

/// A request's attributes, and the parts of its device in experiments.
pub struct RequestFacts<'f> {
    /// The attributes.
    pub attributes: &'f dyn Attributes,
    /// The parts, by index of the experiment.
    pub assignments: &'f [Assignment],
}

impl Attributes for RequestFacts<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<AttributeValue<'_>> {
        self.attributes.attribute(attribute)
    }

    fn assignment(&self, experiment: usize) -> Assignment {
        self.assignments
            .get(experiment)
            .copied()
            .unwrap_or(Assignment::Unknown)
    }
}

/// Attributes and parts that note whether a part was read.
pub struct NotedParts<'f> {
    attributes: &'f dyn Attributes,
    has_read: Cell<bool>,
}

impl<'f> NotedParts<'f> {
    pub const fn new(attributes: &'f dyn Attributes) -> Self {
        Self {
            attributes,
            has_read: Cell::new(false),
        }
    }

    /// Whether a part was read.
    pub const fn has_read(&self) -> bool {
        self.has_read.get()
    }
}

impl Attributes for NotedParts<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<AttributeValue<'_>> {
        self.attributes.attribute(attribute)
    }

    fn assignment(&self, experiment: usize) -> Assignment {
        self.has_read.set(true);
        self.attributes.assignment(experiment)
    }
}

/// Without attributes.
#[derive(Debug, Clone, Copy)]
pub struct NoAttributes;

impl Attributes for NoAttributes {
    fn attribute(&self, _: Attribute) -> Option<AttributeValue<'_>> {
        None
    }
}

/// A value that a condition accepts: a text, or a number in decimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    text: Box<str>,
    number: Option<i64>,
}

impl Accepted {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is the value of a request, in any case and with spaces around it.
    pub(super) fn is(&self, value: AttributeValue<'_>) -> bool {
        match value {
            AttributeValue::Text(text) => {
                text.trim_ascii().eq_ignore_ascii_case(self.text.as_bytes())
            }
            AttributeValue::Number(number) => self.number == Some(number),
        }
    }
}

impl From<&str> for Accepted {
    fn from(text: &str) -> Self {
        let number = text
            .trim_ascii()
            .parse()
            .ok()
            .filter(|number: &i64| number.to_string() == text.trim_ascii());
        Self {
            text: text.trim_ascii().into(),
            number,
        }
    }
}
