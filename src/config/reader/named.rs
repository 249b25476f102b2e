//! Values with their locations, for checks after reading.

use super::{Document, Entry, Section, Value, not_empty};
use crate::config::mistake::{Location, Named};

/// A free key, its line and its values.
pub(in crate::config) struct Keyed {
    pub(in crate::config) key: String,
    pub(in crate::config) line: usize,
    pub(in crate::config) values: Vec<String>,
}

impl Document<'_> {
    /// Number of mistakes so far.
    pub(in crate::config) const fn mistakes(&self) -> usize {
        self.mistakes.count()
    }
}

impl Section {
    /// Reads a list of scalars, or a variable with commas or spaces between them. Messages do not
    /// show invalid values, which may be secrets in the wrong key.
    pub(in crate::config) fn read_list_unshown<T>(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        const FOUND: &str = "has a value that is not one";
        #[cfg(test)]
        super::keys::add(&self.path, key, accepted, true);
        let overlay = document.overlay(&self.path, key);
        let entry = self.take(key);
        if let Some((origin, text)) = overlay {
            let is_separator = |letter: char| letter == ',' || letter.is_whitespace();
            let words = text.split(is_separator).filter(|word| !word.is_empty());
            let values: Option<Vec<T>> = words.map(parse).collect();
            let values = values.filter(|values| !values.is_empty());
            if values.is_none() {
                document.mistakes.note_outside(&origin, FOUND, accepted);
            }
            return values.unwrap_or_default();
        }
        let full = format!("{}.{key}", self.path);
        let list = match entry {
            None => return Vec::new(),
            Some(Entry { value: Value::List(list), .. }) => list,
            Some(Entry { line, .. }) => {
                document.mistake(Some(line), &full, "is not a list", accepted);
                return Vec::new();
            }
        };
        let mut values = Vec::with_capacity(list.len());
        for Entry { line, value } in list {
            match &value {
                Value::Scalar(text) => match parse(text) {
                    Some(value) => values.push(value),
                    None => document.mistake(Some(line), &full, FOUND, accepted),
                },
                _ => document.mistake(Some(line), &full, FOUND, accepted),
            }
        }
        values
    }

    /// Location of the table.
    pub(in crate::config) fn location(&self) -> Location {
        Location { line: self.line, key: self.path.clone() }
    }

    /// Reads an optional string, which must not be empty.
    pub(in crate::config) fn read_named(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
    ) -> Option<Named> {
        let location = Location { line: self.line_of(key), key: format!("{}.{key}", self.path) };
        let text = self.read(document, key, accepted, not_empty)?;
        Some(Named { location, text })
    }

    /// Reads a required string, which must not be empty.
    pub(in crate::config) fn read_required_named(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
    ) -> Option<Named> {
        let named = self.read_named(document, key, accepted);
        self.require(document, key, accepted);
        named
    }

    /// Reads a required table.
    pub(in crate::config) fn required_section(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
    ) -> Option<Self> {
        let table = self.section(document, key, accepted);
        self.require(document, key, accepted);
        table
    }

    /// The line of an unread key.
    pub(in crate::config) fn line_of(&self, key: &str) -> Option<usize> {
        self.entries.get(key).map(|entry| entry.line)
    }

    /// All values of a table with free keys: strings or lists of strings. Others are recorded as
    /// mistakes.
    pub(in crate::config) fn read_lists(
        mut self,
        document: &mut Document<'_>,
        accepted: &str,
    ) -> Vec<Keyed> {
        let mut lists = Vec::with_capacity(self.entries.len());
        for (key, Entry { line, value }) in std::mem::take(&mut self.entries) {
            let list = match value {
                Value::List(list) if !list.is_empty() => list,
                scalar => vec![Entry { line, value: scalar }],
            };
            let mut values = Vec::with_capacity(list.len());
            for Entry { line, value } in list {
                match value {
                    Value::Scalar(text) => values.push(text),
                    _ => {
                        let path = format!("{}.{key}", self.path);
                        document.mistake(
                            Some(line),
                            &path,
                            "is neither a string nor a list of strings",
                            accepted,
                        );
                    }
                }
            }
            lists.push(Keyed { key, line, values });
        }
        lists
    }
}
