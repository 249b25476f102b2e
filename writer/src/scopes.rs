//! Scopes of tokens: the windows and audiences that a token may use.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use rtad_config::values::text;
use rtad_core::snapshot::AudienceName;

/// Accepted scopes, for messages.
const ACCEPTED: &str =
    "admin, or events:, callbacks: or devices: with a name or *, such as events:clicks";

/// Routes that scopes tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Area {
    /// Events, checks and erasures of a window.
    Events,
    /// Click callbacks of a window.
    Callbacks,
    /// State and devices of an audience.
    Devices,
}

/// A right of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every route.
    Admin,
    /// The routes of one window or audience; `None` for all of them.
    Area(Area, Option<AudienceName>),
}

impl Scope {
    /// Whether the scope includes another.
    pub fn includes(&self, needed: &Self) -> bool {
        match (self, needed) {
            (Self::Admin, _) => true,
            (Self::Area(area, None), Self::Area(needed, _)) => area == needed,
            _ => self == needed,
        }
    }

    /// The window that the scope names.
    pub fn window(&self) -> Option<&AudienceName> {
        match self {
            Self::Area(Area::Events | Area::Callbacks, name) => name.as_ref(),
            Self::Area(Area::Devices, _) | Self::Admin => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => f.write_str("admin"),
            Self::Area(area, name) => {
                let name = name.as_ref().map_or("*", AudienceName::as_str);
                write!(f, "{area}:{name}")
            }
        }
    }
}

impl FromStr for Scope {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "admin" {
            return Ok(Self::Admin);
        }
        let (area, name) = text.split_once(':').ok_or(())?;
        let area = area.parse().map_err(|_| ())?;
        let name = match name {
            "*" => None,
            name => Some(name.parse().map_err(|_| ())?),
        };
        Ok(Self::Area(area, name))
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, ACCEPTED, |text| text.parse().ok())
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_includes_only_what_it_names() {
        let includes = |held: &str, needed: &str| {
            let [held, needed] = [held, needed].map(|text| text.parse::<Scope>().unwrap());
            held.includes(&needed)
        };
        for (held, needed) in [
            ("admin", "admin"),
            ("admin", "devices:a"),
            ("events:*", "events:clicks"),
            ("events:clicks", "events:clicks"),
        ] {
            assert!(includes(held, needed), "{held} for {needed}");
        }
        for (held, needed) in [
            ("events:*", "admin"),
            ("events:*", "devices:clicks"),
            ("events:clicks", "events:clicks_2"),
            ("events:clicks", "events:*"),
            ("devices:a", "events:a"),
        ] {
            assert!(!includes(held, needed), "{held} for {needed}");
        }
        for text in [
            "",
            "root",
            "events",
            "events:",
            "events:A",
            "events:a*",
            "Admin",
            "admin:*",
        ] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }
}
