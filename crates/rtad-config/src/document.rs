//! A configuration file with flags and environment over it, and its mistakes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rtad_core::files::read_regular;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Segment, Track};
use toml::de::{DeTable, DeValue};

use crate::mistake::{Location, Mistake, Mistakes, Places};
use crate::tree::{Step, Tree, join};
use crate::wording::Fault;

/// Mistakes of types that one reading reports.
const MAX_MISTAKES: usize = 100;
/// Values in place of a missing key, tried in turn so that the rest of its table is read.
const STAND_INS: [&str; 5] = ["\"a\"", "1", "[]", "\"1h\"", "true"];

/// A parsed document, and the mistakes so far. Keys are written as `platform[0].request.ids`.
pub struct Document<'a> {
    file: &'a str,
    tree: Tree<'a>,
    mistakes: Mistakes,
    contents: DefaultHasher,
    /// The files that were read because a key names them.
    files: Vec<PathBuf>,
    ignores_missing_files: bool,
}

impl<'a> Document<'a> {
    /// Parses a file. Only a text without a file's name may be without keys.
    ///
    /// # Errors
    ///
    /// A syntax error, or no key at all. Then no other mistake is reported, as keys may be missing
    /// only because of it.
    pub fn parse(file: &'a str, text: &'a str) -> Result<Self, Mistakes> {
        let root = match DeTable::parse(text) {
            Ok(root) => root.into_inner(),
            Err(error) => return Err(syntax_mistake(file, text, &error)),
        };

        let tree = Tree::new(root);
        let places = tree.places(file, text);
        let mut document = Self {
            file,
            tree,
            mistakes: Mistakes::new(places),
            contents: DefaultHasher::new(),
            files: Vec::new(),
            ignores_missing_files: false,
        };
        document.saw(text.as_bytes());
        if !file.is_empty() && document.tree.is_empty() {
            let accepted = "at least one key: the file may not be written yet";
            document.mistake("content", "is missing", accepted);
            return Err(document.finish());
        }
        Ok(document)
    }

    /// From now on, a file that the document names may be missing: for readers that do not need its
    /// content, such as a secret.
    pub const fn ignore_missing_files(&mut self) {
        self.ignores_missing_files = true;
    }

    /// Puts the value of a flag or variable, which has this name, over a key of a table, such as
    /// `server.listen`. A text for a key of numbers may be one.
    pub fn put_over(&mut self, key: &str, name: &str, text: &'a str, is_number: bool) {
        let mut value = match DeValue::parse(text) {
            Ok(parsed) if is_number && parsed.get_ref().is_integer() => parsed.into_inner(),
            _ => DeValue::String(text.into()),
        };
        value.make_owned();

        let (table, entry) = key.split_once('.').expect("a key of a table");
        if self.tree.find(table).is_none() {
            self.tree.set(&[], table, DeValue::Table(DeTable::new()));
        }
        self.tree.set(&[Step::Key(table.to_owned())], entry, value);

        let outside = &mut self.mistakes.places_mut().outside;
        outside.insert(key.to_owned(), name.to_owned());
    }

