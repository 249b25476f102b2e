//! `docs/reference/writer-configuration.md`: generated from the fields, their doc comments
//! and the example.

use documented::DocumentedFieldsOpt;
use testkit::config_reference::{ConfigReference, Finding};
use testkit::reference::assert_current;

use super::*;

/// Text before the generated part.
const TEMPLATE: &str = include_str!("reference.md");
/// Tables and their headings.
const TABLES: [(&str, &str); 5] = [
    ("", "Top level"),
    ("token[]", "`[[token]]`"),
    ("window[]", "`[[window]]`"),
    ("window[].callback", "`[window.callback]`"),
    ("audience[]", "`[[audience]]`"),
];

fn read(text: &str) -> (toml::Value, Vec<Finding>) {
    let mut document = Document::parse("writer.toml", text).unwrap();
    let file = document.read::<File>();
    let printed = toml::Value::try_from(file.as_ref().unwrap_or(&File::default())).unwrap();
    if let Some(file) = file {
        check(file, &mut document);
    }
    let mistakes = document.finish();
    let findings = mistakes.list().iter().map(|mistake| Finding {
        key: mistake.location.key().to_owned(),
        found: mistake.found.clone(),
        accepted: mistake.accepted.clone(),
    });
    (printed, findings.collect())
}

fn description(table: &str, key: &str) -> Option<&'static str> {
    match table {
        "" => File::get_field_docs(key).ok(),
        "token[]" => TokenTable::get_field_docs(key).ok(),
        "window[].callback" => CallbackConfig::get_field_docs(key).ok(),
        "window[]" => WindowTable::get_field_docs(key).ok(),
        _ => AudienceTable::get_field_docs(key).ok(),
    }
}

#[test]
fn writer_configuration_reference_is_current() {
    let reference = ConfigReference {
        example: EXAMPLE,
        tables: &TABLES,
        named_values: &[],
        read: &read,
        describe: &description,
        facts: &|_| Vec::new(),
    };
    let page = TEMPLATE.to_owned() + "\n" + reference.page().trim_end() + "\n";
    assert_current("rtad-writer", "writer-configuration.md", &page);
}
