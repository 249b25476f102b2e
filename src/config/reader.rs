//! Reader of a TOML document, key by key. It records every mistake with its line and continues.

#[cfg(test)]
pub(super) mod keys;
mod named;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::Mistakes;
use rtad_store::redacted;

/// Values of the command line, by key: `("server.listen", "0.0.0.0:80")`.
pub type Flags = Vec<(&'static str, String)>;

/// A parsed document, flags and environment over it, and the mistakes so far.
pub(super) struct Document<'a> {
    file: &'a str,
    text: &'a str,
    flags: &'a Flags,
    environment: &'a dyn Fn(&str) -> Option<String>,
    sections: BTreeMap<String, Entry>,
    is_readable: bool,
    mistakes: Mistakes,
    contents: DefaultHasher,
}

/// A value and its line.
struct Entry {
    line: usize,
    value: Value,
}

/// A TOML value with scalars as text; the key's reader parses them.
enum Value {
    Scalar(String),
    List(Vec<Entry>),
    Table(BTreeMap<String, Entry>),
}

/// A table of the document. Reading a key removes it; remaining keys are unknown.
pub(super) struct Section {
    path: String,
    line: Option<usize>,
    entries: BTreeMap<String, Entry>,
    known: Vec<&'static str>,
    had: Vec<&'static str>,
}

impl<'a> Document<'a> {
    /// Parses the text. After a syntax error no other mistake is reported, as keys may be missing
    /// only because of it.
    pub(super) fn parse(
        file: &'a str,
        text: &'a str,
        flags: &'a Flags,
        environment: &'a dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let (sections, mistakes) = (BTreeMap::new(), Mistakes::in_file(file));
        let contents = DefaultHasher::new();
        let mut document = Self {
            file,
            text,
            flags,
            environment,
            sections,
            is_readable: true,
            mistakes,
            contents,
        };
        document.saw(text.as_bytes());
        match DeTable::parse(text) {
            Ok(table) => document.sections = document.entries(table.into_inner()),
            Err(error) => {
                let line = error.span().map(|span| document.line_of(span.start));
                document.mistake(line, "syntax", error.message(), "TOML 1.0");
                document.is_readable = false;
            }
        }
        document
    }

    fn line_of(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    }

    fn entries(&self, table: DeTable<'_>) -> BTreeMap<String, Entry> {
        let entry = |(key, value): (Spanned<_>, Spanned<_>)| {
            let line = self.line_of(key.span().start);
            let key: std::borrow::Cow<'_, str> = key.into_inner();
            (key.into_owned(), Entry { line, value: self.value(value) })
        };
        table.into_iter().map(entry).collect()
    }

    fn value(&self, value: Spanned<DeValue<'_>>) -> Value {
        match value.into_inner() {
            DeValue::String(text) => Value::Scalar(text.into_owned()),
            DeValue::Integer(integer) => Value::Scalar(integer.to_string()),
            DeValue::Float(float) => Value::Scalar(float.to_string()),
            DeValue::Boolean(boolean) => Value::Scalar(boolean.to_string()),
            DeValue::Datetime(datetime) => Value::Scalar(datetime.to_string()),
            DeValue::Array(list) => {
                let entry = |item: Spanned<_>| Entry {
                    line: self.line_of(item.span().start),
                    value: self.value(item),
                };
                Value::List(list.into_iter().map(entry).collect())
            }
            DeValue::Table(table) => Value::Table(self.entries(table)),
        }
    }

    /// Records a mistake: line, key, value found, accepted values.
    pub(super) fn mistake(&mut self, line: Option<usize>, key: &str, found: &str, accepted: &str) {
        self.mistakes.note(line, key, found, accepted);
    }

    /// The table of this name; empty if absent.
    pub(super) fn section(&mut self, name: &'static str) -> Section {
        let (line, entries) = match self.sections.remove(name) {
            None => (None, BTreeMap::new()),
            Some(Entry { line, value: Value::Table(entries) }) => (Some(line), entries),
            Some(Entry { line, .. }) => {
                self.mistake(Some(line), name, "is not a table", &format!("[{name}]"));
                (Some(line), BTreeMap::new())
            }
        };
        Section { path: name.to_owned(), line, entries, known: Vec::new(), had: Vec::new() }
    }

