//! Mistakes in a configuration: where each stands, what was found there and what is accepted.
//!
//! Values that can be checked only later, by whoever builds from them, keep their [`Location`], so
//! that a mistake found then is reported like one found while reading.

use serde::{Serialize, Serializer};

/// Where the config says something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// The line, if it is known.
    pub line: Option<usize>,
    /// The whole key, such as `platform[0].request.ids.imei`.
    pub key: String,
}

/// Words of the config and their location: a path of field names, a template, a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Where it stands.
    pub location: Location,
    /// What it says.
    pub text: String,
}

impl Named {
    /// A mistake about it: what comes after its text.
    pub fn mistake(&self, why: &str, accepted: &str) -> Mistake {
        let found = format!("is {:?}: {why}", self.text);
        Mistake { location: self.location.clone(), found, accepted: accepted.to_owned() }
    }
}

/// Only the text: what is printed reads back as the same.
impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// A key with a value that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub location: Location,
    /// What was found there, as what follows on the key.
    pub found: String,
    /// What would have been accepted.
    pub accepted: String,
}

/// Every mistake in one configuration.
#[derive(Debug)]
pub struct Mistakes {
    file: String,
    messages: Vec<String>,
}

/// A configuration with mistakes: all of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", mistakes.join("\n"))]
#[non_exhaustive]
pub struct ConfigError {
    /// One line each: file and line, key, what was found, what is accepted.
    pub mistakes: Vec<String>,
}

impl Mistakes {
    pub(super) fn in_file(file: &str) -> Self {
        Self { file: file.to_owned(), messages: Vec::new() }
    }

    /// Adds one about a key of the file.
    pub fn add(&mut self, mistake: &Mistake) {
        let Location { line, key } = &mistake.location;
        self.note(*line, key, &mistake.found, &mistake.accepted);
    }

    /// The same from its parts.
    pub(super) fn note(&mut self, line: Option<usize>, key: &str, found: &str, accepted: &str) {
        let file = &self.file;
        let location = match line {
            Some(line) => format!("{file}:{line}: "),
            None if file.is_empty() => String::new(),
            None => format!("{file}: "),
        };
        self.messages.push(format!("{location}{key} {found}; accepted: {accepted}"));
    }

    /// Adds one about a flag or a variable, which has no line.
    pub(super) fn note_outside(&mut self, origin: &str, found: &str, accepted: &str) {
        self.messages.push(format!("{origin}: {found}; accepted: {accepted}"));
    }

    /// How many there are so far.
    pub(super) const fn count(&self) -> usize {
        self.messages.len()
    }

    /// Leaves only the first.
    pub(super) fn keep_first(&mut self) {
        self.messages.truncate(1);
    }

    /// The value if there are none.
    ///
    /// # Errors
    ///
    /// All of them.
    pub fn into_result<T>(self, value: T) -> Result<T, ConfigError> {
        if self.messages.is_empty() {
            Ok(value)
        } else {
            Err(ConfigError { mistakes: self.messages })
        }
    }
}
