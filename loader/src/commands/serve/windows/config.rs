//! Config file of the write service: event windows, and audiences that follow them.

mod remote;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::period::{Calendar, PeriodUnit};
use rtad_core::snapshot::AudienceName;
use rtad_redis::RedisConfig;
use rtad_window::{Durability, WindowSpec};

use remote::remote;

/// Ticks of a sliding window's length: an entry may live this part longer.
pub(super) const TICKS: u16 = 128;
const LENGTHS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(28 * 24 * 3600));
const INTERVALS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60));
const DEFAULT_FPR: f64 = 1e-5;
const DEFAULT_AUDIENCE_FPR: f64 = 1e-4;
const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);
const CHECKPOINTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(24 * 3600));
const LEASES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));
const DEFAULT_LEASE: Duration = Duration::from_secs(60);
const DEFAULT_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(600);

/// An invalid config file. Every mistake at once.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("--config {path}: could not read it")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// The message leaves out the text of the line: it may contain a password.
    #[error("--config {path}: line {line}: {what}")]
    Syntax { path: String, line: usize, what: String },
    #[error("--config {path}:\n  {}", mistakes.join("\n  "))]
    Values { path: String, mistakes: Vec<String> },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    state_dir: Option<PathBuf>,
    lease: Option<String>,
    #[serde(default)]
    window: Vec<WindowTable>,
    #[serde(default)]
    audience: Vec<AudienceTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowTable {
    name: String,
    length: String,
    time_zone: Option<String>,
    capacity: Option<u64>,
    fpr: Option<f64>,
    count: Option<u16>,
    backend: Option<String>,
    backend_file: Option<PathBuf>,
    backend_ca_file: Option<PathBuf>,
    namespace: Option<String>,
    when_full: Option<WhenFull>,
    durability: Option<String>,
    sync_interval: Option<String>,
    checkpoint_interval: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AudienceTable {
    name: String,
    from_window: String,
    min_count: Option<u16>,
    fpr: Option<f64>,
}

/// Answer to an event that found no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum WhenFull {
    New,
    Duplicate,
    Error,
}

/// Span of time of a window.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Length {
    /// A window from the first event of a key.
    Sliding(Duration),
    /// A window from midnight to midnight.
    Day(Calendar),
}

impl Length {
    /// Length in seconds; a usual day's for days.
    pub(super) fn seconds(&self) -> f64 {
        match self {
            Self::Sliding(length) => length.as_secs_f64(),
            Self::Day(_) => 86_400.0,
        }
    }

    /// Zone of days.
    pub(super) fn time_zone(&self) -> Option<&str> {
        match self {
            Self::Sliding(_) => None,
            Self::Day(calendar) => Some(calendar.zone_name()),
        }
    }

    /// Identity of the ticks, for the files.
    pub(super) fn clock(&self) -> String {
        match self {
            Self::Sliding(length) => format!("sliding {}", humantime::format_duration(*length)),
            Self::Day(calendar) => format!("day in {}", calendar.zone_name()),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sliding(length) => humantime::format_duration(*length).fmt(f),
            Self::Day(_) => f.write_str("day"),
        }
    }
}

/// A valid `[[window]]` in this process.
#[derive(Debug, Clone)]
pub(super) struct WindowConfig {
    pub(super) name: AudienceName,
    pub(super) length: Length,
    pub(super) spec: WindowSpec,
    pub(super) when_full: WhenFull,
    pub(super) durability: Durability,
    /// Longest time between checkpoints in the store.
    pub(super) checkpoint_interval: Duration,
}

/// A valid `[[window]]` with a `backend`.
#[derive(Debug, Clone)]
pub(super) struct RemoteConfig {
    pub(super) name: AudienceName,
    pub(super) length: Length,
    pub(super) redis: RedisConfig,
}

/// A valid `[[audience]]`.
#[derive(Debug, Clone)]
pub(super) struct AudienceConfig {
    pub(super) name: AudienceName,
    pub(super) from_window: AudienceName,
    pub(super) min_count: u16,
    pub(super) filter: FilterSpec,
    pub(super) fpr: f64,
}

/// A valid config.
#[derive(Debug)]
pub(crate) struct Config {
    pub(super) state_dir: PathBuf,
    /// Time that the owner acknowledges events without word from the store.
    pub(super) lease: Duration,
    pub(super) windows: Vec<WindowConfig>,
    pub(super) remote: Vec<RemoteConfig>,
    pub(super) audiences: Vec<AudienceConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::new(),
            lease: DEFAULT_LEASE,
            windows: Vec::new(),
            remote: Vec::new(),
            audiences: Vec::new(),
        }
    }
}

