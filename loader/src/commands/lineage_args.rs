//! `--label`, and the record of a build's inputs in the manifest.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;

use rtad_core::snapshot::Lineage;

use super::input_report;
use crate::input::{InputCounts, Source};

#[derive(Debug, Args)]
pub struct LineageArgs {
    /// A fact of your own about the generation, such as dt=2026-11-24; repeatable. `list` and
    /// `inspect` show it
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
}

impl LineageArgs {
    /// The labels alone.
    pub fn labels(&self) -> Lineage {
        Lineage {
            labels: self.labels.iter().cloned().collect(),
            ..Lineage::default()
        }
    }

    /// The labels and the inputs.
    pub fn lineage(&self, sources: &[Source], counts: &InputCounts) -> Lineage {
        Lineage {
            inputs: input_report::records(sources, counts),
            more_inputs: input_report::more(sources),
            ..self.labels()
        }
    }
}

fn parse_label(text: &str) -> Result<(String, String), &'static str> {
    const ACCEPTED: &str =
        "accepted: KEY=VALUE, with a key of up to 64 letters, digits, _, . and -";
    let (key, value) = text.split_once('=').ok_or(ACCEPTED)?;
    let mut bytes = key.bytes();
    let is_plain = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    let has_control = value.chars().any(char::is_control);
    if !is_plain || !(1..=64).contains(&key.len()) || value.len() > 256 || has_control {
        return Err(ACCEPTED);
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// A time as in RFC 3339, in UTC.
pub fn rfc3339(unix_seconds: u64) -> String {
    // The last second of the year 9999, beyond which the format has no years.
    let seconds = unix_seconds.min(253_402_300_799);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// Labels in one line.
pub fn labels_text(lineage: &Lineage) -> String {
    let labels = lineage
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(" ")
}