    /// The tables of this name.
    pub(super) fn sections(&mut self, name: &'static str) -> Vec<Section> {
        let entry = self.sections.remove(name);
        self.tables(name, entry, &format!("[[{name}]]"))
    }

    fn tables(&mut self, path: &str, entry: Option<Entry>, accepted: &str) -> Vec<Section> {
        let list = match entry {
            None => return Vec::new(),
            Some(Entry { value: Value::List(list), .. }) => list,
            // Read nevertheless: its names are not missing elsewhere.
            Some(Entry { line, value: Value::Table(entries) }) => {
                let found = format!("is a single table, [{path}]");
                self.mistake(Some(line), path, &found, accepted);
                return vec![Section::new(format!("{path}[0]"), line, entries)];
            }
            Some(Entry { line, .. }) => {
                self.mistake(Some(line), path, "is not a list of tables", accepted);
                return Vec::new();
            }
        };
        let mut tables = Vec::with_capacity(list.len());
        for (index, Entry { line, value }) in list.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            match value {
                Value::Table(entries) => tables.push(Section::new(path, line, entries)),
                _ => self.mistake(Some(line), &path, "is not a table", accepted),
            }
        }
        tables
    }

    /// The path of a file that the document names, relative to the document's folder.
    pub(super) fn beside(&self, path: &str) -> PathBuf {
        Path::new(self.file).parent().unwrap_or(Path::new("")).join(path)
    }

    /// Adds a file's contents to the fingerprint.
    pub(super) fn saw(&mut self, contents: &[u8]) {
        contents.hash(&mut self.contents);
    }

    /// Hash of all files' contents.
    pub(super) fn fingerprint(&self) -> u64 {
        self.contents.finish()
    }

    /// All mistakes, including unknown tables.
    pub(super) fn finish(mut self) -> Mistakes {
        if !self.is_readable {
            self.mistakes.keep_first();
        }
        let accepted = "server, store, ids, audience, strategy, cap_leases, platform";
        for (name, Entry { line, .. }) in std::mem::take(&mut self.sections) {
            self.mistake(Some(line), &name, "is not known", accepted);
        }
        self.mistakes
    }

    /// A value from the command line or the environment, and its flag or variable.
    fn overlay(&self, path: &str, key: &str) -> Option<(String, String)> {
        let full = format!("{path}.{key}");
        if let Some((_, value)) = self.flags.iter().find(|(name, _)| *name == full) {
            let flag = if full == "store.url" { "store".to_owned() } else { key.replace('_', "-") };
            return Some((format!("--{flag}"), value.clone()));
        }
        let variable = variable(path, key)?;
        let value = (self.environment)(&variable)?;
        Some((variable, value))
    }
}

impl Section {
    fn new(path: String, line: usize, entries: BTreeMap<String, Entry>) -> Self {
        Self { path, line: Some(line), entries, known: Vec::new(), had: Vec::new() }
    }

    /// Removes a key, and records that it is known and whether it was present.
    fn take(&mut self, key: &'static str) -> Option<Entry> {
        self.known.push(key);
        let entry = self.entries.remove(key);
        if entry.is_some() {
            self.had.push(key);
        }
        entry
    }

    /// The tables in a list under `key`; `accepted` is an example.
    pub(super) fn sections(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
    ) -> Vec<Self> {
        #[cfg(test)]
        keys::add(&self.path, key, accepted, false);
        let entry = self.take(key);
        document.tables(&format!("{}.{key}", self.path), entry, accepted)
    }

    /// The table under `key`; `accepted` is an example.
    pub(super) fn section(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
    ) -> Option<Self> {
        #[cfg(test)]
        keys::add(&self.path, key, accepted, false);
        let Entry { line, value } = self.take(key)?;
        let path = format!("{}.{key}", self.path);
        match value {
            Value::Table(entries) => Some(Self::new(path, line, entries)),
            _ => {
                document.mistake(Some(line), &path, "is not a table", accepted);
                None
            }
        }
    }