impl Config {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: shown.clone(), source })?;
        Self::parse(&text, &shown)
    }

    /// The audiences that follow a window.
    pub(super) fn audiences_of<'a>(
        &'a self,
        window: &'a AudienceName,
    ) -> impl Iterator<Item = &'a AudienceConfig> {
        self.audiences.iter().filter(move |audience| audience.from_window == *window)
    }

    fn parse(text: &str, path: &str) -> Result<Self, ConfigError> {
        let path = path.to_owned();
        let file: File = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            ConfigError::Syntax { path: path.clone(), line, what: without_values(error.message()) }
        })?;
        let mut mistakes = Vec::new();
        let config = check(file, &mut mistakes);
        if mistakes.is_empty() { Ok(config) } else { Err(ConfigError::Values { path, mistakes }) }
    }
}

/// The message without text of the file but names of keys. A wrong type is quoted: `invalid type:
/// string "…", expected …`.
fn without_values(message: &str) -> String {
    let quotes = ["invalid type: ", "invalid value: ", "unknown variant "];
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if quotes.iter().any(|quote| message.starts_with(quote)) => {
            format!("invalid value: expected {expected}")
        }
        _ => message.to_owned(),
    }
}

fn check(file: File, mistakes: &mut Vec<String>) -> Config {
    let mut config = Config::default();
    if let Some(text) = &file.lease {
        match duration(text, LEASES) {
            Ok(lease) => config.lease = lease,
            Err(expected) => {
                mistakes.push(format!("lease: expected {expected}, found {text:?}"));
            }
        }
    }
    let mut names = HashSet::new();
    let followed: HashSet<&str> =
        file.audience.iter().map(|audience| audience.from_window.as_str()).collect();
    for table in &file.window {
        let mut reader = Reader { table: format!("window {:?}", table.name), mistakes };
        if !names.insert(table.name.as_str()) {
            reader.mistake("name", "a name that no other window has", &table.name);
        }
        let is_followed = followed.contains(table.name.as_str());
        match table.backend.is_some() || table.backend_file.is_some() {
            true => config.remote.extend(remote(table, is_followed, &mut reader)),
            false => config.windows.extend(window(table, is_followed, &mut reader)),
        }
    }
    let mut names = HashSet::new();
    for table in &file.audience {
        let mut reader = Reader { table: format!("audience {:?}", table.name), mistakes };
        if !names.insert(table.name.as_str()) {
            reader.mistake("name", "a name that no other audience has", &table.name);
        }
        let Some(window) = file.window.iter().find(|window| window.name == table.from_window)
        else {
            reader.mistake("from_window", "the name of a [[window]]", &table.from_window);
            continue;
        };
        config.audiences.extend(audience(table, window, &mut reader));
    }
    let needs_dir = config.windows.iter().any(|window| window.durability != Durability::None);
    match file.state_dir {
        Some(dir) => config.state_dir = dir,
        None if needs_dir => mistakes.push(
            "state_dir: expected a directory for the windows' files, found none; windows with \
             durability = \"none\" need none"
                .to_owned(),
        ),
        None => {}
    }
    config
}

/// Reports the mistakes of one table.
struct Reader<'a> {
    table: String,
    mistakes: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn mistake(&mut self, key: &str, expected: impl std::fmt::Display, found: &str) {
        let table = &self.table;
        self.mistakes.push(format!("{table}: {key}: expected {expected}, found {found}"));
    }

    fn name(&mut self, name: &str) -> Option<AudienceName> {
        let parsed = name.parse().ok();
        if parsed.is_none() {
            let expected = "1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit";
            self.mistake("name", expected, name);
        }
        parsed
    }

    fn duration(&mut self, key: &str, text: &str, range: (Duration, Duration)) -> Option<Duration> {
        match duration(text, range) {
            Ok(duration) => Some(duration),
            Err(expected) => {
                let also = if key == "length" { ", or \"day\"" } else { "" };
                self.mistake(key, expected + also, &format!("{text:?}"));
                None
            }
        }
    }
}

/// A time within a range, or what is expected.
fn duration(text: &str, (least, most): (Duration, Duration)) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).ok();
    duration.filter(|duration| (least..=most).contains(duration)).ok_or_else(|| {
        let range = [least, most].map(|bound| humantime::format_duration(bound).to_string());
        format!("a time of {} to {}", range[0], range[1])
    })
}