    /// Reads the document. `None` if a key is unknown or missing, or has a value of a wrong type:
    /// all these mistakes are noted.
    pub fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut reading = Reading::of(&self.tree);
        // Each mistake takes another attempt.
        while self.mistakes.list().len() < MAX_MISTAKES {
            let (error, mut steps) = match reading.attempt::<T>() {
                Ok(value) => return self.mistakes.is_empty().then_some(value),
                Err(failure) => (failure.message, failure.steps),
            };

            match Fault::of(&error) {
                Fault::Unknown { key, known } => {
                    if steps.last() != Some(&Step::Key(key.clone())) {
                        steps.push(Step::Key(key));
                    }
                    self.note(
                        reading.key_of(&steps),
                        "is not known".to_owned(),
                        known.join(", "),
                    );
                    reading.leave_out(&steps);
                }
                Fault::Missing { key } => {
                    let path = join(&reading.key_of(&steps), &key);
                    let tried = reading.reported.get_mut(&path);
                    let stand_in = match &tried {
                        // The next attempt says what the key accepts.
                        None => Some("nan"),
                        Some(tried) => STAND_INS.get(**tried).copied(),
                    };
                    match tried {
                        Some(tried) => *tried += 1,
                        None => _ = reading.reported.insert(path, 0),
                    }
                    if let Some(text) = stand_in {
                        reading.tree.set(&steps, &key, parsed(text));
                    } else if !reading.leave_out(&steps) {
                        return None;
                    }
                }
                Fault::NoWord => {
                    // The next attempt lists the words.
                    if let Some(value) = reading.tree.get_mut(&steps) {
                        *value = DeValue::String("".into());
                    }
                }
                Fault::Wrong { found, accepted } => {
                    let path = reading.key_of(&steps);
                    let has_stand_in = reading.reported.get(&path).is_some_and(|tried| *tried > 0);
                    if !has_stand_in {
                        self.note_wrong(path.clone(), found, accepted);
                    }
                    reading.reported.entry(path).or_default();
                    if !reading.leave_out(&steps) {
                        return None;
                    }
                }
            }
        }
        None
    }

    fn note_wrong(&mut self, path: String, found: Option<String>, accepted: String) {
        if let Some(found) = found {
            return self.note(path, found, accepted);
        }

        let value = self.tree.find(&path);
        match value {
            Some(DeValue::Table(_)) if accepted == "a list" && !path.contains(['.', '[']) => {
                let found = format!("is a single table, [{path}]");
                let accepted = format!("[[{path}]]");
                self.note(path, found, accepted);
            }
            // A text in place of a list may be a secret in the wrong key.
            Some(DeValue::String(_)) if ["a list", "a table"].contains(&accepted.as_str()) => {
                self.note(path, "is a string".to_owned(), accepted);
            }
            _ => {
                let found = self.found(&path);
                self.note(path, found, accepted);
            }
        }
    }

    /// The value of a key, for messages. A URL is cut off: it may contain a password.
    fn found(&self, path: &str) -> String {
        let Some(value) = self.tree.find(path) else {
            return "is missing".to_owned();
        };

        match value {
            DeValue::String(text) => match text.split_once("://") {
                Some((scheme, rest)) if rest.contains(['@', '?', '#']) => {
                    format!("is {:?}", format!("{scheme}://…"))
                }
                _ => format!("is {text:?}"),
            },
            DeValue::Integer(integer) => format!("is {integer}"),
            DeValue::Float(float) => format!("is {float}"),
            DeValue::Boolean(boolean) => format!("is {boolean}"),
            DeValue::Datetime(date) => format!("is {date}"),
            DeValue::Array(_) => "is a list".to_owned(),
            DeValue::Table(_) => "is a table".to_owned(),
        }
    }

    fn note(&mut self, path: String, found: String, accepted: String) {
        self.mistakes.add(Mistake {
            location: Location::Key(path),
            found,
            accepted,
        });
    }

    /// Notes a mistake.
    pub fn mistake(&mut self, key: &str, found: &str, accepted: &str) {
        self.note(key.to_owned(), found.to_owned(), accepted.to_owned());
    }

    /// Notes that the value of `key` is not accepted.
    pub fn reject(&mut self, key: &str, accepted: &str) {
        self.mistake(key, &self.found(key), accepted);
    }

    /// Notes that the value of `entry` in the table `key` is not accepted.
    pub fn reject_entry(&mut self, key: &str, entry: &str, accepted: &str) {
        self.reject(&join(key, entry), accepted);
    }

    /// Notes a missing key.
    pub fn require(&mut self, key: &str, accepted: &str) {
        if !self.has(key) {
            self.mistake(key, "is missing", accepted);
        }
    }

    /// Notes every name in `table` that an earlier one has: `audience` and `name`, for instance.
    pub fn refuse_duplicates(&mut self, table: &str, name: &str) {
        let texts = self.texts(table, name);
        for (index, text) in texts
            .iter()
            .enumerate()
            .filter(|(_, text)| !text.is_empty())
        {
            if texts[..index].contains(text) {
                let found = format!("is {text:?} as well as that of an earlier [[{table}]]");
                let accepted = format!("a {name} of its own for each");
                self.mistake(&format!("{table}[{index}].{name}"), &found, &accepted);
            }
        }
    }

    /// Whether the key's value is that of a flag or a variable.
    pub fn is_outside(&self, key: &str) -> bool {
        self.mistakes.places().outside.contains_key(key)
    }

    /// Whether the key is given.
    pub fn has(&self, key: &str) -> bool {
        self.tree.find(key).is_some()
    }

    /// Whether the value of a key, or something in it, has a mistake.
    pub fn has_mistake(&self, key: &str) -> bool {
        self.mistakes
            .keys()
            .any(|wrong| match wrong.strip_prefix(key) {
                Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
                None => false,
            })
    }

    /// The strings at `key` of every table of a list; empty without one.
    pub fn texts(&self, table: &str, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        let lists = self.tree.lists().filter(|(name, _)| name == table);
        for index in lists.flat_map(|(_, length)| 0..length) {
            let text = self.tree.text(&format!("{table}[{index}].{key}"));
            texts.push(text.unwrap_or_default().to_owned());
        }
        texts
    }

    /// File, line and key, for a message about a value that is checked later.
    pub fn described(&self, key: &str) -> String {
        self.mistakes.places().described(key)
    }

    /// The path of a file that the document names, relative to the document's directory.
    pub fn beside(&self, path: impl AsRef<Path>) -> PathBuf {
        let directory = Path::new(self.file).parent();
        directory.unwrap_or(Path::new("")).join(path)
    }

    /// Reads a file that `key` names, notes a mistake if that fails, and adds the contents to the
    /// fingerprint. A pipe is refused: it would block every later reload. `None` also for a missing
    /// file that is ignored.
    pub fn read_file(&mut self, key: &str, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let path = self.beside(path);
        match read_regular(&path) {
            Ok(contents) => {
                self.saw(&contents);
                self.files.push(path);
                Some(contents)
            }
            Err(error) if self.ignores_missing_files && error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                // The name may be a URL with a password, in the wrong key.
                let shown = path.display().to_string();
                let found = match shown.split_once("://") {
                    Some(_) => format!("{}: {error}", self.found(key)),
                    None => format!("is {shown:?}: {error}"),
                };
                self.mistake(key, &found, "a file that can be read");
                None
            }
        }
    }

    fn saw(&mut self, contents: &[u8]) {
        contents.hash(&mut self.contents);
    }

    /// Hash of the document and all files that it names.
    pub fn fingerprint(&self) -> u64 {
        self.contents.finish()
    }

    /// The files that the document names, as far as they were read.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// All mistakes.
    pub fn finish(self) -> Mistakes {
        self.mistakes
    }
}

