//! Text of a report: a headline, then the fields of its JSON, aligned.
//!
//! A field without a value is left out, and so is a flag that is not set. Names of units at the end
//! of a field's name, such as `_bytes`, say how its value is written.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, HumanDuration};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::lineage_args::rfc3339;

/// Fields that a headline usually says.
const IN_HEADLINE: [&str; 2] = ["audience", "generation"];
/// Longest text of an object in one line.
const MAX_INLINE_CHARS: usize = 80;
/// A longer list of objects is counted only.
const MAX_TABLE_ROWS: usize = 12;
/// Counts by reasons of which most do not occur. Their zeros are left out.
const COUNTS_BY_REASON: [&str; 3] = ["rejected", "deltas", "carried"];
/// More inputs than these are summed up, with lines only for those with most malformed values.
const MAX_INPUT_ROWS: usize = 5;
const WORST_INPUTS: usize = 3;

/// A JSON value whose fields keep their order.
#[derive(Debug)]
enum Value {
    Null,
    Flag(bool),
    Integer(i128),
    Number(f64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// Writes a report.
pub fn write_report(
    out: &mut dyn Write,
    headline: &str,
    report: &impl Serialize,
) -> io::Result<()> {
    writeln!(out, "{headline}")?;

    let json = serde_json::to_vec(report)?;
    let Value::Object(mut fields) = serde_json::from_slice(&json)? else {
        return Ok(());
    };
    fields.retain(|(name, value)| !is_said(headline, name, value));
    write_fields(out, &fields, 2)
}

/// Whether the headline says a field already.
fn is_said(headline: &str, name: &str, value: &Value) -> bool {
    if name == "dry_run" {
        return true;
    }
    let text = inline_text(name, value).unwrap_or_default();
    IN_HEADLINE.contains(&name)
        && headline
            .split(' ')
            .any(|word| word.trim_end_matches([':', ';', ',']) == text)
}

fn write_fields(out: &mut dyn Write, fields: &[(String, Value)], indent: usize) -> io::Result<()> {
    let mut labels: Vec<String> = Vec::new();
    for (name, _) in fields {
        labels.push(label_of(name));
    }
    let mut width = 0;
    for (label, (name, value)) in labels.iter().zip(fields) {
        if !is_absent(value) && name != "more_inputs" {
            width = width.max(label.chars().count());
        }
    }

    for (index, (label, (name, value))) in labels.iter().zip(fields).enumerate() {
        // A time is there as a number and as text.
        let is_repeated = labels[..index].contains(label);
        if is_repeated || is_absent(value) || name == "more_inputs" {
            continue;
        }

        if let Value::List(inputs) = value
            && name == "inputs"
            && inputs.len() > MAX_INPUT_ROWS
        {
            let mut more = 0;
            for (name, count) in fields {
                if name == "more_inputs" {
                    more = count.integer();
                }
            }
            writeln!(
                out,
                "{:indent$}{label:<width$}  {}",
                "",
                inputs_text(inputs, more)
            )?;
            write_worst_inputs(out, inputs, indent)?;
            continue;
        }
        if let Some(text) = inline_text(name, value) {
            writeln!(out, "{:indent$}{label:<width$}  {text}", "")?;
            continue;
        }
        match value {
            Value::Object(fields) => {
                writeln!(out, "{:indent$}{label}", "")?;
                write_fields(out, fields, indent + 2)?;
            }
            Value::List(rows) if rows.len() <= MAX_TABLE_ROWS => {
                writeln!(out, "{:indent$}{label}", "")?;
                write_table(out, &rows.iter().collect::<Vec<_>>(), indent + 2)?;
            }
            Value::List(rows) => {
                let count = HumanCount(rows.len() as u64);
                writeln!(out, "{:indent$}{label:<width$}  {count}", "")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The number of inputs, `more` of which are not listed, and their size.
fn inputs_text(inputs: &[Value], more: i128) -> String {
    let count = integer_text("", inputs.len() as i128 + more);
    let mut size_bytes = 0;
    for input in inputs {
        match input.field("size_bytes") {
            Some(size) => size_bytes += size.integer(),
            None => return count,
        }
    }
    match more {
        0 => format!("{count} of {}", integer_text("size_bytes", size_bytes)),
        _ => count,
    }
}

/// Writes the inputs with most malformed values, if any has one.
fn write_worst_inputs(out: &mut dyn Write, inputs: &[Value], indent: usize) -> io::Result<()> {
    let mut worst = Vec::new();
    for input in inputs {
        if malformed(input) > 0 {
            worst.push(input);
        }
    }
    if worst.is_empty() {
        return Ok(());
    }

    worst.sort_by_key(|input| -malformed(input));
    worst.truncate(WORST_INPUTS);
    writeln!(out, "{:indent$}most malformed", "")?;
    write_table(out, &worst, indent + 2)
}

fn malformed(input: &Value) -> i128 {
    input.field("malformed").map_or(0, Value::integer)
}

/// Writes objects as rows, under the names of their fields.
fn write_table(out: &mut dyn Write, rows: &[&Value], indent: usize) -> io::Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        for (name, value) in row.fields() {
            // Tags are long, and say nothing to a reader.
            if !is_absent(value) && name != "version" && !names.contains(&&**name) {
                names.push(name);
            }
        }
    }

    let mut lines = vec![Vec::new()];
    for name in &names {
        lines[0].push(label_of(name));
    }
    for row in rows {
        let mut cells = Vec::new();
        for name in &names {
            let text = row.field(name).and_then(|value| inline_text(name, value));
            cells.push(text.unwrap_or_default());
        }
        lines.push(cells);
    }

    let mut widths = vec![0; names.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    for line in &lines {
        let mut text = " ".repeat(indent);
        for (column, (width, cell)) in widths.iter().zip(line).enumerate() {
            // The first column is a name, the others are mostly numbers.
            if column == 0 {
                text += &format!("{cell:<width$}");
            } else {
                text += &format!("  {cell:>width$}");
            }
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

/// Whether a report says nothing by this value.
fn is_absent(value: &Value) -> bool {
    match value {
        Value::Null | Value::Flag(false) => true,
        Value::List(items) => items.is_empty(),
        Value::Object(fields) => fields.iter().all(|(_, value)| is_absent(value)),
        _ => false,
    }
}

/// The value in one line; `None` of a list of objects, and of an object that is too long.
fn inline_text(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Flag(is_set) => Some(if *is_set { "yes" } else { "no" }.to_owned()),
        Value::Integer(number) => Some(integer_text(name, *number)),
        Value::Number(number) => Some(number_text(name, *number)),
        Value::Text(text) => Some(text.clone()),
        Value::List(items) => {
            let mut texts = Vec::new();
            for item in items {
                if matches!(item, Value::Object(_)) {
                    return None;
                }
                texts.push(inline_text(name, item)?);
            }
            Some(texts.join(", "))
        }
        // A user's own names and values.
        Value::Object(fields) if name == "labels" => {
            let mut parts = Vec::new();
            for (name, value) in fields {
                parts.push(format!("{name}={}", inline_text(name, value)?));
            }
            Some(parts.join(" "))
        }
        Value::Object(fields) => {
            let mut parts = Vec::new();
            let drops_zeros = COUNTS_BY_REASON.contains(&name);
            for (name, value) in fields.iter().filter(|(_, value)| !is_absent(value)) {
                let label = label_of(name);
                match value {
                    Value::Integer(0) if drops_zeros => {}
                    Value::Flag(_) => parts.push(label),
                    Value::Object(_) => return None,
                    _ => parts.push(format!("{label} {}", inline_text(name, value)?)),
                }
            }

            if parts.is_empty() {
                return Some("0".to_owned());
            }
            let text = parts.join(", ");
            if text.chars().count() > MAX_INLINE_CHARS {
                return None;
            }
            Some(text)
        }
    }
}

fn integer_text(name: &str, number: i128) -> String {
    let amount = u64::try_from(number.unsigned_abs()).unwrap_or(u64::MAX);
    let sign = if number < 0 { "-" } else { "" };
    if name.ends_with("_bytes") {
        format!("{sign}{}", HumanBytes(amount))
    } else if name.ends_with("_unix_seconds") {
        rfc3339(amount)
    } else if name.ends_with("_seconds") {
        HumanDuration(Duration::from_secs(amount)).to_string()
    } else {
        format!("{sign}{}", HumanCount(amount))
    }
}

fn number_text(name: &str, number: f64) -> String {
    if name.ends_with("_seconds") {
        return format!("{number:.1} s");
    }
    if number != 0.0 && number.abs() < 0.01 {
        return format!("{number:.3e}");
    }
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The name of a field without its unit.
fn label_of(name: &str) -> String {
    let mut stem = name;
    for unit in ["_unix_seconds", "_seconds", "_bytes"] {
        if let Some(rest) = name.strip_suffix(unit) {
            stem = rest;
            break;
        }
    }
    stem.replace('_', " ")
}

impl Value {
    fn field(&self, name: &str) -> Option<&Self> {
        let mut fields = self.fields().iter();
        fields
            .find(|(field, _)| field == name)
            .map(|(_, value)| value)
    }

    /// 0 if it is another value.
    const fn integer(&self) -> i128 {
        match self {
            Self::Integer(number) => *number,
            _ => 0,
        }
    }

    fn fields(&self) -> &[(String, Self)] {
        match self {
            Self::Object(fields) => fields,
            _ => &[],
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Integer(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = entries.next_entry()? {
            fields.push(field);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_aligned_with_their_units() {
        let report = serde_json::json!({
            "audience": "a",
            "keys": 12_345,
            "keys_difference": -1_500,
            "size_bytes": 2048,
            "read_seconds": 1.26,
            "fpr": 0.00012,
            "ratio": 0.5,
            "signed": false,
            "skewed": true,
            "none": null,
            "carried": {"added": 1000, "kept": true, "lost": false},
            "inputs": [
                {"name": "a.txt", "rows": 1200, "size_bytes": 10},
                {"name": "-", "rows": 7},
            ],
            "kept_generations": [1, 2],
        });
        let mut text = Vec::new();
        write_report(&mut text, "published a generation 3", &report).unwrap();
        // The fields of this value are in the order of their names.
        let expected = "\
published a generation 3
  carried           added 1,000, kept
  fpr               1.200e-4
  inputs
    name   rows  size
    a.txt  1,200  10 B
";
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with(&expected[..expected.find("    name").unwrap()]),
            "{text}"
        );
        for line in [
            "    name    rows  size",
            "    a.txt  1,200  10 B",
            "    -          7",
            "  keys              12,345",
            "  keys difference   -1,500",
            "  kept generations  1, 2",
            "  ratio             0.5",
            "  read              1.3 s",
            "  size              2.00 KiB",
            "  skewed            yes",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line:?} in\n{text}"
            );
        }
        assert!(!text.contains("signed") && !text.contains("none"), "{text}");
    }

    #[test]
    fn many_inputs_are_summed_up_with_the_worst() {
        let mut inputs = Vec::new();
        for number in 0..200 {
            let malformed = if number % 50 == 7 { number } else { 0 };
            inputs.push(serde_json::json!({
                "name": format!("part-{number}"), "size_bytes": 1024, "malformed": malformed,
            }));
        }
        let report = serde_json::json!({
            "carried": {"added": 0, "removed": 0, "kept": false},
            "inputs": inputs,
            "rejected": {"total": 4, "malformed": 4, "too_long": 0, "value": 0},
        });
        let mut text = Vec::new();
        write_report(&mut text, "done", &report).unwrap();
        let expected = "\
done
  carried   0
  inputs    200 of 200.00 KiB
  most malformed
    malformed      name      size
    157        part-157  1.00 KiB
    107        part-107  1.00 KiB
    57          part-57  1.00 KiB
  rejected  malformed 4, total 4
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);

        let streams: Vec<_> = (0..6).map(|_| serde_json::json!({"name": "-"})).collect();
        let report = serde_json::json!({"inputs": streams, "more_inputs": 1000});
        let mut text = Vec::new();
        write_report(&mut text, "done", &report).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "done\n  inputs  1,006\n");
    }
}
