//! Reference pages: generated from the code, compared with the committed ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::{Arg, Command};

/// Longest line of prose.
const WIDTH: usize = 100;

/// Compares `docs/reference/{name}` with `text`, or rewrites it if `UPDATE_DOCS` is set.
///
/// # Panics
///
/// If they differ, with the command that rewrites the page. `package` has the test.
pub fn assert_current(package: &str, name: &str, text: &str) {
    let path = page_path(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = committed.lines().zip(text.lines()).enumerate();
    let differs = lines.find(|(_, (old, new))| old != new).map(|(line, _)| line + 1);
    assert!(
        committed == text,
        "docs/reference/{name}: stale from line {}. \
         Run `UPDATE_DOCS=1 cargo test -p {package} reference`",
        differs.unwrap_or(1 + committed.lines().count().min(text.lines().count())),
    );
}

/// Compares the first `N` columns of the table under a heading of `docs/reference/{page}` with the
/// code's rows, such as a status and an error code. Backquotes do not count.
///
/// # Panics
///
/// If the page lacks a row, or has one that the code lacks.
pub fn assert_listed<const N: usize>(
    page: &str,
    heading: &str,
    rows: impl IntoIterator<Item = [String; N]>,
) {
    let text = self::page(page);
    let start = text.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
    let section = start.skip(1).take_while(|line| !line.starts_with('#'));
    let row = |line: &str| -> [String; N] {
        let mut cells = line.split('|').skip(1).map(|cell| cell.trim().replace('`', ""));
        std::array::from_fn(|_| cells.next().unwrap())
    };
    // After the header and the rule.
    let listed: BTreeSet<_> =
        section.filter(|line| line.starts_with('|')).skip(2).map(row).collect();
    let expected = rows.into_iter().collect();
    assert_eq!(listed, expected, "docs/reference/{page}, {heading}: left the page, right the code");
}

/// Whether values that are compared with a page cover every variant of their enum.
///
/// # Panics
///
/// If none of `values` is of a variant.
pub fn assert_every_variant<T: std::fmt::Debug>(variants: &[&str], values: &[T]) {
    let of_value = |value: &T| {
        let text = format!("{value:?}");
        text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap().to_owned()
    };
    let covered: BTreeSet<String> = values.iter().map(of_value).collect();
    let expected: BTreeSet<String> = variants.iter().map(|&variant| variant.to_owned()).collect();
    assert_eq!(covered, expected, "a value of each variant");
}

/// The text of a committed page.
pub fn page(name: &str) -> String {
    std::fs::read_to_string(page_path(name)).unwrap()
}

/// The path of a page in the repository of the test that runs. Cargo names its package at run time;
/// a path from compile time may be that of another checkout with the same target directory.
fn page_path(name: &str) -> PathBuf {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let folders = package.ancestors().map(|folder| folder.join("docs/reference"));
    folders.into_iter().find(|folder| folder.is_dir()).unwrap().join(name)
}

/// The page of a program: `template` with every command in place of `<!-- commands -->`.
///
/// Examples follow a line `<!-- examples -->` at the end of the template, each below a line
/// `<!-- PROGRAM COMMAND -->`.
///
/// # Panics
///
/// If the template lacks a marker, or has an example of an unknown command.
pub fn cli_page(mut program: Command, template: &str) -> String {
    program.build();
    let (page, examples) = template.split_once("<!-- examples -->\n").unwrap();
    let mut examples: BTreeMap<&str, &str> = examples
        .split("<!-- ")
        .filter(|example| !example.trim().is_empty())
        .map(|example| example.split_once(" -->\n").unwrap())
        .collect();
    let mut commands = String::new();
    let globals: Vec<&Arg> = program.get_arguments().filter(|arg| arg.is_global_set()).collect();
    if !globals.is_empty() {
        commands.push_str("## Flags of every command\n\n");
        commands.push_str(&arguments(globals));
    }
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = command.get_bin_name().unwrap();
        commands.push_str(&format!("## `{name}`\n\n{}", section(command)));
        if let Some(example) = examples.remove(name) {
            commands.push_str(&format!("Examples:\n\n{}\n\n", example.trim()));
        }
    }
    assert!(examples.is_empty(), "examples of unknown commands: {:?}", examples.keys());
    let (before, after) = page.split_once("<!-- commands -->\n").unwrap();
    format!("{before}{}{after}", commands.trim_end().to_owned() + "\n").trim_end().to_owned() + "\n"
}

