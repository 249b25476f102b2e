//! Attributes of a request that conditions read.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::VariantArray as _;

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

/// Hides the text: what a request carries must not reach a log.
impl fmt::Debug for AttributeValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttributeValue")
    }
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
