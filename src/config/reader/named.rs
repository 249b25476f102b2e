//! Reading keys together with their lines, for values that are checked only later.

use super::{Document, Entry, Section, Value};

/// A key of somebody's own choice, its line and its values.
pub(in crate::config) struct Keyed {
    pub(in crate::config) key: String,
    pub(in crate::config) line: usize,
    pub(in crate::config) values: Vec<String>,
}

impl Document<'_> {
    /// How many mistakes there are so far.
    pub(in crate::config) const fn mistakes(&self) -> usize {
        self.mistakes.len()
    }
}

impl Section {
    /// The line of a key that has not been read yet.
    pub(in crate::config) fn line_of(&self, key: &str) -> Option<usize> {
        self.entries.get(key).map(|entry| entry.line)
    }

    /// All of a table whose keys are anybody's and whose values are strings or lists of strings; what is neither is noted.
    pub(in crate::config) fn read_lists(mut self, document: &mut Document<'_>, accepted: &str) -> Vec<Keyed> {
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
                        document.mistake(Some(line), &path, "is no string and no list of strings", accepted);
                    }
                }
            }
            lists.push(Keyed { key, line, values });
        }
        lists
    }
}
