//! Config file of the writer: tokens, event windows, and audiences that follow them.

mod callback;
mod tables;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_config::Document;
use rtad_core::files::{may_be_unfinished, read_settled};
use rtad_core::period::{Calendar, PeriodUnit};
use rtad_core::snapshot::AudienceName;
use rtad_window::{AnswerLimits, Key, WindowSpec, max_unshipped_bytes};

use super::super::scopes::Scope;
use super::super::tokens::TokenFile;

pub use callback::CallbackConfig;
use tables::{AudienceTable, File, TokenTable, WindowTable};
pub use tables::{Length, Survival};

/// A configuration with every key. Wrong values are replaced by these, so that reading goes on, and
/// the reference is generated from it.
#[cfg(test)]
const EXAMPLE: &str = include_str!("config/example.toml");
/// Ticks in the length of a sliding window: an entry may live 1/128 longer.
pub const TICKS_PER_LENGTH: u16 = 128;
/// Highest rate of new keys that are taken for duplicates, which the smallest slots keep.
const NEW_KEY_FPR: f64 = 1e-5;
/// Time for which a request with the same idempotency key gets its first answer again.
const ANSWERS_TIME: Duration = Duration::from_secs(600);

/// An invalid config file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: could not read it")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Mistakes(rtad_config::ConfigError),
}

impl CommandFailure for ConfigError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }

    fn mistakes(&self) -> &[String] {
        match self {
            Self::Read { .. } => &[],
            Self::Mistakes(error) => &error.mistakes,
        }
    }
}

/// A valid `[[window]]`.
#[derive(Debug, Clone)]
pub struct WindowConfig {
    pub(super) name: AudienceName,
    pub(super) length: Length,
    pub(super) spec: WindowSpec,
    pub(super) durability: Survival,
    pub(super) answers: AnswerLimits,
}

impl WindowConfig {
    /// Memory of the table, the kept answers, the events that the store lacks while it is away, and
    /// the lists of keys of the audiences that follow it, which may be published at once.
    pub fn memory_bytes(&self, audiences: usize) -> u64 {
        let listed = (audiences * size_of::<Key>()) as u64;
        self.spec.memory_bytes()
            + self.answers.memory_bytes
            + max_unshipped_bytes(&self.spec)
            + self.spec.capacity * listed
    }
}

/// A valid `[[audience]]`.
#[derive(Debug, Clone)]
pub struct AudienceConfig {
    pub(super) name: AudienceName,
    pub(super) from_window: AudienceName,
    pub(super) min_count: u16,
}

/// A valid config.
#[derive(Debug, Default)]
pub struct Config {
    pub(super) state_dir: PathBuf,
    pub(crate) tokens: Vec<TokenFile>,
    pub(super) windows: Vec<WindowConfig>,
    /// Click callbacks, each with its window.
    pub(super) callbacks: Vec<(AudienceName, CallbackConfig)>,
    pub(super) audiences: Vec<AudienceConfig>,
}

/// Tokens, windows and audiences, a line each.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for TokenFile { path, scopes, .. } in &self.tokens {
            let scopes: Vec<String> = scopes.iter().map(Scope::to_string).collect();
            writeln!(f, "token      {}: {}", path.display(), scopes.join(", "))?;
        }
        for WindowConfig {
            name, length, spec, ..
        } in &self.windows
        {
            let (capacity, bytes) = (spec.capacity, bytesize::ByteSize(spec.memory_bytes()));
            writeln!(f, "window     {name}: {length}, {capacity} keys in {bytes}")?;
        }
        for (window, CallbackConfig { id, .. }) in &self.callbacks {
            let parameters: Vec<&str> = id.iter().map(|id| id.parameter.as_str()).collect();
            writeln!(f, "callback   {window}: ids in {}", parameters.join(", "))?;
        }
        for AudienceConfig {
            name,
            from_window,
            min_count,
            ..
        } in &self.audiences
        {
            writeln!(
                f,
                "audience   {name}: count of at least {min_count} in {from_window}"
            )?;
        }
        Ok(())
    }
}

impl Config {
    /// As [`Self::read`], at a start: a file that was changed lately is read twice, as a valid
    /// beginning of it may lack a window.
    pub fn read_settled(path: &Path) -> Result<Self, ConfigError> {
        let mut text = std::fs::read_to_string(path);
        if may_be_unfinished(path) {
            let settled = read_settled(path);
            text = settled.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        }
        Self::of_text(path, text)
    }

    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::of_text(path, std::fs::read_to_string(path))
    }

    fn of_text(path: &Path, text: io::Result<String>) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text = text.map_err(|source| ConfigError::Read {
            path: shown.clone(),
            source,
        })?;
        Self::parse(&text, &shown).map_err(ConfigError::Mistakes)
    }

    fn parse(text: &str, path: &str) -> Result<Self, rtad_config::ConfigError> {
        let mut document = Document::parse(path, text)?;
        let Some(file) = document.read() else {
            return Err(document.finish().into());
        };
        let config = check(file, &mut document);
        document.finish().into_result(config)
    }

    /// The audiences that follow a window.
    pub fn audiences_of<'a>(
        &'a self,
        window: &'a AudienceName,
    ) -> impl Iterator<Item = &'a AudienceConfig> {
        self.audiences
            .iter()
            .filter(move |audience| audience.from_window == *window)
    }
}