fn window(table: &WindowTable, is_followed: bool, reader: &mut Reader<'_>) -> Option<WindowConfig> {
    let name = reader.name(&table.name);
    let length = length(table, reader);
    if table.backend_ca_file.is_some() || table.namespace.is_some() {
        reader.mistake("backend", "a URL beside backend_ca_file and namespace", "none");
    }
    let Some(capacity) = table.capacity else {
        reader.mistake("capacity", "the number of keys at a time", "none");
        return None;
    };
    let interval = match &table.sync_interval {
        Some(text) => reader.duration("sync_interval", text, INTERVALS)?,
        None => DEFAULT_INTERVAL,
    };
    let durability = match table.durability.as_deref().unwrap_or("interval") {
        "fsync" => Durability::Fsync,
        "interval" => Durability::Interval(interval),
        "none" => Durability::None,
        other => {
            let expected = "\"fsync\", \"interval\" or \"none\"";
            reader.mistake("durability", expected, &format!("{other:?}"));
            return None;
        }
    };
    if table.sync_interval.is_some() && !matches!(durability, Durability::Interval(_)) {
        reader.mistake("sync_interval", "durability = \"interval\" with it", "another durability");
    }
    let checkpoint_interval = match &table.checkpoint_interval {
        Some(text) => reader.duration("checkpoint_interval", text, CHECKPOINTS)?,
        None => DEFAULT_CHECKPOINT_INTERVAL,
    };
    if table.checkpoint_interval.is_some() && durability == Durability::None {
        reader.mistake("checkpoint_interval", "a durability with checkpoints", "\"none\"");
    }
    let spec = WindowSpec {
        capacity,
        fpr: table.fpr.unwrap_or(DEFAULT_FPR),
        count: table.count.unwrap_or(1),
        whole_keys: is_followed,
        lifetime: match length.as_ref()? {
            Length::Sliding(_) => TICKS + 1,
            Length::Day(_) => 1,
        },
    };
    if let Err(error) = spec.validate() {
        reader.mistakes.push(format!("{}: {error}", reader.table));
        return None;
    }
    if table_spec(&spec).validate().is_err() {
        let expected = format!("less than {} for a window with an [[audience]]", spec.count);
        reader.mistake("count", expected, &spec.count.to_string());
        return None;
    }
    Some(WindowConfig {
        name: name?,
        length: length?,
        spec,
        when_full: table.when_full.unwrap_or(WhenFull::New),
        durability,
        checkpoint_interval,
    })
}

/// Spec of the table: with an audience, it counts to one more than is shown. So a key is reported
/// when its count passes, not at each event.
pub(super) fn table_spec(spec: &WindowSpec) -> WindowSpec {
    WindowSpec { count: spec.count + u16::from(spec.whole_keys), ..*spec }
}

fn length(table: &WindowTable, reader: &mut Reader<'_>) -> Option<Length> {
    if table.length != "day" {
        if table.time_zone.is_some() {
            reader.mistake("time_zone", "length = \"day\" with it", &format!("{:?}", table.length));
        }
        return reader.duration("length", &table.length, LENGTHS).map(Length::Sliding);
    }
    match Calendar::new(PeriodUnit::Day, table.time_zone.as_deref()) {
        Ok(calendar) => Some(Length::Day(calendar)),
        Err(error) => {
            reader.mistakes.push(format!("{}: time_zone: {error}", reader.table));
            None
        }
    }
}

fn audience(
    table: &AudienceTable,
    window: &WindowTable,
    reader: &mut Reader<'_>,
) -> Option<AudienceConfig> {
    let name = reader.name(&table.name);
    let min_count = table.min_count.unwrap_or(1);
    let highest = window.count.unwrap_or(1);
    if !(1..=highest).contains(&min_count) {
        let expected = format!("1 to the window's count, {highest}");
        reader.mistake("min_count", expected, &min_count.to_string());
    }
    let fpr = table.fpr.unwrap_or(DEFAULT_AUDIENCE_FPR);
    let filter = FilterSpec::for_fpr(FilterKind::Block512, fpr);
    let filter = filter.map_err(|error| reader.mistakes.push(format!("{}: {error}", reader.table)));
    Some(AudienceConfig {
        name: name?,
        from_window: window.name.parse().ok()?,
        min_count,
        filter: filter.ok()?,
        fpr,
    })
}

#[cfg(test)]
mod tests;
