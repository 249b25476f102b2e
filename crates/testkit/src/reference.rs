//! Reference documentation: generates pages from the code and compares them with the committed
//! ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::{Arg, Command};

/// Line width of generated prose.
const WIDTH: usize = 100;

/// Words from which a text is worth a link: a shorter one is repeated with each command.
const LINKED_TEXT_WORDS: usize = 4;

/// Compares `docs/reference/{name}` with `text`, or rewrites it if `UPDATE_DOCS` is set.
///
/// # Panics
///
/// If they differ, with the command that rewrites the page. `package` is the package of the calling
/// test.
pub fn assert_current(package: &str, name: &str, text: &str) {
    let path = page_path(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = committed.lines().zip(text.lines()).enumerate();
    let differs = lines
        .find(|(_, (old, new))| old != new)
        .map(|(line, _)| line + 1);
    assert!(
        committed == text,
        "docs/reference/{name}: stale from line {}. \
         Run `UPDATE_DOCS=1 cargo test -p {package} reference`",
        differs.unwrap_or(1 + committed.lines().count().min(text.lines().count())),
    );
}

/// Compares the first `N` columns of the table under a heading of `docs/reference/{page}` with the
/// code's rows, such as a status and an error code. Ignores backquotes.
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
    let start = text
        .lines()
        .skip_while(|line| line.trim_start_matches('#').trim() != heading);
    let section = start.skip(1).take_while(|line| !line.starts_with('#'));
    let row = |line: &str| -> [String; N] {
        let mut cells = line
            .split('|')
            .skip(1)
            .map(|cell| cell.trim().replace('`', ""));
        std::array::from_fn(|_| cells.next().unwrap())
    };
    // Skip the header and the delimiter row.
    let listed: BTreeSet<_> = section
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(row)
        .collect();
    let expected = rows.into_iter().collect();
    assert_eq!(
        listed, expected,
        "docs/reference/{page}, {heading}: left: page, right: code"
    );
}

/// Asserts that `values`, which a test compares with a page, cover every variant of their enum.
///
/// # Panics
///
/// If a variant has no value.
pub fn assert_every_variant<T: std::fmt::Debug>(variants: &[&str], values: &[T]) {
    let variant_of = |value: &T| {
        let text = format!("{value:?}");
        text.split(|letter: char| !letter.is_alphanumeric())
            .next()
            .unwrap()
            .to_owned()
    };
    let covered: BTreeSet<String> = values.iter().map(variant_of).collect();
    let expected: BTreeSet<String> = variants.iter().map(|&variant| variant.to_owned()).collect();
    assert_eq!(
        covered, expected,
        "left: variants with a value, right: variants of the enum"
    );
}

/// Asserts that the console has a text for every word, in both languages, under the key
/// `{prefix}-{word}`. Names of enum variants count as words in snake case.
///
/// # Panics
///
/// If a language lacks a text.
pub fn assert_texts(prefix: &str, words: impl IntoIterator<Item = impl AsRef<str>>) {
    let folder = page_path("").join("../../src/http/console");
    let texts = ["en.js", "zh.js"].map(|file| std::fs::read_to_string(folder.join(file)).unwrap());
    for word in words {
        let word = word.as_ref();
        let mut key = prefix.to_owned();
        for (index, letter) in word.char_indices() {
            if index == 0 || letter.is_uppercase() {
                key.push(if index == 0 { '-' } else { '_' });
            }
            key.push(letter.to_ascii_lowercase());
        }
        for text in &texts {
            assert!(
                text.contains(&format!("  \"{key}\": ")),
                "the console has no text {key}"
            );
        }
    }
}

/// The text of a committed page.
pub fn page(name: &str) -> String {
    std::fs::read_to_string(page_path(name)).unwrap()
}

/// Path of a page in the running test's repository. Reads `CARGO_MANIFEST_DIR` at run time: the
/// compile-time value is wrong if two checkouts share a target directory.
fn page_path(name: &str) -> PathBuf {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let folders = package
        .ancestors()
        .map(|folder| folder.join("docs/reference"));
    folders
        .into_iter()
        .find(|folder| folder.is_dir())
        .unwrap()
        .join(name)
}

/// CLI reference page: `template` with `<!-- commands -->` replaced by a section per command.
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

    let is_shown = |command: &&Command| command.get_name() != "help" && !command.is_hide_set();
    // A program with flags of its own is a command too.
    let own = (!own_arguments(&program).is_empty()).then_some(&program);
    let shown: Vec<&Command> = own
        .into_iter()
        .chain(program.get_subcommands().filter(is_shown))
        .collect();
    let shared = shared_arguments(&shown);
    let of_every_command: Vec<Argument> = program
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(Argument::of)
        .collect();

    let mut commands = String::new();
    if !of_every_command.is_empty() {
        let table = table(&of_every_command);
        commands.push_str(&format!("## Flags of every command\n\n{table}"));
    }
    if !shared.is_empty() {
        let table = table(&shared);
        commands.push_str(&format!("## Options of several commands\n\n{table}"));
    }
    for command in shown {
        let name = command.get_bin_name().unwrap_or(command.get_name());
        let section = section(command, &shared);
        commands.push_str(&format!("## `{name}`\n\n{section}"));
        if let Some(example) = examples.remove(name) {
            commands.push_str(&format!("{}\n\n", example.trim()));
        }
    }
    assert!(
        examples.is_empty(),
        "examples of unknown commands: {:?}",
        examples.keys()
    );
    let (before, after) = page.split_once("<!-- commands -->\n").unwrap();
    format!("{before}{}{after}", commands.trim_end().to_owned() + "\n")
        .trim_end()
        .to_owned()
        + "\n"
}

