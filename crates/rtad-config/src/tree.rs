//! A parsed file: its values, their keys and lines.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::mistake::Places;

/// A step of the way to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Key(String),
    Index(usize),
}

/// The key of an entry of a table, which is empty for the document itself.
pub fn join(table: &str, name: &str) -> String {
    if table.is_empty() {
        name.to_owned()
    } else {
        format!("{table}.{name}")
    }
}

/// A value without a place in the file.
pub fn unplaced(value: DeValue<'_>) -> Spanned<DeValue<'_>> {
    Spanned::new(0..0, value)
}

/// The values of a document.
#[derive(Debug, Clone, Default)]
pub struct Tree<'a> {
    root: DeTable<'a>,
}

impl<'a> Tree<'a> {
    pub const fn new(root: DeTable<'a>) -> Self {
        Self { root }
    }

    /// Whether the document has no key.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// The document as the `toml` crate reads it.
    pub fn to_deserializer(&self) -> toml::Deserializer<'a> {
        Spanned::new(0..0, self.root.clone()).into()
    }

    /// The value of a key such as `platform[0].name`. Names may have any characters.
    pub fn find(&self, key: &str) -> Option<&DeValue<'a>> {
        find_in_table(&self.root, "", key)
    }

    /// The value at the end of a way.
    pub fn get_mut(&mut self, steps: &[Step]) -> Option<&mut DeValue<'a>> {
        let Some((Step::Key(first), rest)) = steps.split_first() else {
            return None;
        };

        let mut value = entry_mut(&mut self.root, first)?;
        for step in rest {
            value = match (step, value) {
                (Step::Key(name), DeValue::Table(table)) => entry_mut(table, name)?,
                (Step::Index(index), DeValue::Array(list)) => list.get_mut(*index)?.get_mut(),
                _ => return None,
            };
        }
        Some(value)
    }

    /// The table at the end of a way; the document if there are no steps.
    pub fn table_mut(&mut self, steps: &[Step]) -> Option<&mut DeTable<'a>> {
        if steps.is_empty() {
            return Some(&mut self.root);
        }
        match self.get_mut(steps)? {
            DeValue::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Sets an entry of a table.
    pub fn set(&mut self, table: &[Step], name: &str, value: DeValue<'a>) {
        if let Some(table) = self.table_mut(table) {
            let name = Spanned::new(0..0, Cow::Owned(name.to_owned()));
            table.insert(name, unplaced(value));
        }
    }

    /// Removes an entry of a table, or an item of a list.
    pub fn remove(&mut self, steps: &[Step]) {
        let Some((last, around)) = steps.split_last() else {
            return;
        };

        match last {
            Step::Key(name) => {
                if let Some(table) = self.table_mut(around) {
                    let entries = std::mem::take(table).into_iter();
                    *table = entries
                        .filter(|(key, _)| key.get_ref().as_ref() != name.as_str())
                        .collect();
                }
            }
            Step::Index(removed) => {
                if let Some(DeValue::Array(list)) = self.get_mut(around) {
                    let items = std::mem::replace(list, DeArray::new())
                        .into_iter()
                        .enumerate();
                    *list = items
                        .filter(|(index, _)| index != removed)
                        .map(|(_, item)| item)
                        .collect();
                }
            }
        }
    }

    /// Replaces each date, which serde shows as a table, by `value`.
    pub fn replace_dates(&mut self, value: &DeValue<'a>) {
        for (_, entry) in &mut self.root {
            replace_dates(entry.get_mut(), value);
        }
    }

    /// Lengths of the root's lists.
    pub fn lists(&self) -> impl Iterator<Item = (String, usize)> {
        self.root.iter().filter_map(|(key, value)| {
            let list = value.get_ref().as_array()?;
            Some((key.get_ref().to_string(), list.len()))
        })
    }

    /// Where the keys of the document are.
    pub fn places(&self, file: &str, text: &str) -> Places {
        let mut survey = Survey {
            places: Places {
                file: file.to_owned(),
                ..Places::default()
            },
            line_ends: text.match_indices('\n').map(|(byte, _)| byte).collect(),
        };
        survey.table("", &self.root);
        self.name_lists(&mut survey.places);
        survey.places
    }

    fn name_lists(&self, places: &mut Places) {
        for (list, length) in self.lists() {
            for item in (0..length).map(|index| format!("{list}[{index}]")) {
                // A table of tokens has no name.
                let name = self.text(&join(&item, "name"));
                if let Some(name) = name.or_else(|| self.text(&join(&item, "file"))) {
                    places.names.insert(item, name.to_owned());
                }
            }
        }
    }

    /// The text of a key, if it has one that is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.find(key)?.as_str().filter(|text| !text.is_empty())
    }
}

fn entry_mut<'t, 'a>(table: &'t mut DeTable<'a>, name: &str) -> Option<&'t mut DeValue<'a>> {
    let (_, value) = table
        .iter_mut()
        .find(|(key, _)| key.get_ref().as_ref() == name)?;
    Some(value.get_mut())
}

fn find_in_table<'t, 'a>(
    table: &'t DeTable<'a>,
    around: &str,
    key: &str,
) -> Option<&'t DeValue<'a>> {
    for (name, value) in table {
        let path = join(around, name.get_ref());
        if let Some(found) = find_in(value.get_ref(), &path, key) {
            return Some(found);
        }
    }
    None
}

/// The value of `key` in `value`, whose own key is `path`.
fn find_in<'t, 'a>(value: &'t DeValue<'a>, path: &str, key: &str) -> Option<&'t DeValue<'a>> {
    if path == key {
        return Some(value);
    }
    if !key.starts_with(path) {
        return None;
    }

    match value {
        DeValue::Table(table) => find_in_table(table, path, key),
        DeValue::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, item)| find_in(item.get_ref(), &format!("{path}[{index}]"), key)),
        _ => None,
    }
}

fn replace_dates<'a>(value: &mut DeValue<'a>, replacement: &DeValue<'a>) {
    match value {
        DeValue::Datetime(_) => *value = replacement.clone(),
        DeValue::Table(table) => {
            for (_, entry) in table {
                replace_dates(entry.get_mut(), replacement);
            }
        }
        DeValue::Array(list) => {
            for item in list.iter_mut() {
                replace_dates(item.get_mut(), replacement);
            }
        }
        _ => {}
    }
}

/// Notes the places of all keys.
struct Survey {
    places: Places,
    line_ends: Vec<usize>,
}

impl Survey {
    fn line(&self, byte: usize) -> usize {
        1 + self.line_ends.partition_point(|end| *end < byte)
    }

    fn table(&mut self, around: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let key = join(around, name.get_ref());
            let line = self.line(name.span().start);
            self.places.lines.insert(key.clone(), line);
            self.value(key, value);
        }
    }

    fn value(&mut self, key: String, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(&key, table),
            DeValue::Array(list) => self.list(&key, list),
            _ => {
                self.places.keys.insert(value.span().start, key);
            }
        }
    }

    fn list(&mut self, around: &str, list: &DeArray<'_>) {
        for (index, item) in list.iter().enumerate() {
            let key = format!("{around}[{index}]");
            let line = self.line(item.span().start);
            self.places.lines.insert(key.clone(), line);
            self.value(key, item);
        }
    }
}