fn syntax_mistake(file: &str, text: &str, error: &toml::de::Error) -> Mistakes {
    let mut places = Places {
        file: file.to_owned(),
        ..Places::default()
    };
    if let Some(span) = error.span() {
        let before = &text.as_bytes()[..span.start.min(text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        places.lines.insert("syntax".to_owned(), line);
    }

    let mut mistakes = Mistakes::new(places);
    mistakes.add(Mistake {
        location: Location::Key("syntax".to_owned()),
        found: error.message().to_owned(),
        accepted: "TOML 1.0".to_owned(),
    });
    mistakes
}

/// A value that no key accepts. A date would be a table to serde, and a text to some tables.
fn not_accepted() -> DeValue<'static> {
    parsed("nan")
}

fn parsed(text: &'static str) -> DeValue<'static> {
    DeValue::parse(text).expect("a value of TOML").into_inner()
}

/// Attempts to read a document, each without the values whose mistakes are known.
struct Reading<'a> {
    /// The values that are still read.
    tree: Tree<'a>,
    /// For each list that lost items, the indices in the document of those still read.
    kept: BTreeMap<String, Vec<usize>>,
    /// Keys that are missing or wrong, and how many stand-ins were tried.
    reported: BTreeMap<String, usize>,
}

/// A failed attempt.
struct Failure {
    message: String,
    /// The way to the value in the tree that is still read.
    steps: Vec<Step>,
}

impl<'a> Reading<'a> {
    fn of(document: &Tree<'a>) -> Self {
        let mut tree = document.clone();
        tree.replace_dates(&not_accepted());
        Self {
            tree,
            kept: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }

    fn attempt<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let mut track = Track::new();
        let of_tree = self.tree.to_deserializer();
        let deserializer = serde_path_to_error::Deserializer::new(of_tree, &mut track);
        T::deserialize(deserializer).map_err(|error| Failure {
            message: error.message().to_owned(),
            steps: steps_of(&track.path()),
        })
    }

    /// The key in the document.
    fn key_of(&self, steps: &[Step]) -> String {
        let mut key = String::new();
        for step in steps {
            key = match step {
                Step::Key(name) => join(&key, name),
                Step::Index(index) => {
                    let index = self.kept.get(&key).map_or(*index, |kept| kept[*index]);
                    format!("{key}[{index}]")
                }
            };
        }
        key
    }

    /// Leaves out a value. Returns whether there is more to read.
    fn leave_out(&mut self, steps: &[Step]) -> bool {
        let Some((last, around)) = steps.split_last() else {
            return false;
        };

        if let Step::Index(index) = last
            && let Some(DeValue::Array(list)) = self.tree.get_mut(around)
        {
            let length = list.len();
            let kept = self.kept.entry(self.key_of(around));
            kept.or_insert_with(|| (0..length).collect()).remove(*index);
        }
        self.tree.remove(steps);
        true
    }
}

fn steps_of(path: &serde_path_to_error::Path) -> Vec<Step> {
    let mut steps = Vec::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => steps.push(Step::Index(*index)),
            // The parts of a text with its location.
            Segment::Map { key } if key.starts_with("$__serde_spanned") => {}
            Segment::Map { key } => steps.push(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    steps
}