fn section(command: &Command, shared: &[Argument]) -> String {
    let about = command
        .get_long_about()
        .or(command.get_about())
        .unwrap()
        .to_string();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim);
    let usage = usage.collect::<Vec<_>>().join("\n");
    format!(
        "{}```text\n{usage}\n```\n\n{}",
        paragraphs(&about),
        arguments(command, shared)
    )
}

/// Arguments that several commands describe in the same words, in the order of their first command.
fn shared_arguments(commands: &[&Command]) -> Vec<Argument> {
    let mut seen: Vec<Argument> = Vec::new();
    let mut shared: Vec<Argument> = Vec::new();
    for command in commands {
        for arg in own_arguments(command) {
            let argument = Argument::of(arg);
            let is_long = argument.text.split_whitespace().count() >= LINKED_TEXT_WORDS;
            if is_long && seen.contains(&argument) && !shared.contains(&argument) {
                shared.push(argument);
            } else {
                seen.push(argument);
            }
        }
    }

    // A single one is worth no section.
    if shared.len() == 1 {
        shared.clear();
    }
    shared.sort_by_key(|argument| seen.iter().position(|other| other == argument));
    shared
}

/// Visible arguments of a command, without those of every command.
fn own_arguments(command: &Command) -> Vec<&Arg> {
    command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !arg.is_hide_set())
        .filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect()
}

/// Table of a command's own arguments, and the names of those that it shares with others.
fn arguments(command: &Command, shared: &[Argument]) -> String {
    let arguments = own_arguments(command).into_iter().map(Argument::of);
    let (linked, own): (Vec<_>, Vec<_>) = arguments.partition(|argument| shared.contains(argument));

    let mut text = String::new();
    if !own.is_empty() {
        text.push_str(&table(&own));
    }
    if !linked.is_empty() {
        let names: Vec<String> = linked.iter().map(Argument::name).collect();
        let start = if own.is_empty() {
            "Takes"
        } else {
            "Also takes"
        };
        text.push_str(&wrap(&format!(
            "{start} [shared options](#options-of-several-commands): {}.",
            names.join(", ")
        )));
        text.push_str("\n\n");
    }
    text
}

/// Table of arguments.
fn table(list: &[Argument]) -> String {
    let has_variables = list.iter().any(|argument| argument.variable.is_some());
    let (head, rule) = if has_variables {
        (" environment |", "---|")
    } else {
        ("", "")
    };

    let mut table = format!("| argument | default |{head} meaning |\n|---|---|{rule}---|\n");
    for argument in list {
        let code = |text: &Option<String>| match text {
            Some(text) if text.contains(' ') => format!("{text} "),
            Some(text) => format!("`{text}` "),
            None => String::new(),
        };
        let variable = if has_variables {
            format!("{}| ", code(&argument.variable))
        } else {
            String::new()
        };
        let default = if argument.is_required {
            "required ".to_owned()
        } else {
            code(&argument.default)
        };
        let Argument { syntax, text, .. } = argument;
        table.push_str(&format!("| `{syntax}` | {default}| {variable}{text} |\n"));
    }
    table.push('\n');
    table
}

/// Command-line syntax of an argument, without backquotes: `--store URL`.
fn syntax(arg: &Arg) -> String {
    let names: Vec<&str> = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|name| &**name)
        .collect();
    let takes_value = arg.get_action().takes_values();
    let value = if takes_value {
        names.join(" ")
    } else {
        String::new()
    };
    let many = arg
        .get_num_args()
        .is_some_and(|count| count.max_values() > 1);
    let many = if arg.is_positional() && many {
        "..."
    } else {
        ""
    };
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} "),
        (None, Some(long)) => format!("--{long} "),
        _ => String::new(),
    };
    format!("{flag}{value}{many}").trim().replace('|', "\\|")
}

/// Syntax and help text of an argument, split into table columns.
#[derive(PartialEq)]
struct Argument {
    syntax: String,
    is_required: bool,
    default: Option<String>,
    variable: Option<String>,
    text: String,
}

impl Argument {
    fn of(arg: &Arg) -> Self {
        let help = arg
            .get_long_help()
            .or(arg.get_help())
            .map(ToString::to_string)
            .unwrap_or_default();
        let (help, default) = extract(&help, "default");
        let (help, variable) = extract(&help, "env");
        let defaults: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        let is_value = arg.get_action().takes_values() && !defaults.is_empty();
        let env_name = arg
            .get_env()
            .map(|name| name.to_string_lossy().into_owned());
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
            syntax: syntax(arg),
            is_required: arg.is_required_set(),
            default: default.or(is_value.then(|| defaults.join(" "))),
            variable: variable.or(env_name),
            text: escape_markdown(&text),
        }
    }

    /// Name without the value, as code: `--store`.
    fn name(&self) -> String {
        let name = self.syntax.split(' ').next().unwrap_or_default();
        format!("`{name}`")
    }
}

/// Removes `[name: value]` from a help text; returns the rest and the value.
fn extract(help: &str, name: &str) -> (String, Option<String>) {
    let open = format!("[{name}: ");
    match help
        .split_once(&open)
        .and_then(|(before, rest)| Some((before, rest.split_once(']')?)))
    {
        Some((before, (value, after))) => (format!("{before}{after}"), Some(value.to_owned())),
        None => (help.to_owned(), None),
    }
}

/// Escapes the special characters of Markdown, except in code spans.
fn escape_markdown(text: &str) -> String {
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

/// Wraps and escapes paragraphs; a blank line follows each.
fn paragraphs(text: &str) -> String {
    text.split("\n\n")
        .map(|paragraph| wrap(&escape_markdown(paragraph)) + "\n\n")
        .collect()
}

/// Wraps prose at the documentation's line width. Links and code spans may break at spaces.
pub fn wrap(text: &str) -> String {
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