fn check(file: File, d: &mut Document<'_>) -> Config {
    let mut config = Config::default();
    d.refuse_duplicates("window", "name");
    d.refuse_duplicates("audience", "name");
    for (index, table) in file.window.iter().enumerate() {
        let key = format!("window[{index}]");
        let is_followed = file
            .audience
            .iter()
            .any(|audience| audience.from_window == table.name.as_str());
        if let Some(callback) = &table.callback {
            callback::check(callback, &format!("{key}.callback"), d);
            config
                .callbacks
                .push((table.name.clone(), callback.clone()));
        }
        let length = length(table, &key, d);
        config
            .windows
            .extend(window(table, length, is_followed, &key, d));
    }
    let names = d.texts("window", "name");
    for (index, table) in file.audience.iter().enumerate() {
        let key = format!("audience[{index}]");
        let window = names.iter().position(|name| *name == table.from_window);
        match window.and_then(|index| file.window.get(index)) {
            Some(window) => config.audiences.push(audience(table, window, &key, d)),
            None => d.reject(&format!("{key}.from_window"), "the name of a [[window]]"),
        }
    }
    for (index, table) in file.token.into_iter().enumerate() {
        config.tokens.push(token(table, index, &names, d));
    }
    if config
        .windows
        .iter()
        .any(|window| window.durability == Survival::Disk)
    {
        let accepted = "a directory for the windows' files; windows with durability = \"store\" \
                        need none";
        d.require("state_dir", accepted);
    }
    config.state_dir = file.state_dir.unwrap_or_default();
    config
}

/// A scope of an unknown window is a mistake; audiences are in the store, not in the file.
fn token(table: TokenTable, index: usize, windows: &[String], d: &mut Document<'_>) -> TokenFile {
    if table.scopes.is_empty() {
        d.reject(&format!("token[{index}].scopes"), "at least one scope");
    }
    for (position, scope) in table.scopes.iter().enumerate() {
        if scope
            .window()
            .is_some_and(|name| !windows.iter().any(|known| known == name.as_str()))
        {
            let key = format!("token[{index}].scopes[{position}]");
            d.reject(&key, "the name of a [[window]] after events:");
        }
    }
    let origin = d.described(&format!("token[{index}].file"));
    TokenFile {
        origin,
        path: d.beside(table.file),
        scopes: table.scopes,
    }
}

fn length(table: &WindowTable, key: &str, d: &mut Document<'_>) -> Length {
    let zone = table.time_zone.as_deref();
    match (&table.length, Calendar::new(PeriodUnit::Day, zone)) {
        (Length::Day(_), Ok(calendar)) => Length::Day(calendar),
        (length, _) => {
            if zone.is_some() {
                let key = format!("{key}.time_zone");
                d.mistake(&key, "is given for a time", "length = \"day\" with it");
            }
            length.clone()
        }
    }
}

fn window(
    table: &WindowTable,
    length: Length,
    is_followed: bool,
    key: &str,
    d: &mut Document<'_>,
) -> Option<WindowConfig> {
    d.require(&format!("{key}.capacity"), "the number of keys at a time");
    let spec = WindowSpec {
        capacity: table.capacity?,
        fpr: NEW_KEY_FPR,
        count: table.count,
        whole_keys: is_followed,
        lifetime: match length {
            Length::Sliding(_) => TICKS_PER_LENGTH + 1,
            Length::Day(_) => 1,
        },
    };
    if let Err(error) = spec.validate() {
        reject_value(d, key, &error.to_string());
    }
    Some(WindowConfig {
        name: table.name.clone(),
        length,
        spec,
        durability: table.durability,
        answers: AnswerLimits {
            memory_bytes: table.answers_memory,
            time: ANSWERS_TIME,
        },
    })
}

/// Notes an error of the form `KEY: expected ACCEPTED, found VALUE`.
fn reject_value(d: &mut Document<'_>, table: &str, error: &str) {
    let (name, expected) = error.split_once(": expected ").unwrap_or(("", error));
    let accepted = expected.split(", found ").next().unwrap_or_default();
    d.reject(&format!("{table}.{name}"), accepted);
}

fn audience(
    table: &AudienceTable,
    window: &WindowTable,
    key: &str,
    d: &mut Document<'_>,
) -> AudienceConfig {
    let min_count = table.min_count;
    if !(1..=window.count).contains(&min_count) {
        let accepted = format!("1 to the window's count, {}", window.count);
        d.reject(&format!("{key}.min_count"), &accepted);
    }
    AudienceConfig {
        name: table.name.clone(),
        from_window: window.name.clone(),
        min_count,
    }
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
