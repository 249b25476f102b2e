//! Report of `dedup`.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use rtad_cli::command_error::CommandError;

use super::super::context::Output;
use super::super::input_report::InputReport;
use super::super::output_file::write_output;
use crate::input::{Counts, Reason};
use crate::seen::SeenKeys;

/// JSON object of `dedup`.
#[derive(Debug, Serialize)]
pub struct DedupReport {
    rows: u64,
    /// Ids that counted as new.
    first_seen: u64,
    duplicates: u64,
    blank: u64,
    malformed: u64,
    #[serde(flatten)]
    inputs: InputReport,
    exact: bool,
    /// Expected number of new ids that counted as seen; `None` if the filter is full.
    expected_false_positives: Option<f64>,
    memory_bytes: u64,
    seconds: f64,
}

impl DedupReport {
    pub fn new(
        (counts, inputs): (&Counts, InputReport),
        seen: &SeenKeys,
        first_seen: u64,
        took: Duration,
    ) -> Self {
        let unusable: u64 = counts.rejected.iter().sum();
        // Several spellings in one row are one id; several columns may hold several ids.
        let usable = (counts.values - unusable).min(counts.keys);
        Self {
            rows: counts.rows,
            first_seen,
            duplicates: usable.saturating_sub(first_seen),
            blank: counts.of(Reason::Blank),
            malformed: counts.malformed(),
            inputs,
            exact: matches!(seen, SeenKeys::Exact(_)),
            expected_false_positives: match seen {
                SeenKeys::Exact(_) => Some(0.0),
                SeenKeys::Bloom(bloom) => bloom.expected_false_positives(),
            },
            memory_bytes: seen.memory_bytes(),
            seconds: took.as_secs_f64(),
        }
    }

    fn json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).expect("plain fields");
        text.push(b'\n');
        text
    }

    /// Writes the report to a file, as JSON.
    pub fn write_file(&self, file: Option<&Path>) -> Result<(), CommandError> {
        let Some(file) = file else { return Ok(()) };
        write_output("--report", file, &self.json())
    }

    /// Writes the report to stdout or stderr.
    pub fn write(&self, on_stdout: bool, output: &Output) -> Result<(), CommandError> {
        if on_stdout {
            return output.data(self, Self::write_text);
        }
        let mut errors = io::stderr().lock();
        let written = match (output.json, output.quiet) {
            (true, _) => errors.write_all(&self.json()),
            (false, true) => Ok(()),
            (false, false) => self.write_text(&mut errors),
        };
        written.map_err(CommandError::output)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            rows,
            first_seen,
            duplicates,
            blank,
            malformed,
            ..
        } = *self;
        writeln!(out, "rows        {}", HumanCount(rows))?;
        writeln!(out, "first seen  {}", HumanCount(first_seen))?;
        writeln!(out, "duplicates  {}", HumanCount(duplicates))?;
        let (blank, malformed) = (HumanCount(blank), HumanCount(malformed));
        writeln!(out, "unusable    {blank} blank, {malformed} malformed")?;
        self.inputs.write_text(out, "")?;
        match self.exact {
            true => writeln!(
                out,
                "method      exact, {} of memory",
                HumanBytes(self.memory_bytes)
            )?,
            false => {
                write!(
                    out,
                    "method      Bloom filter of {}: ",
                    HumanBytes(self.memory_bytes)
                )?;
                match self.expected_false_positives {
                    Some(missed) => writeln!(out, "{missed:.3} new ids expected to count as seen")?,
                    None => writeln!(out, "full, nearly every new id counts as seen")?,
                }
            }
        }
        writeln!(out, "time        {:.1} s", self.seconds)
    }
}
