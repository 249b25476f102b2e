//! Accepted values in the words of a message, from the texts of serde's errors.

/// The mistake that an error of serde describes.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// A required key of the table is missing.
    Missing { key: String },
    /// A key is not known; the known ones, in the order of the fields.
    Unknown { key: String, known: Vec<String> },
    /// An enumeration got a value other than a text.
    NoWord,
    Wrong {
        /// `None` stands for the value itself.
        found: Option<String>,
        accepted: String,
    },
}

impl Fault {
    /// Of serde's derived code; or of a function for `deserialize_with`: the accepted values,
    /// `FOUND; accepted: ACCEPTED`, or `NAME: expected ACCEPTED`.
    pub fn of(message: &str) -> Self {
        if let Some(rest) = message.strip_prefix("missing field `") {
            let key = rest.trim_end_matches('`').to_owned();
            return Self::Missing { key };
        }
        if let Some(rest) = message.strip_prefix("unknown field `") {
            let expected = rest.rsplit_once("`, expected ");
            let (key, known) =
                expected.unwrap_or((rest.trim_end_matches("`, there are no fields"), ""));
            return Self::Unknown {
                key: key.to_owned(),
                known: words(known),
            };
        }
        if message.starts_with("wanted string or table")
            || message.starts_with("wanted exactly 1 element")
            || message.starts_with("expected table, found")
            || message.starts_with("expected empty")
        {
            return Self::NoWord;
        }

        if let Some((found, accepted)) = message.split_once("; accepted: ") {
            return Self::Wrong {
                found: Some(found.to_owned()),
                accepted: accepted.to_owned(),
            };
        }
        Self::Wrong {
            found: None,
            accepted: accepted(message),
        }
    }
}

/// The quoted words of a list such as "one of `a`, `b`".
fn words(list: &str) -> Vec<String> {
    let quoted = list.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

fn accepted(message: &str) -> String {
    if message.starts_with("unknown variant `") {
        let (_, known) = message.rsplit_once("`, expected ").unwrap_or_default();
        return one_of(&words(known));
    }

    if message.starts_with("invalid type: ")
        || message.starts_with("invalid value: ")
        || message.starts_with("invalid length ")
    {
        // The value may have any text, so the last `expected` counts.
        let (_, expected) = message.rsplit_once(", expected ").unwrap_or_default();
        return in_words(expected).to_owned();
    }

    match message {
        "integer number overflowed" => return "a whole number".to_owned(),
        "floating-point number overflowed" => return "a number".to_owned(),
        _ => {}
    }

    match message.split_once(": expected ") {
        Some((_, accepted)) => accepted.to_owned(),
        None => message.to_owned(),
    }
}

/// A list as a sentence has it: `a, b or c`.
fn one_of(words: &[String]) -> String {
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

fn in_words(expected: &str) -> &str {
    match expected {
        "a boolean" => "true or false",
        "a map" => "a table",
        "a sequence" => "a list",
        "path string" => "a path",
        "f64" => "a number",
        "i64" | "u64" | "usize" | "u16" | "u32" => "a whole number",
        structure if structure.starts_with("struct ") => "a table",
        other => other,
    }
}
