//! Reference page of a program's TOML. Each fact about a key is found by reading the example with
//! one change to it, so the page says what the program does.

use toml::{Table, Value};

use crate::reference::wrap;

/// The default of a key that may be absent. The page says it once, not at each key.
const UNSET: &str = "unset";

/// A mistake: its key, the value found, and the accepted values.
pub struct Finding {
    /// The key, such as `platform[0].name`.
    pub key: String,
    /// The value in the document.
    pub found: String,
    /// The accepted values.
    pub accepted: String,
}

/// The configuration of a program.
pub struct ConfigReference<'a> {
    /// A valid document with a value other than the default of every key that has one.
    pub example: &'a str,
    /// Tables and their headings: `platform[].request` and so on.
    pub tables: &'a [(&'a str, &'a str)],
    /// Accepted values that several keys have, and their names: the page describes them once.
    pub named_values: &'a [(&'a str, &'a str)],
    /// Reads a document: the configuration as printed, and all mistakes.
    pub read: &'a dyn Fn(&str) -> (Value, Vec<Finding>),
    /// Doc comment of the field of a key in a table.
    pub describe: &'a dyn Fn(&str, &str) -> Option<&'static str>,
    /// Further facts of a key, such as its environment variable.
    pub facts: &'a dyn Fn(&str) -> Vec<String>,
}

/// Values that hardly any key accepts: a date, and texts where a date says too little.
const DATE: &str = "1979-05-27";
const PROBES: [(&str, &str); 4] = [
    ("a string", "\"?\""),
    ("a string or a list of strings", "\"?\""),
    ("a list", "[\"?\"]"),
    ("a table", "{ \"?\" = \"?\" }"),
];

impl ConfigReference<'_> {
    /// The tables, with a section for each key.
    ///
    /// # Panics
    ///
    /// If the example is not valid, a key has no doc comment, or its value in the example is the
    /// default.
    pub fn page(&self) -> String {
        let (printed, findings) = (self.read)(self.example);
        assert!(
            findings.is_empty(),
            "the example: {} {}",
            findings[0].key,
            findings[0].found
        );
        let example: Table = self.example.parse().unwrap();
        let mut page = self.values_section();
        for (table, heading) in self.tables {
            page.push_str(&format!("## {heading}\n\n"));
            let places = places(&example, table);
            let unknown = self.findings(&example, &join(&places[0], "?"), Some("1"));
            for key in unknown[0].accepted.split(", ") {
                if table.is_empty() && self.is_listed(key) {
                    continue;
                }
                let path = |place: &String| join(place, key);
                let is_given = |path: &String| get(&example, path).is_some();
                let given = places.iter().map(path).find(is_given);
                let path = given.clone().unwrap_or_else(|| path(&places[0]));
                let removed = self.findings(&example, &path, None);
                // A key that another such table of the example lacks is needed beside others.
                let is_required = removed.iter().any(|finding| finding.found == "is missing")
                    && places.iter().all(|place| is_given(&join(place, key)));
                let default = self.default_of(&example, &path);
                if given.is_some() && !is_required {
                    let shown = printed.as_table().and_then(|table| get(table, &path));
                    let is_default = shown.is_some_and(|value| format!("`{value}`") == default);
                    assert!(
                        !is_default,
                        "{path}: a value in the example other than the default"
                    );
                }
                let general = if table.is_empty() {
                    key.to_owned()
                } else {
                    format!("{table}.{key}")
                };
                let docs = (self.describe)(table, key);
                let docs = docs.unwrap_or_else(|| panic!("{general}: a field with a doc comment"));
                let accepted = self.accepted(&example, &path);
                let has_section = self.tables.iter().any(|(table, _)| *table == general);
                let accepted = if has_section {
                    "a table".to_owned()
                } else {
                    self.with_names(&with_code(&accepted))
                };
                let mut facts = vec![format!("**Value:** {accepted}")];
                if is_required {
                    facts.push("**required**".to_owned());
                } else if default != UNSET {
                    facts.push(format!("**default:** {default}"));
                }
                facts.extend((self.facts)(&general));
                let facts = wrap(&facts.join("; "));
                // Links of rustdoc are code here.
                let docs = wrap(&docs.replace("[`", "`").replace("`]", "`"));
                page.push_str(&format!("### `{key}`\n\n{docs}\n\n{facts}\n\n"));
            }
        }
        page
    }

    /// Section of the values that have names; empty without any.
    fn values_section(&self) -> String {
        if self.named_values.is_empty() {
            return String::new();
        }
        let rows = self.named_values.iter();
        let rows: String = rows
            .map(|(value, name)| format!("| {name} | {value} |\n"))
            .collect();
        format!("## Values\n\n| value | accepted |\n|---|---|\n{rows}\n")
    }

    /// A description of accepted values, with the name of each named value in its place.
    fn with_names(&self, accepted: &str) -> String {
        let mut text = accepted.to_owned();
        for (value, name) in self.named_values {
            text = text.replace(value, &format!("[{name}](#values)"));
        }
        text
    }

    /// Whether a key of the top level is a table with a section of its own.
    fn is_listed(&self, key: &str) -> bool {
        let name = |(table, _): &(&str, &str)| table.trim_end_matches("[]") == key;
        self.tables.iter().any(name)
    }

    /// The findings about a key, and in it, if it has this value.
    fn findings(&self, example: &Table, path: &str, value: Option<&str>) -> Vec<Finding> {
        let (_, mut findings) = (self.read)(&changed(example, path, value));
        findings.retain(|finding| finding.key.starts_with(path));
        findings
    }

    fn default_of(&self, example: &Table, path: &str) -> String {
        let (printed, _) = (self.read)(&changed(example, path, None));
        let value = printed.as_table().and_then(|table| get(table, path));
        match value.filter(|value| value.as_str() != Some("<redacted>")) {
            Some(value) => format!("`{value}`"),
            None => UNSET.to_owned(),
        }
    }

    fn accepted(&self, example: &Table, path: &str) -> String {
        let accepted = |value: &str| {
            let findings = self.findings(example, path, Some(value));
            findings.into_iter().next().map(|finding| finding.accepted)
        };
        let general = accepted(DATE).unwrap_or_else(|| panic!("{path}: no date"));
        let Some((_, probe)) = PROBES.into_iter().find(|(words, _)| *words == general) else {
            return general;
        };
        let special = accepted(probe).or_else(|| match general.as_str() {
            "a list" => accepted(&format!("[{DATE}]")),
            _ => None,
        });
        match (general.as_str(), special) {
            // A finding about the whole list.
            ("a list", Some(list)) if list.starts_with("a list ") => list,
            ("a list", Some(each)) => format!("a list, each {each}"),
            ("a table", Some(keys)) if !keys.starts_with('{') => format!("a table: {keys}"),
            (_, Some(special)) => special,
            (_, None) => general,
        }
    }
}

