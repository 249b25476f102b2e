//! A configuration file with flags and environment over it, and its mistakes.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::path::{Path as FilePath, PathBuf};

use rtad_core::files::read_regular;
use serde::de::DeserializeOwned;

use crate::deserializer::{Fault, Noted, Notes, Reader};
use crate::mistake::{Location, Mistake, Mistakes};
use crate::node::{Node, Origin, Path, Step, Value};

/// Wrong values that are reported; each is another reading.
const MAX_WRONG: usize = 100;

/// A parsed document, and the mistakes so far. Keys are written as `platform[0].request.ids`.
pub struct Document<'a> {
    file: &'a str,
    /// A valid document with every key: its values replace wrong ones, so that reading continues.
    example: &'a str,
    given: Node,
    readable: Node,
    /// Paths that were replaced or removed. Later mistakes there have the same cause.
    wrong: BTreeSet<Path>,
    has_syntax: bool,
    mistakes: Mistakes,
    contents: DefaultHasher,
    ignores_missing_files: bool,
}

impl<'a> Document<'a> {
    /// Parses a file. After a syntax error no other mistake is reported, as keys may be missing
    /// only because of it. `example` is a valid document that has every key.
    pub fn parse(file: &'a str, text: &str, example: &'a str) -> Self {
        let mut mistakes = Mistakes::in_file(file);
        let parsed = Node::parse(text);
        let has_syntax = parsed.is_ok();
        let given = parsed.unwrap_or_else(|(line, message)| {
            let location = Location {
                line,
                key: "syntax".to_owned(),
                is_outside: false,
            };
            mistakes.add(Mistake {
                location,
                found: message,
                accepted: "TOML 1.0".to_owned(),
            });
            Node::root()
        });
        let mut document = Self {
            file,
            example,
            readable: given.clone(),
            given,
            wrong: BTreeSet::new(),
            has_syntax,
            mistakes,
            contents: DefaultHasher::new(),
            ignores_missing_files: false,
        };
        document.saw(text.as_bytes());
        document
    }

    /// From now on, a file that the document names may be missing: for readers that do not need its
    /// content, such as a secret.
    pub const fn ignore_missing_files(&mut self) {
        self.ignores_missing_files = true;
    }

    /// Puts the value of a flag or variable, which has this name, over a key of a table, such as
    /// `server.listen`.
    pub fn put_over(&mut self, key: &str, name: &str, value: &str) {
        let path = Path::of(key);
        let table = Path(path.0[..path.0.len() - 1].to_vec());

        for root in [&mut self.given, &mut self.readable] {
            if root.get(&table.0).is_none() {
                root.set(&table, Node::root());
            }
            let node = Node {
                origin: Origin::Outside(name.to_owned()),
                value: Value::Outside(value.to_owned()),
            };
            root.set(&path, node);
        }
    }

    /// Reads the document, and notes every wrong type, unknown key and missing key.
    ///
    /// # Panics
    ///
    /// If the example is not valid.
    pub fn read<T: DeserializeOwned>(&mut self) -> T {
        loop {
            let notes = Notes::default();
            let reader = Reader {
                node: &self.readable,
                path: Path::default(),
                notes: &notes,
            };
            let result = T::deserialize(reader);
            for (path, noted) in notes.mistakes.into_inner() {
                let (found, accepted) = match noted {
                    Noted::UnknownKey(known) => ("is not known".to_owned(), known.join(", ")),
                    Noted::SingleTable => {
                        self.given.enclose(&path);
                        self.readable.enclose(&path);
                        let name = path.to_string();
                        let name = name.split('[').next().unwrap_or_default();
                        (
                            format!("is a single table, [{name}]"),
                            format!("[[{name}]]"),
                        )
                    }
                };
                self.note(&path, found, accepted);
            }
            let error = match result {
                Ok(value) => return value,
                Err(error) => error,
            };
            let path = error.path.unwrap_or_default();
            match error.fault {
                Fault::Missing(key) => {
                    let origin = self.readable.get(&path.0).map(|table| table.origin.clone());
                    let origin = origin.unwrap_or(Origin::Root);
                    self.readable.set(
                        &path.key(key),
                        Node {
                            origin,
                            value: Value::Missing,
                        },
                    );
                }
                Fault::Wrong { found, accepted } => {
                    // A text in place of a list may be a secret in the wrong key.
                    let is_hidden = ["a list", "a table"].contains(&accepted.as_str());
                    let is_text = matches!(
                        self.readable.get(&path.0),
                        Some(Node {
                            value: Value::String(_),
                            ..
                        })
                    );
                    let found = found.unwrap_or_else(|| match is_hidden && is_text {
                        true => "is a string".to_owned(),
                        false => self.found(&path),
                    });
                    self.note(&path, found, accepted);
                    self.replace(path);
                }
            }
        }
    }

    /// Puts the example's value in place of a wrong one, or removes it if the example has none. If
    /// that was not enough, does so with the table around it.
    fn replace(&mut self, mut path: Path) {
        if self.wrong.len() > MAX_WRONG {
            path = Path::default();
        }
        let example = Node::parse(self.example).expect("the example is valid TOML");
        loop {
            let is_new = self.wrong.insert(path.clone());
            let node = self.readable.get(&path.0);
            let is_missing = matches!(
                node,
                Some(Node {
                    value: Value::Missing,
                    ..
                })
            );
            let origin = node.map_or(Origin::Root, |node| node.origin.clone());
            match example.first(&path.0) {
                Some(node) if is_new => {
                    return self.readable.set(
                        &path,
                        Node {
                            origin,
                            value: node.value.clone(),
                        },
                    );
                }
                None if is_new && !is_missing && self.readable.remove(&path) => return,
                _ => path.0.pop().expect("the example is a valid configuration"),
            };
        }
    }

