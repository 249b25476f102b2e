//! Mistakes in a configuration: location, value found, and accepted values.

use std::collections::BTreeMap;

/// The location of a value in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Its whole key, such as `platform[0].request.ids.imei`.
    Key(String),
    /// The byte of the file at which it begins.
    Byte(usize),
}

impl Location {
    /// The key; empty for a byte whose key is not known yet.
    pub fn key(&self) -> &str {
        match self {
            Self::Key(key) => key,
            Self::Byte(_) => "",
        }
    }
}

/// Of a value that is not from a file.
impl Default for Location {
    fn default() -> Self {
        Self::Key(String::new())
    }
}

/// A key with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Location of the key.
    pub location: Location,
    /// The finding, such as `is "big"`: continues a sentence that begins with the key.
    pub found: String,
    /// Accepted values.
    pub accepted: String,
}

/// Every mistake in one configuration.
#[derive(Debug)]
pub struct Mistakes {
    list: Vec<Mistake>,
    /// Boxed, as mistakes are the error of a reading.
    places: Box<Places>,
}

/// All mistakes in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", mistakes.join("\n"))]
pub struct ConfigError {
    /// One line each: file and line, table and key, value found, accepted values.
    pub mistakes: Vec<String>,
}

/// Where the keys of a document are.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The path of the file.
    pub file: String,
    /// Lines of all keys and list items.
    pub lines: BTreeMap<String, usize>,
    /// The keys of all values, by the byte at which they begin.
    pub keys: BTreeMap<usize, String>,
    /// Keys that a flag or a variable sets, with its name.
    pub outside: BTreeMap<String, String>,
    /// Names of the tables of lists, by their keys: `clicks` of `window[0]`. Nobody counts the
    /// tables of a long file, so messages name them.
    pub names: BTreeMap<String, String>,
}

impl Places {
    /// The whole key at a location.
    pub fn key_of(&self, location: &Location) -> String {
        match location {
            Location::Key(key) => key.clone(),
            Location::Byte(byte) => self.keys.get(byte).cloned().unwrap_or_default(),
        }
    }

    /// The line of a key, or of the innermost table around it.
    fn line_of(&self, key: &str) -> Option<usize> {
        let mut around = key;
        loop {
            if let Some(line) = self.lines.get(around) {
                return Some(*line);
            }
            around = &around[..around.rfind(['.', '['])?];
        }
    }

    /// File, line and key, as messages begin. The name of a flag or variable alone if it set the
    /// value.
    pub fn described(&self, key: &str) -> String {
        if let Some(name) = self.outside.get(key) {
            return name.clone();
        }

        let file = &self.file;
        let named = self.named(key);
        match self.line_of(key) {
            Some(line) => format!("{file}:{line}: {named}"),
            None if file.is_empty() => named,
            None => format!("{file}: {named}"),
        }
    }

    /// The key with the name of its table, if that is known: `[[window]] "clicks": capacity`.
    fn named(&self, key: &str) -> String {
        let table = key.find(']').map_or(key, |end| &key[..=end]);
        let (Some(name), Some((list, _))) = (self.names.get(table), table.split_once('[')) else {
            return key.to_owned();
        };

        match key[table.len()..].strip_prefix('.') {
            Some(rest) => format!("[[{list}]] {name:?}: {rest}"),
            None => format!("[[{list}]] {name:?}"),
        }
    }
}

impl Mistakes {
    pub(crate) fn new(places: Places) -> Self {
        Self {
            list: Vec::new(),
            places: Box::new(places),
        }
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    pub(crate) fn places_mut(&mut self) -> &mut Places {
        &mut self.places
    }

    /// Adds a mistake, unless it is known.
    pub fn add(&mut self, mistake: Mistake) {
        let key = self.places.key_of(&mistake.location);
        let mistake = Mistake {
            location: Location::Key(key),
            ..mistake
        };
        if !self.list.contains(&mistake) {
            self.list.push(mistake);
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The mistakes so far, with their keys.
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }

    /// The keys with mistakes.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        self.list
            .iter()
            .map(|mistake| self.places.key_of(&mistake.location))
    }

    /// The value, if there are no mistakes.
    ///
    /// # Errors
    ///
    /// All mistakes, in the order of their lines.
    pub fn into_result<T>(self, value: T) -> Result<T, ConfigError> {
        if self.list.is_empty() {
            Ok(value)
        } else {
            Err(self.into())
        }
    }
}

/// All mistakes, in the order of their lines.
impl From<Mistakes> for ConfigError {
    fn from(mut found: Mistakes) -> Self {
        let places = &found.places;
        found
            .list
            .sort_by_key(|mistake| places.line_of(&places.key_of(&mistake.location)));

        let mut mistakes = Vec::new();
        for mistake in &found.list {
            let described = places.described(&places.key_of(&mistake.location));
            let Mistake {
                found, accepted, ..
            } = mistake;
            mistakes.push(one_line(&format!(
                "{described} {found}; accepted: {accepted}"
            )));
        }
        Self { mistakes }
    }
}

/// The message with control characters escaped: keys and reasons may have line ends.
fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for character in message.chars() {
        if character.is_control() {
            line.extend(character.escape_debug());
        } else {
            line.push(character);
        }
    }
    line
}