    /// All scalars of a table with free keys, parsed from key and value. Invalid ones are recorded
    /// as mistakes and omitted.
    pub(super) fn read_map<T>(
        mut self,
        document: &mut Document<'_>,
        accepted: &str,
        parse: impl Fn(&str, &str) -> Option<T>,
    ) -> Vec<T> {
        let mut values = Vec::with_capacity(self.entries.len());
        for (key, Entry { line, value }) in std::mem::take(&mut self.entries) {
            let parsed = match &value {
                Value::Scalar(text) => {
                    parse(&key, text).ok_or_else(|| format!("has {key:?} = {text:?}"))
                }
                _ => Err(format!("has a value of {key:?} that is not a string")),
            };
            match parsed {
                Ok(value) => values.push(value),
                Err(found) => document.mistake(Some(line), &self.path, &found, accepted),
            }
        }
        values
    }

    /// Line of the table.
    pub(super) fn line(&self) -> Option<usize> {
        self.line
    }

    /// Path of the table.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether no unread key is left.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The text of an unread scalar.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.entries.get(key)?.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Whether the key was present, valid or not.
    pub(super) fn had(&self, key: &str) -> bool {
        self.had.contains(&key)
    }

    /// Reads a scalar; `None` if it is absent, or invalid, which is recorded as a mistake.
    pub(super) fn read<T>(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        #[cfg(test)]
        keys::add(&self.path, key, accepted, true);
        self.known.push(key);
        let entry = self.entries.remove(key);
        let overlay = document.overlay(&self.path, key);
        if entry.is_some() || overlay.is_some() {
            self.had.push(key);
        }
        if let Some((origin, text)) = overlay {
            let value = parse(&text);
            if value.is_none() {
                let found = format!("found {:?}", redacted(&text));
                document.mistakes.note_outside(&origin, &found, accepted);
            }
            return value;
        }
        let Entry { line, value } = entry?;
        let full = format!("{}.{key}", self.path);
        match value {
            Value::Scalar(text) => {
                let value = parse(&text);
                if value.is_none() {
                    document.mistake(
                        Some(line),
                        &full,
                        &format!("is {:?}", redacted(&text)),
                        accepted,
                    );
                }
                value
            }
            _ => {
                document.mistake(Some(line), &full, "is not a single value", accepted);
                None
            }
        }
    }

    /// Reads a required scalar.
    pub(super) fn read_required<T>(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.read(document, key, accepted, parse);
        self.require(document, key, accepted);
        value
    }

    /// Records a missing required key, after it was read.
    pub(super) fn require(&self, document: &mut Document<'_>, key: &str, accepted: &str) {
        #[cfg(test)]
        keys::set_required(&self.path, key);
        if !self.had(key) {
            document.mistake(self.line, &format!("{}.{key}", self.path), "is missing", accepted);
        }
    }

    /// Reads a list of scalars; empty if absent. Invalid ones are recorded as mistakes and omitted.
    pub(super) fn read_list<T>(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        accepted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        #[cfg(test)]
        keys::add(&self.path, key, accepted, false);
        self.known.push(key);
        let full = format!("{}.{key}", self.path);
        let list = match self.entries.remove(key) {
            None => return Vec::new(),
            Some(Entry { value: Value::List(list), .. }) => list,
            Some(Entry { line, .. }) => {
                self.had.push(key);
                document.mistake(Some(line), &full, "is not a list", accepted);
                return Vec::new();
            }
        };
        if !list.is_empty() {
            self.had.push(key);
        }
        let mut values = Vec::with_capacity(list.len());
        for Entry { line, value } in list {
            let parsed = match &value {
                Value::Scalar(text) => parse(text).ok_or_else(|| format!("has {text:?}")),
                _ => Err("has a value that is not a string".to_owned()),
            };
            match parsed {
                Ok(value) => values.push(value),
                Err(found) => document.mistake(Some(line), &full, &found, accepted),
            }
        }
        values
    }

    /// Records the unread keys as unknown.
    pub(super) fn finish(self, document: &mut Document<'_>) {
        let accepted = self.known.join(", ");
        for (key, Entry { line, .. }) in self.entries {
            document.mistake(
                Some(line),
                &format!("{}.{key}", self.path),
                "is not known",
                &accepted,
            );
        }
    }
}

/// The environment variable that overrides a key, if any.
fn variable(path: &str, key: &str) -> Option<String> {
    match path {
        "server" => Some(format!("RTAD_{}", key.to_uppercase())),
        "store" if key == "url" => Some("RTAD_STORE".to_owned()),
        "store" => Some(format!("RTAD_STORE_{}", key.to_uppercase())),
        _ => None,
    }
}

/// The text, unless it is empty.
pub(super) fn not_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
