//! Tables of mistakes in configs, as text files.
//!
//! A case is a paragraph: changes of a valid config, then all mistakes of the changed one,
//! indented. A line `OLD -> NEW` replaces the first OLD, where `\n` stands for a line break. Other
//! lines are appended.

use std::path::Path;

/// Compares the mistakes of each case with the file, or rewrites it if `UPDATE_DOCS` is set.
///
/// # Panics
///
/// If they differ, or if a changed config is valid.
pub fn assert_each(file: &str, config: &str, mistakes_of: impl Fn(&str) -> Vec<String>) {
    let path = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join(file);
    let table = std::fs::read_to_string(&path).unwrap();
    let answered = |case: &str| {
        let changes = case.lines().filter(|line| !line.starts_with("    "));
        let mut lines: Vec<String> = changes.clone().map(str::to_owned).collect();
        let mistakes = mistakes_of(&changes.fold(config.to_owned(), change));
        assert!(!mistakes.is_empty(), "valid: {lines:?}");
        lines.extend(mistakes.iter().map(|mistake| format!("    {mistake}")));
        lines.join("\n")
    };
    let found: Vec<String> = table.trim_end().split("\n\n").map(answered).collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, found.join("\n\n") + "\n").unwrap();
        return;
    }
    for (expected, found) in table.trim_end().split("\n\n").zip(&found) {
        assert_eq!(
            expected, found,
            "{file}: left: file, right: code; UPDATE_DOCS=1 rewrites it"
        );
    }
}

fn change(config: String, line: &str) -> String {
    let Some((old, new)) = line.split_once(" ->") else {
        return format!("{config}{line}\n");
    };
    assert!(config.contains(old), "{old}");
    config.replacen(old, &new.trim().replace("\\n", "\n"), 1)
}
