//! Arguments of the Python package, in texts that name flags.
//!
//! A text is written once, for the command line. Here each flag that clap knows becomes the keyword
//! argument of the same name, and those of `RENAMED` the arguments of their own.

use std::collections::HashMap;
use std::sync::LazyLock;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use rtad_cli::exit::UsageMistake;

use super::LoadFlags;
use crate::commands::Cli;

/// Flags whose arguments have other names.
const RENAMED: [(&str, &str); 5] = [
    ("store", "url"),
    ("audience", "name"),
    ("id-kind", "kind"),
    ("column", "columns"),
    ("header", "headers"),
];

/// Columns with their kinds are a dictionary.
const COLUMNS: [(&str, &str); 2] = [
    (
        "--column NAME[=KIND]",
        "columns=\"NAME\" or {\"NAME\": \"KIND\"}",
    ),
    ("--column NAME=KIND", "columns={\"NAME\": \"KIND\"}"),
];

/// Flags of `rtad explain` in its texts; they take values.
const EXPLAIN: [&str; 2] = ["platform", "header"];

/// Whether each flag takes a value.
static TAKES_VALUE: LazyLock<HashMap<String, bool>> = LazyLock::new(|| {
    let mut flags = HashMap::from(EXPLAIN.map(|name| (name.to_owned(), true)));
    let program = Cli::command();
    let mut commands = vec![LoadFlags::command()];
    commands.extend(program.get_subcommands().cloned());

    for flag in commands.iter().flat_map(clap::Command::get_arguments) {
        if let Some(name) = flag.get_long() {
            flags.insert(name.to_owned(), flag.get_action().takes_values());
        }
    }
    flags
});

/// A text with arguments in place of flags: `fpr=1e-5` for `--fpr 1e-5`, `dry_run=True` for
/// `--dry-run`. Command lines of the programs, in backquotes, stay.
pub fn in_arguments(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("--") {
        written.push_str(&rest[..start]);
        rest = &rest[start..];

        if let Some(argument) = argument(&written, rest) {
            written.push_str(&argument.text);
            rest = argument.rest;
        } else {
            written.push_str("--");
            rest = &rest[2..];
        }
    }
    written + rest
}

/// An argument, and the text behind its flag.
struct Argument<'t> {
    text: String,
    rest: &'t str,
}

/// The argument of the flag at the start of `flagged`; `None` if another text is there.
fn argument<'t>(before: &str, flagged: &'t str) -> Option<Argument<'t>> {
    if before.ends_with(is_of_name) || is_in_command_line(before) {
        return None;
    }
    for (flag, columns) in COLUMNS {
        if let Some(rest) = flagged.strip_prefix(flag) {
            let text = columns.to_owned();
            return Some(Argument { text, rest });
        }
    }

    let words = &flagged[2..];
    let rest = words.trim_start_matches(is_of_name);
    let flag = &words[..words.len() - rest.len()];
    let takes_value = *TAKES_VALUE.get(flag)?;
    let name = argument_name(flag);

    if !takes_value {
        let text = format!("{name}=True");
        return Some(Argument { text, rest });
    }
    if let Some(value) = rest.strip_prefix(' ') {
        // clap names the form of the value.
        if value.starts_with('<')
            && let Some((_, rest)) = value.split_once('>')
        {
            return Some(Argument { text: name, rest });
        }
        if value.starts_with(is_start_of_value) {
            let text = format!("{name}=");
            return Some(Argument { text, rest: value });
        }
    }
    Some(Argument { text: name, rest })
}

const fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-'
}

/// A number, or the name of a value. Another word goes on with the sentence.
const fn is_start_of_value(letter: char) -> bool {
    letter.is_ascii_digit() || letter.is_ascii_uppercase()
}

fn is_in_command_line(before: &str) -> bool {
    let (_, opened) = before.rsplit_once('`').unwrap_or_default();
    before.matches('`').count() % 2 == 1 && opened.starts_with("rtad")
}

fn argument_name(flag: &str) -> String {
    for (renamed, argument) in RENAMED {
        if flag == renamed {
            return argument.to_owned();
        }
    }
    flag.replace('-', "_")
}

/// clap's mistake. An unknown flag is named as the argument that it was.
pub fn usage_mistake(error: &clap::Error) -> UsageMistake {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => {
            let name = flag.trim_start_matches("--").replace('-', "_");
            UsageMistake::new(format!("unexpected argument '{name}'"))
        }
        _ => UsageMistake::of(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_arguments() {
        for (text, expected) in [
            (
                "at most --max-reject-ratio 0.01; more",
                "at most max_reject_ratio=0.01; more",
            ),
            ("x; --rejects FILE keeps them", "x; rejects=FILE keeps them"),
            ("--allow-empty publishes", "allow_empty=True publishes"),
            (
                "--memory 1MiB is too little, or fewer --threads",
                "memory=1MiB is too little, or fewer threads",
            ),
            ("so --max-change cannot be", "so max_change cannot be"),
            (
                "(--audience) or the generation (--generation)",
                "(name) or the generation (generation)",
            ),
            (
                "of kind gaid or oaid (--id-kind, --column NAME=KIND)",
                "of kind gaid or oaid (kind, columns={\"NAME\": \"KIND\"})",
            ),
            (
                "invalid value '2' for '--fpr <FPR>': over",
                "invalid value '2' for 'fpr': over",
            ),
            ("--sign-key keys/a: not a key", "sign_key keys/a: not a key"),
            (
                "publish with `rtad-loader build --sign-key`; `build --allow-empty` too",
                "publish with `rtad-loader build --sign-key`; `build allow_empty=True` too",
            ),
            (
                "compress it with --long=27, a--fpr, ---fpr --",
                "compress it with --long=27, a--fpr, ---fpr --",
            ),
            ("", ""),
        ] {
            assert_eq!(in_arguments(text), expected);
        }
    }

    #[test]
    fn renamed_flags_exist() {
        for (flag, _) in RENAMED {
            assert_eq!(TAKES_VALUE.get(flag), Some(&true), "--{flag}");
        }
    }
}
