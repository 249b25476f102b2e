//! An explanation for a terminal: aligned tables, and the conclusion as the last line.
//!
//! Control characters are escaped, as a captured body could otherwise send terminal commands.

use std::fmt::{self, Display, Formatter};

use super::input::Encoding;
use super::report::{
    AccessChecked, AudienceExplained, Explanation, IdExplained, StrategyExplained, membership_word,
};
use super::words;
use crate::catalog::IdResult;
use crate::strategy::Membership;

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Platform {}, protocol {}, path {}",
            self.platform, self.kind, self.path
        )?;
        let taken = match self.body.read_as {
            Encoding::Binary => "read as is",
            Encoding::Hex => "decoded from hex",
            Encoding::Base64 => "decoded from base64",
        };
        writeln!(f, "Body     {}, {taken}", bytes(self.body.size_bytes))?;
        writeln!(f, "Access   {}", access(self.access))?;

        if let Some(failure) = &self.failure {
            let because = printable(&self.of_failure(failure));
            writeln!(f, "Failure  {}: {because}", failure.cause)?;
        }

        if !self.notes.is_empty() {
            writeln!(f, "\nRequest fields")?;
            let mut rows = Vec::with_capacity(self.notes.len());
            for note in &self.notes {
                rows.push(vec![note.what.to_owned(), printable(&note.value)]);
            }
            table(f, &rows)?;
        }

        self.ids(f)?;
        if let Some(device) = &self.log_device {
            writeln!(f, "\nDevice in the decision log: {device}")?;
        }
        if !self.audiences.is_empty() {
            writeln!(f, "\nAudiences")?;
            let rows: Vec<_> = self.audiences.iter().map(audience_row).collect();
            table(f, &rows)?;
        }
        if !self.strategies.is_empty() {
            writeln!(f, "\nStrategies")?;
            let rows = self.strategies.iter().map(|one| self.strategy_row(one));
            table(f, &rows.collect::<Vec<_>>())?;
        }

        let answer = &self.answer;
        let content_type = answer.content_type.unwrap_or("no content type");
        writeln!(
            f,
            "\nAnswer   {}, {}, {content_type}",
            answer.status,
            bytes(answer.size_bytes)
        )?;
        writeln!(f, "  {}", answer.hex)?;
        for line in answer.text.lines() {
            writeln!(f, "  {}", printable(line))?;
        }

        if !self.unchecked_caps.is_empty() {
            let caps = self.unchecked_caps.join(", ");
            writeln!(
                f,
                "\nCaps     not checked: {caps}. A pod knows its counts: POST \
                 /v1/explain/{} on its admin port",
                self.platform
            )?;
        }

        writeln!(f, "\n{}", printable(&self.conclusion()))
    }
}

impl Explanation {
    fn ids(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let usable = self
            .ids
            .iter()
            .filter(|id| id.result == IdResult::Usable)
            .count();

        match self.ids.len() {
            0 => return writeln!(f, "\nIds: none"),
            found => writeln!(f, "\nIds: {found} found, {usable} usable")?,
        }

        let mut rows = Vec::with_capacity(self.ids.len());
        for id in &self.ids {
            rows.push(vec![
                printable(&id.path),
                id.kind.to_owned(),
                word(id.result).to_owned(),
                printable(&id.value),
            ]);
        }
        let widths = widths(&rows);
        for (id, cells) in self.ids.iter().zip(&rows) {
            row(f, cells, &widths)?;
            writeln!(f, "    {}", id_details(id))?;
        }
        Ok(())
    }

    fn strategy_row(&self, one: &StrategyExplained) -> Vec<String> {
        let outcome = if one.bid { "bid" } else { "no bid" };
        let strategy = one.strategy.clone().unwrap_or_else(|| "-".to_owned());
        let mut reason = format!("{}: {}", one.reason, printable(&self.of_strategy(one)));
        if let Some(value) = self.of_value(one) {
            reason += "; ";
            reason += &value;
        }
        let id = match &one.device {
            Some(device) => format!("{} of {device}", one.id),
            None => one.id.clone(),
        };
        vec![printable(&id), strategy, outcome.to_owned(), reason]
    }
}

