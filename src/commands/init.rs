//! `rtad init`: a first config with comments, from flags or from answers on the terminal.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use dialoguer::{Input, MultiSelect};
use rtad::offline::OfflineError;
use rtad::platform::KINDS;
use rtad::serve::Assembly;
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus, UsageMistake};

const HEAD: &str = include_str!("init/head.toml");
/// The answer of `--platform` for a pod that only its own API reaches.
const NO_PLATFORM: &str = "none";
const STORE: &str = "./store";

#[derive(Args)]
pub struct Init {
    /// The config file; an existing one is left alone
    #[arg(default_value = "rtad.toml")]
    file: PathBuf,
    /// Folder or bucket of the snapshots, such as ./store or s3://ads/rtad [default: asked for]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Kind of a platform; may be repeated [default: asked for]
    #[arg(long = "platform", value_name = "KIND", value_parser = kinds())]
    platforms: Vec<String>,
}

/// An error while writing a first config.
#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("{}: exists already; give another name, or remove it", .0.display())]
    Exists(PathBuf),
    #[error("no answer from the terminal")]
    Unanswered(#[source] std::io::Error),
    #[error("could not write {}", file.display())]
    Write {
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl CommandFailure for InitError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Unexpected
    }
}

fn kinds() -> PossibleValuesParser {
    let kinds = KINDS.iter().map(|kind| kind.rules.word);
    PossibleValuesParser::new(kinds.chain([NO_PLATFORM]))
}

pub fn run(arguments: Init) -> Result<(), CommandError> {
    let Init {
        file,
        store,
        platforms,
    } = arguments;
    // Before any question: an answer for nothing is a nuisance.
    if file.exists() {
        return Err(InitError::Exists(file).into());
    }
    let store = match store {
        Some(store) => store,
        None => ask_for_store()?,
    };
    let platforms = if platforms.is_empty() {
        ask_for_platforms()?
    } else {
        platforms
    };

    let text = config(&store, &platforms);
    let name = file.display().to_string();
    Assembly::read(Some((&name, &text)), |_| None, &Vec::new()).map_err(OfflineError::from)?;
    write_new(&file, &text)?;

    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{name}: written, and valid. Put your strategy ids in it, and run:\n\n\
         # publish the devices that you know, an id per line\n\
         rtad-loader build --store {store} --audience old_users ids.txt\n\n\
         # serve decisions\n\
         rtad serve --config {name}",
        store = shell_words::quote(&store),
        name = shell_words::quote(&name),
    )
    .map_err(CommandError::output)
}

/// The text of a config.
fn config(store: &str, platforms: &[String]) -> String {
    let mut text = HEAD.replace("STORE", &toml::Value::from(store).to_string());
    for kind in KINDS
        .iter()
        .filter(|kind| platforms.iter().any(|it| it == kind.rules.word))
    {
        let _ = write!(text, "\n{}", kind.example);
    }
    text
}

fn ask_for_store() -> Result<String, CommandError> {
    require_terminal("--store")?;
    let prompt = Input::new().with_prompt("Folder or bucket of the snapshots");
    let answer = prompt.default(STORE.to_owned()).interact_text();
    Ok(answer.map_err(not_answered)?)
}

fn ask_for_platforms() -> Result<Vec<String>, CommandError> {
    require_terminal("--platform")?;
    let words: Vec<_> = KINDS.iter().map(|kind| kind.rules.word).collect();
    let prompt = MultiSelect::new().with_prompt("Platforms (space selects, enter ends)");
    let chosen = prompt.items(&words).interact().map_err(not_answered)?;
    Ok(chosen
        .into_iter()
        .map(|index| words[index].to_owned())
        .collect())
}

fn require_terminal(flag: &str) -> Result<(), UsageMistake> {
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        return Ok(());
    }
    let message = format!("{flag}: required without a terminal");
    Err(UsageMistake::new(message))
}

fn not_answered(error: dialoguer::Error) -> InitError {
    let dialoguer::Error::IO(source) = error;
    InitError::Unanswered(source)
}

/// Writes a file that does not exist yet, whole or not at all.
fn write_new(file: &Path, text: &str) -> Result<(), InitError> {
    try_write_new(file, text).map_err(|source| InitError::Write {
        file: file.to_owned(),
        source,
    })
}

fn try_write_new(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // The service runs as another user; secrets are in files of their own.
    let mut aside = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;

    aside.write_all(text.as_bytes())?;
    aside.as_file().sync_all()?;
    aside.persist_noclobber(file)?;
    Ok(())
}
