//! Tree of TOML values, each with its line.

use std::collections::BTreeMap;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its origin.
#[derive(Debug, Clone)]
pub struct Node {
    pub(crate) origin: Origin,
    pub(crate) value: Value,
}

/// The origin of a value.
#[derive(Debug, Clone)]
pub enum Origin {
    /// A line of the file.
    Line(usize),
    /// A flag or an environment variable.
    Outside(String),
    /// The document itself.
    Root,
}

#[derive(Debug, Clone)]
pub enum Value {
    String(String),
    /// Text of a flag or a variable, which may stand for a value of any type.
    Outside(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// A date, or an integer over 64 bits.
    Other(String),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
    /// A required key that is missing: no type accepts it.
    Missing,
}

/// The way to a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    /// Parses a path such as `platform[0].request.ids`.
    pub fn of(text: &str) -> Self {
        let mut steps = Vec::new();
        for part in text.split('.') {
            let mut names = part.split('[');
            steps.extend(names.next().map(|key| Step::Key(key.to_owned())));
            let index = |name: &str| name.trim_end_matches(']').parse().ok().map(Step::Index);
            steps.extend(names.filter_map(index));
        }
        Self(steps)
    }

    pub fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    pub fn step(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    pub fn starts_with(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if index == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl Node {
    /// An empty document.
    pub const fn root() -> Self {
        Self {
            origin: Origin::Root,
            value: Value::Table(BTreeMap::new()),
        }
    }

    /// Parses a document.
    pub fn parse(text: &str) -> Result<Self, (Option<usize>, String)> {
        match DeTable::parse(text) {
            Ok(table) => Ok(Self {
                origin: Origin::Root,
                value: value(text, DeValue::Table(table.into_inner())),
            }),
            Err(error) => {
                let line = error.span().map(|span| line_of(text, span.start));
                Err((line, error.message().to_owned()))
            }
        }
    }

    /// The line in the file.
    pub const fn line(&self) -> Option<usize> {
        match self.origin {
            Origin::Line(line) => Some(line),
            _ => None,
        }
    }

    /// The value at a path.
    pub fn get(&self, path: &[Step]) -> Option<&Self> {
        path.iter()
            .try_fold(self, |node, step| match (step, &node.value) {
                (Step::Key(key), Value::Table(table)) => table.get(key),
                (Step::Index(index), Value::List(list)) => list.get(*index),
                _ => None,
            })
    }

    fn get_mut(&mut self, path: &[Step]) -> Option<&mut Self> {
        path.iter()
            .try_fold(self, |node, step| match (step, &mut node.value) {
                (Step::Key(key), Value::Table(table)) => table.get_mut(key),
                (Step::Index(index), Value::List(list)) => list.get_mut(*index),
                _ => None,
            })
    }

    /// Sets the value at a path, whose table exists.
    pub fn set(&mut self, path: &Path, node: Self) {
        match path.0.split_last() {
            None => *self = node,
            Some((Step::Key(key), parent)) => {
                if let Some(Self {
                    value: Value::Table(table),
                    ..
                }) = self.get_mut(parent)
                {
                    table.insert(key.clone(), node);
                }
            }
            Some((Step::Index(_), _)) => {
                if let Some(item) = self.get_mut(&path.0) {
                    *item = node;
                }
            }
        }
    }

    /// Puts a table into a list.
    pub fn enclose(&mut self, path: &Path) {
        if let Some(node) = self.get_mut(&path.0) {
            let table = std::mem::replace(&mut node.value, Value::Missing);
            node.value = Value::List(vec![Self {
                origin: node.origin.clone(),
                value: table,
            }]);
        }
    }

    /// Removes the key at a path; returns whether there was one.
    pub fn remove(&mut self, path: &Path) -> bool {
        let Some((Step::Key(key), parent)) = path.0.split_last() else {
            return false;
        };
        match self.get_mut(parent) {
            Some(Self {
                value: Value::Table(table),
                ..
            }) => table.remove(key).is_some(),
            _ => false,
        }
    }

    /// Names of the tables in the root's lists, by the keys of those tables.
    pub fn names(&self) -> BTreeMap<String, String> {
        let Value::Table(root) = &self.value else {
            return BTreeMap::new();
        };
        let tables = root.iter().filter_map(|(key, node)| match &node.value {
            Value::List(list) => Some((key, list)),
            _ => None,
        });
        let items = tables.flat_map(|(key, list)| {
            list.iter()
                .enumerate()
                .map(move |(index, item)| (format!("{key}[{index}]"), item))
        });
        let text = |item: &Self, key: &str| match &item.get(&[Step::Key(key.to_owned())])?.value {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        // A table of tokens has no name.
        let name = |item: &Self| text(item, "name").or_else(|| text(item, "file"));
        items
            .filter_map(|(key, item)| Some((key, name(item)?)))
            .collect()
    }

    /// The first value at a path whose indices stand for any index.
    pub fn first(&self, path: &[Step]) -> Option<&Self> {
        match (path.split_first(), &self.value) {
            (None, _) => Some(self),
            (Some((Step::Key(key), rest)), Value::Table(table)) => table.get(key)?.first(rest),
            (Some((Step::Index(_), rest)), Value::List(list)) => {
                list.iter().find_map(|item| item.first(rest))
            }
            _ => None,
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

fn value(text: &str, parsed: DeValue<'_>) -> Value {
    match parsed {
        DeValue::String(string) => Value::String(string.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::Other(integer.to_string()),
        },
        DeValue::Float(float) => {
            let parsed = float.as_str().parse();
            parsed.map_or_else(|_| Value::Other(float.to_string()), Value::Float)
        }
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Datetime(datetime) => Value::Other(datetime.to_string()),
        DeValue::Array(list) => {
            let item = |item: Spanned<DeValue<'_>>| {
                let origin = Origin::Line(line_of(text, item.span().start));
                Node {
                    origin,
                    value: value(text, item.into_inner()),
                }
            };
            Value::List(list.into_iter().map(item).collect())
        }
        DeValue::Table(table) => {
            let entry = |(key, item): (Spanned<_>, Spanned<DeValue<'_>>)| {
                let origin = Origin::Line(line_of(text, key.span().start));
                let key: std::borrow::Cow<'_, str> = key.into_inner();
                (
                    key.into_owned(),
                    Node {
                        origin,
                        value: value(text, item.into_inner()),
                    },
                )
            };
            Value::Table(table.into_iter().map(entry).collect())
        }
    }
}
