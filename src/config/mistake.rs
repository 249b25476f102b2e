//! Mistakes in a configuration: location, value found, and accepted values.
//!
//! Values that are checked later, by their users, keep their [`Location`] for the same messages.

use serde::{Serialize, Serializer};

/// The location of a value in the config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// The line, if known.
    pub line: Option<usize>,
    /// The whole key, such as `platform[0].request.ids.imei`.
    pub key: String,
}

/// A text of the config with its location: a path of field names, a template or a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Its location.
    pub location: Location,
    /// The text.
    pub text: String,
}

impl Named {
    /// A mistake about this text.
    pub fn mistake(&self, why: &str, accepted: &str) -> Mistake {
        let found = format!("is {:?}: {why}", self.text);
        Mistake { location: self.location.clone(), found, accepted: accepted.to_owned() }
    }
}

/// Serializes the text alone, so that printed TOML reads back as the same.
impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
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
    file: String,
    messages: Vec<String>,
}

/// All mistakes in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", mistakes.join("\n"))]
#[non_exhaustive]
pub struct ConfigError {
    /// One line each: file and line, key, value found, accepted values.
    pub mistakes: Vec<String>,
}

impl Mistakes {
    pub(super) fn in_file(file: &str) -> Self {
        Self { file: file.to_owned(), messages: Vec::new() }
    }

    /// Adds a mistake about a key of the file.
    pub fn add(&mut self, mistake: &Mistake) {
        let Location { line, key } = &mistake.location;
        self.note(*line, key, &mistake.found, &mistake.accepted);
    }

    /// Adds a mistake from its parts.
    pub(super) fn note(&mut self, line: Option<usize>, key: &str, found: &str, accepted: &str) {
        let file = &self.file;
        let location = match line {
            Some(line) => format!("{file}:{line}: "),
            None if file.is_empty() => String::new(),
            None => format!("{file}: "),
        };
        self.push(&format!("{location}{key} {found}; accepted: {accepted}"));
    }

    /// Adds a mistake about a flag or variable, which has no line.
    pub(super) fn note_outside(&mut self, origin: &str, found: &str, accepted: &str) {
        self.push(&format!("{origin}: {found}; accepted: {accepted}"));
    }

    /// Adds a message as one line: keys and reasons may have line ends.
    fn push(&mut self, message: &str) {
        let escaped = |character: char| match character.is_control() {
            true => character.escape_debug().to_string(),
            false => character.to_string(),
        };
        self.messages.push(message.chars().map(escaped).collect());
    }

    /// Number of mistakes so far.
    pub(super) const fn count(&self) -> usize {
        self.messages.len()
    }

    /// Keeps only the first mistake.
    pub(super) fn keep_first(&mut self) {
        self.messages.truncate(1);
    }

    /// The value, if there are no mistakes.
    ///
    /// # Errors
    ///
    /// All mistakes.
    pub fn into_result<T>(self, value: T) -> Result<T, ConfigError> {
        if self.messages.is_empty() {
            Ok(value)
        } else {
            Err(ConfigError { mistakes: self.messages })
        }
    }
}