fn id_details(id: &IdExplained) -> String {
    let mut details: Vec<String> = Vec::new();
    if let Some(because) = words::id(id) {
        details.push(format!("ignored: {because}"));
    }
    if let Some(canonical) = &id.canonical {
        details.push(format!("hashed as {}", printable(canonical)));
    }
    if let Some(md5) = &id.md5
        && !md5.eq_ignore_ascii_case(&id.value)
    {
        details.push(format!("md5 {md5}"));
    }
    if let Some(shard) = &id.shard {
        details.push(format!("shard {shard}"));
    }
    if let Some(device) = &id.log_device {
        details.push(format!("{device} in the decision log"));
    }

    for one in &id.audiences {
        details.push(match one.answer {
            Some(Membership::Member) => format!("in {}{}", one.name, tier(one.tier)),
            Some(Membership::NotMember) => format!("not in {}", one.name),
            _ => format!("{} unavailable", one.name),
        });
    }
    details.join(", ")
}

/// The value of a member, behind its membership.
fn tier(tier: Option<u8>) -> String {
    match tier {
        Some(tier) => format!(" with tier {tier}"),
        None => String::new(),
    }
}

const fn word(found: IdResult) -> &'static str {
    match found {
        IdResult::Usable => "usable",
        IdResult::Blank => "blank",
        IdResult::Malformed => "malformed",
        IdResult::Doubtful => "doubtful",
        IdResult::Duplicate => "duplicate",
        IdResult::NotLookedAt => "not read",
    }
}

const fn access(access: AccessChecked) -> &'static str {
    match access {
        AccessChecked::Open => "open: the platform has no headers and no signature configured",
        AccessChecked::BySignature => "by signature: the platform has no headers configured",
        AccessChecked::Closed => {
            "closed: /v1/decide answers 404 beside platforms, unless [server.api] opens it"
        }
        AccessChecked::NotChecked => "not checked: the platform's headers were not given",
        AccessChecked::Admitted => "admitted by a header",
        AccessChecked::Refused => "refused: no header carries a configured value",
    }
}

fn audience_row(audience: &AudienceExplained) -> Vec<String> {
    let membership = audience.answer.map_or("not checked", membership_word);
    let answer = membership.to_owned() + &tier(audience.tier);

    let mut state = String::new();
    if let Some(trouble) = words::unavailable(audience) {
        state = printable(&trouble);
    }
    if let Some(snapshot) = &audience.snapshot
        && audience.available
    {
        let generation = snapshot.generation;
        let keys = counted(snapshot.keys, "key");
        let age = words::duration(snapshot.age_seconds);
        let fpr = snapshot.expected_fpr;
        state = format!("generation {generation}, {keys}, {age} old, fpr {fpr:.1e}");
    }
    vec![audience.name.clone(), answer, state]
}

fn bytes(count: usize) -> String {
    counted(count as u64, "byte")
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Aligned columns; the last one is not padded.
fn table(f: &mut Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let widths = widths(rows);
    rows.iter().try_for_each(|cells| row(f, cells, &widths))
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let mut widths = Vec::new();
    for column in 0..columns.saturating_sub(1) {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        widths.push(lengths.max().unwrap_or(0));
    }
    widths
}

fn row(f: &mut Formatter<'_>, cells: &[String], widths: &[usize]) -> fmt::Result {
    let (last, before) = cells.split_last().expect("a row has cells");
    write!(f, "  ")?;
    for (cell, width) in before.iter().zip(widths) {
        write!(f, "{cell:width$}  ")?;
    }
    writeln!(f, "{last}")
}

/// The text with its control characters escaped.
fn printable(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}