fn section(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about()).unwrap().to_string();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !arg.is_hide_set())
        .filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect();
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map_or(String::new(), |text| paragraphs(&text.to_string()));
    format!("{}```text\n{usage}\n```\n\n{}{after}", paragraphs(&about), arguments(own))
}

/// A table of arguments; nothing if there are none.
fn arguments(list: Vec<&Arg>) -> String {
    if list.is_empty() {
        return String::new();
    }
    let has_variables = list.iter().any(|arg| Description::of(arg).variable.is_some());
    let (head, rule) = if has_variables { (" environment |", "---|") } else { ("", "") };
    let mut table = format!("| argument | default |{head} meaning |\n|---|---|{rule}---|\n");
    for arg in list {
        let Description { default, variable, text } = Description::of(arg);
        let code = |text: Option<String>| match text {
            Some(text) if text.contains(' ') => format!("{text} "),
            Some(text) => format!("`{text}` "),
            None => String::new(),
        };
        let variable = if has_variables { format!("{}| ", code(variable)) } else { String::new() };
        let default = if arg.is_required_set() { "required ".to_owned() } else { code(default) };
        table.push_str(&format!("| {} | {default}| {variable}{text} |\n", spelling(arg)));
    }
    table.push('\n');
    table
}

/// An argument in the form of a command line: `--store URL`.
fn spelling(arg: &Arg) -> String {
    let names: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| &**name).collect();
    let takes_value = arg.get_action().takes_values();
    let value = if takes_value { names.join(" ") } else { String::new() };
    let many = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    let many = if arg.is_positional() && many { "..." } else { "" };
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} "),
        (None, Some(long)) => format!("--{long} "),
        _ => String::new(),
    };
    format!("`{}`", format!("{flag}{value}{many}").trim()).replace('|', "\\|")
}

/// The help text of an argument, and the parts of it that have columns of their own.
struct Description {
    default: Option<String>,
    variable: Option<String>,
    text: String,
}

impl Description {
    fn of(arg: &Arg) -> Self {
        let help =
            arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let (help, default) = cut(&help, "default");
        let (help, variable) = cut(&help, "env");
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let is_value = arg.get_action().takes_values() && !defaults.is_empty();
        let of_clap = arg.get_env().map(|name| name.to_string_lossy().into_owned());
        let mut text = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let words: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if arg.get_action().takes_values() && !words.is_empty() {
            text.push_str(&format!(": {}", words.join(", ")));
        }
        Self {
            default: default.or(is_value.then(|| defaults.join(" "))),
            variable: variable.or(of_clap),
            text: escaped(&text),
        }
    }
}

/// Cuts `[name: value]` out of a help text.
fn cut(help: &str, name: &str) -> (String, Option<String>) {
    let open = format!("[{name}: ");
    match help.split_once(&open).and_then(|(before, rest)| Some((before, rest.split_once(']')?))) {
        Some((before, (value, after))) => (format!("{before}{after}"), Some(value.to_owned())),
        None => (help.to_owned(), None),
    }
}

/// Text with the characters escaped that Markdown would read.
fn escaped(text: &str) -> String {
    let mut in_code = false;
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        in_code ^= letter == '`';
        match letter {
            '|' => out.push_str("\\|"),
            '<' if !in_code => out.push_str("&lt;"),
            '*' | '[' | ']' if !in_code => out.extend(['\\', letter]),
            _ => out.push(letter),
        }
    }
    out
}

/// Wrapped paragraphs, a blank line after each.
fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(|paragraph| wrapped(&escaped(paragraph)) + "\n\n").collect()
}

/// Prose, wrapped at the width of the documentation. Links and code spans with spaces may be
/// broken between words.
pub fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
