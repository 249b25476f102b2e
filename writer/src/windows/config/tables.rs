//! Tables of the config file, as written.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rtad_config::values::{Time, accepted_time, as_size, filled, parse_time, size, text};
use rtad_core::period::{Calendar, PeriodUnit};
use rtad_core::snapshot::AudienceName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::super::super::scopes::Scope;
use super::callback::CallbackConfig;

const LENGTHS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(28 * 24 * 3600);

/// Span of time of a window.
#[derive(Debug, Clone, PartialEq)]
pub enum Length {
    /// A window from the first event of a key.
    Sliding(Duration),
    /// A window from midnight to midnight.
    Day(Calendar),
}

impl Length {
    /// Zone of days.
    pub fn time_zone(&self) -> Option<&str> {
        match self {
            Self::Sliding(_) => None,
            Self::Day(calendar) => Some(calendar.zone_name()),
        }
    }

    /// Identity of the ticks, for the files.
    pub fn clock(&self) -> String {
        match self {
            Self::Sliding(length) => format!("sliding {}", humantime::format_duration(*length)),
            Self::Day(calendar) => format!("day in {}", calendar.zone_name()),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sliding(length) => Time(*length).fmt(f),
            Self::Day(_) => f.write_str("day"),
        }
    }
}

/// The whole file.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Directory of events that the store does not have yet. Windows with `durability = "store"`
    /// need none.
    pub(super) state_dir: Option<PathBuf>,
    /// Tokens that may use some routes; see `[[token]]`.
    pub(super) token: Vec<TokenTable>,
    /// Event windows; see `[[window]]`.
    pub(super) window: Vec<WindowTable>,
    /// Audiences that follow windows; see `[[audience]]`.
    pub(super) audience: Vec<AudienceTable>,
}

/// Tokens with the same scopes.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct TokenTable {
    /// File of bearer tokens, one per line; reread on SIGHUP. A relative path starts at the
    /// directory of the configuration file.
    #[serde(deserialize_with = "filled::<_, String>")]
    pub(super) file: String,
    /// Rights of the tokens: `events:WINDOW` for events, checks and erasures of a window,
    /// `callbacks:WINDOW` for its click callbacks, `devices:AUDIENCE` for state and devices of an
    /// audience, each with `*` for all of them, `admin` for every route.
    pub(super) scopes: Vec<Scope>,
}

/// An event window.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct WindowTable {
    /// Name of the window in routes, metrics and files.
    pub(super) name: AudienceName,
    /// Life of an entry: a time from the first event of its key, or until midnight.
    #[serde(deserialize_with = "length", serialize_with = "as_length")]
    pub(super) length: Length,
    /// Time zone of `length = "day"`, from the IANA database in the program itself; unset = UTC.
    #[serde(default, deserialize_with = "time_zone")]
    pub(super) time_zone: Option<String>,
    /// Number of keys at a time. Required.
    pub(super) capacity: Option<u64>,
    /// Highest count of a key; 1 only tells new keys from duplicates, in half of the memory.
    #[serde(default = "one")]
    pub(super) count: u16,
    /// Place of an event before it is acknowledged: `disk`, the disk of the owner, and the store
    /// about a second later; `store`, the store, which takes the time of a put.
    #[serde(default)]
    pub(super) durability: Survival,
    /// Memory of the answers kept for ten minutes: a request with the same `Idempotency-Key` gets
    /// its first one again. The oldest leave before their time.
    #[serde(
        default = "default_answers_memory",
        deserialize_with = "size::<_, { 1 << 20 }>",
        serialize_with = "as_size"
    )]
    pub(super) answers_memory: u64,
    /// Click callbacks of ad platforms; see `[window.callback]`. Unset = none.
    pub(super) callback: Option<CallbackConfig>,
}

/// The loss that acknowledged events survive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Survival {
    /// The end of the process and of the machine.
    #[default]
    Disk,
    /// Also the loss of the disk.
    Store,
}

/// An audience that follows a window.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct AudienceTable {
    /// Name of the audience in the store. Not that of a built audience.
    pub(super) name: AudienceName,
    /// Name of the window.
    pub(super) from_window: String,
    /// Lowest count of a member, up to the `count` of the window.
    #[serde(default = "one")]
    pub(super) min_count: u16,
}

const fn one() -> u16 {
    1
}

const fn default_answers_memory() -> u64 {
    256 << 20
}

/// The calendar of a day in UTC, until `time_zone` is known.
fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
    let accepted = format!("{}, or day", accepted_time(&LENGTHS));
    text(deserializer, &accepted, |text| match text {
        "day" => Calendar::new(PeriodUnit::Day, None).ok().map(Length::Day),
        _ => parse_time(text, &LENGTHS).map(Length::Sliding),
    })
}

fn as_length<S: Serializer>(length: &Length, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(length)
}

fn time_zone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(
        deserializer,
        "a name of the IANA database, such as Asia/Shanghai",
        |text| {
            Calendar::new(PeriodUnit::Day, Some(text))
                .is_ok()
                .then(|| Some(text.to_owned()))
        },
    )
}
