//! Answers as text: one line `name: value` per value, none for an absent field.

use std::fmt::Display;

use bytes::Bytes;

/// The lines so far.
#[derive(Debug, Default)]
pub struct Lines(Vec<String>);

impl Lines {
    /// Adds a line per value.
    pub fn each<T: Display>(&mut self, name: &str, values: impl IntoIterator<Item = T>) {
        self.0
            .extend(values.into_iter().map(|value| format!("{name}: {value}")));
    }

    /// Adds a line per string, quoted because its contents are not trusted.
    pub fn texts<'a>(&mut self, name: &str, values: impl IntoIterator<Item = &'a Bytes>) {
        self.each(
            name,
            values
                .into_iter()
                .map(|value| format!("{:?}", String::from_utf8_lossy(value))),
        );
    }

    /// All lines; `(empty)` if there are none.
    pub fn joined(self) -> String {
        if self.0.is_empty() {
            "(empty)".to_owned()
        } else {
            self.0.join("\n")
        }
    }
}