/// Where the example has a table such as `platform[].request`.
fn places(example: &Table, table: &str) -> Vec<String> {
    let mut places = vec![String::new()];
    for part in table.split('.').filter(|part| !part.is_empty()) {
        let key = part.trim_end_matches("[]");
        let paths = places.iter().map(|place| join(place, key));
        let found = paths.filter_map(|path| get(example, &path).map(|value| (path, value)));
        places = found
            .flat_map(|(path, value)| match value {
                Value::Array(list) if part.ends_with("[]") => (0..list.len())
                    .map(|index| format!("{path}[{index}]"))
                    .collect(),
                _ => vec![path],
            })
            .collect();
    }
    assert!(!places.is_empty(), "{table}: a table of the example");
    places
}

fn join(table: &str, key: &str) -> String {
    if table.is_empty() {
        key.to_owned()
    } else {
        format!("{table}.{key}")
    }
}

/// The steps of a path such as `platform[0].name`.
fn steps(path: &str) -> impl Iterator<Item = (&str, Option<usize>)> {
    path.split('.').map(|part| match part.split_once('[') {
        Some((key, index)) => (key, index.trim_end_matches(']').parse().ok()),
        None => (part, None),
    })
}

fn get<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let mut found: Option<&Value> = None;
    for (key, index) in steps(path) {
        let table = match found {
            Some(value) => value.as_table()?,
            None => table,
        };
        let value = table.get(key)?;
        found = Some(match index {
            Some(index) => value.get(index)?,
            None => value,
        });
    }
    found
}

/// The example as text, with another value or none at a path.
fn changed(example: &Table, path: &str, value: Option<&str>) -> String {
    let mut example = example.clone();
    let (parents, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut table = &mut example;
    for (key, index) in steps(parents).filter(|_| !parents.is_empty()) {
        let value = table.get_mut(key).unwrap();
        let value = match index {
            Some(index) => value.get_mut(index).unwrap(),
            None => value,
        };
        table = value.as_table_mut().unwrap();
    }
    match value {
        Some(text) => {
            let parsed: Table = format!("value = {text}").parse().unwrap();
            table.insert(key.to_owned(), parsed["value"].clone());
        }
        None => {
            table.remove(key);
        }
    }
    example.to_string()
}

/// Text with tables in braces as code: Markdown would read them as attributes.
fn with_code(text: &str) -> String {
    let (mut out, mut depth) = (String::new(), 0);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '{' {
            depth += 1;
            if depth == 1 && !out.ends_with('}') {
                out.push('`');
            }
        }
        out.push(letter);
        if letter == '}' {
            depth -= 1;
            if depth == 0 && letters.peek() != Some(&'{') {
                out.push('`');
            }
        }
    }
    out
}
