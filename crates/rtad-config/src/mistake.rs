//! Mistakes in a configuration: location, value found, and accepted values.

use std::collections::BTreeMap;

/// The location of a value in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// The line, if known.
    pub line: Option<usize>,
    /// The whole key, such as `platform[0].request.ids.imei`; a flag or variable for its value.
    pub key: String,
    /// Whether the value is from a flag or a variable.
    pub is_outside: bool,
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
    file: String,
    list: Vec<Mistake>,
    /// Names of the tables of lists, by their keys: `clicks` of `window[0]`. Nobody counts the
    /// tables of a long file, so messages name them.
    names: BTreeMap<String, String>,
}

/// All mistakes in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", mistakes.join("\n"))]
pub struct ConfigError {
    /// One line each: file and line, table and key, value found, accepted values.
    pub mistakes: Vec<String>,
}

impl Mistakes {
    pub(crate) fn in_file(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            list: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    pub(crate) fn set_names(&mut self, names: BTreeMap<String, String>) {
        self.names = names;
    }

    /// Adds a mistake, unless it is known.
    pub fn add(&mut self, mistake: Mistake) {
        if !self.list.contains(&mistake) {
            self.list.push(mistake);
        }
    }

    /// The mistakes so far.
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }

    pub(crate) fn keep_first(&mut self) {
        self.list.truncate(1);
    }

    /// The value, if there are no mistakes.
    ///
    /// # Errors
    ///
    /// All mistakes, in the order of their lines.
    pub fn into_result<T>(mut self, value: T) -> Result<T, ConfigError> {
        if self.list.is_empty() {
            return Ok(value);
        }
        self.list.sort_by_key(|mistake| mistake.location.line);
        let line = |mistake: &Mistake| one_line(&self.message(mistake));
        Err(ConfigError {
            mistakes: self.list.iter().map(line).collect(),
        })
    }

    fn message(
        &self,
        Mistake {
            location,
            found,
            accepted,
        }: &Mistake,
    ) -> String {
        format!(
            "{} {found}; accepted: {accepted}",
            self.described(location, &self.names)
        )
    }

    /// The file, line and key of a location.
    pub(crate) fn described(
        &self,
        location: &Location,
        names: &BTreeMap<String, String>,
    ) -> String {
        let (file, key) = (&self.file, named(&location.key, names));
        match location.line {
            Some(line) => format!("{file}:{line}: {key}"),
            None if file.is_empty() || location.is_outside => key,
            None => format!("{file}: {key}"),
        }
    }
}

/// The key with the name of its table, if that is known: `[[window]] "clicks": capacity`.
fn named(key: &str, names: &BTreeMap<String, String>) -> String {
    let table = key.find(']').map_or(key, |end| &key[..=end]);
    let (Some(name), Some((list, _))) = (names.get(table), table.split_once('[')) else {
        return key.to_owned();
    };
    match key[table.len()..].strip_prefix('.') {
        Some(rest) => format!("[[{list}]] {name:?}: {rest}"),
        None => format!("[[{list}]] {name:?}"),
    }
}

/// The message with control characters escaped: keys and reasons may have line ends.
fn one_line(message: &str) -> String {
    let escaped = |character: char| match character.is_control() {
        true => character.escape_debug().to_string(),
        false => character.to_string(),
    };
    message.chars().map(escaped).collect()
}