    /// The value at a path, for messages. A URL is cut off: it may contain a password.
    fn found(&self, path: &Path) -> String {
        let Some(node) = self.readable.get(&path.0) else {
            return "is missing".to_owned();
        };
        match &node.value {
            Value::String(text) | Value::Outside(text) => match text.split_once("://") {
                Some((scheme, rest)) if rest.contains(['@', '?', '#']) => {
                    format!("is {:?}", format!("{scheme}://…"))
                }
                _ => format!("is {text:?}"),
            },
            Value::Integer(integer) => format!("is {integer}"),
            Value::Float(float) => format!("is {float}"),
            Value::Boolean(boolean) => format!("is {boolean}"),
            Value::Other(text) => format!("is {text}"),
            Value::List(_) => "is a list".to_owned(),
            Value::Table(_) => "is a table".to_owned(),
            Value::Missing => "is missing".to_owned(),
        }
    }

    fn note(&mut self, path: &Path, found: String, accepted: String) {
        if !self.wrong.iter().any(|wrong| path.starts_with(wrong)) {
            self.mistakes.add(Mistake {
                location: self.location_of(path),
                found,
                accepted,
            });
        }
    }

    /// The location of a path, or of the innermost table around it.
    fn location_of(&self, path: &Path) -> Location {
        let nodes = (0..=path.0.len())
            .rev()
            .filter_map(|end| self.given.get(&path.0[..end]));
        let node = nodes.into_iter().next().unwrap_or(&self.given);
        match &node.origin {
            Origin::Outside(name) => Location {
                line: None,
                key: name.clone(),
                is_outside: true,
            },
            _ => Location {
                line: node.line(),
                key: path.to_string(),
                is_outside: false,
            },
        }
    }

    /// Notes a mistake, unless the value of `key` is known to be wrong.
    pub fn mistake(&mut self, key: &str, found: &str, accepted: &str) {
        self.note(&Path::of(key), found.to_owned(), accepted.to_owned());
    }

    /// Notes that the value of `key` is not accepted.
    pub fn reject(&mut self, key: &str, accepted: &str) {
        self.reject_in(key, None, accepted);
    }

    /// Notes that the value of `entry` in the table `key` is not accepted.
    pub fn reject_entry(&mut self, key: &str, entry: &str, accepted: &str) {
        self.reject_in(key, Some(entry), accepted);
    }

    fn reject_in(&mut self, key: &str, entry: Option<&str>, accepted: &str) {
        let path = Path::of(key);
        let path = entry.map_or(path.clone(), |entry| path.key(entry));
        self.note(&path, self.found(&path), accepted.to_owned());
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

    /// Whether the key is given, valid or not.
    pub fn has(&self, key: &str) -> bool {
        self.given.get(&Path::of(key).0).is_some()
    }

    /// Whether the value of a key, or something in it, has a mistake.
    pub fn has_mistake(&self, key: &str) -> bool {
        let is_in = |path: &Path| path.starts_with(&Path::of(key));
        let noted = |mistake: &Mistake| is_in(&Path::of(&mistake.location.key));
        self.wrong.iter().any(is_in) || self.mistakes.list().iter().any(noted)
    }

    /// Whether reading replaced the value of a key, something in it, or a table around it, as it
    /// was wrong.
    pub fn is_replaced(&self, key: &str) -> bool {
        let path = Path::of(key);
        self.wrong
            .iter()
            .any(|wrong| wrong.starts_with(&path) || path.starts_with(wrong))
    }

    /// The strings at `key` of every table of a list, including invalid ones; empty without one.
    pub fn texts(&self, table: &str, key: &str) -> Vec<String> {
        let text = |index| {
            let path = Path::of(table).step(Step::Index(index)).key(key);
            match &self.given.get(&path.0)?.value {
                Value::String(text) => Some(text.clone()),
                _ => None,
            }
        };
        let list = self.given.get(&Path::of(table).0);
        let length = match list.map(|list| &list.value) {
            Some(Value::List(list)) => list.len(),
            _ => 0,
        };
        (0..length)
            .map(|index| text(index).unwrap_or_default())
            .collect()
    }

    /// The location of a key.
    pub fn location(&self, key: &str) -> Location {
        self.location_of(&Path::of(key))
    }

    /// File, line and key, for a message about a value that is checked later.
    pub fn described(&self, key: &str) -> String {
        self.mistakes
            .described(&self.location(key), &self.given.names())
    }

    /// The path of a file that the document names, relative to the document's directory.
    pub fn beside(&self, path: impl AsRef<FilePath>) -> PathBuf {
        FilePath::new(self.file)
            .parent()
            .unwrap_or(FilePath::new(""))
            .join(path)
    }

    /// Reads a file that `key` names, notes a mistake if that fails, and adds the contents to the
    /// fingerprint. A pipe is refused: it would block every later reload. `None` also for a missing
    /// file that is ignored.
    pub fn read_file(&mut self, key: &str, path: impl AsRef<FilePath>) -> Option<Vec<u8>> {
        let path = self.beside(path);
        match read_regular(&path) {
            Ok(contents) => {
                self.saw(&contents);
                Some(contents)
            }
            Err(error) if self.ignores_missing_files && error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                let found = format!("is {:?}: {error}", path.display().to_string());
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

    /// All mistakes.
    pub fn finish(mut self) -> Mistakes {
        if !self.has_syntax {
            self.mistakes.keep_first();
        }
        self.mistakes.set_names(self.given.names());
        self.mistakes
    }
}
