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
            let rows = self
                .notes
                .iter()
                .map(|note| vec![note.what.to_owned(), printable(&note.value)]);
            table(f, &rows.collect::<Vec<_>>())?;
        }
        self.ids(f)?;
        if let Some(device) = &self.log_device {
            writeln!(f, "\nDevice in the decision log: {device}")?;
        }
        if !self.audiences.is_empty() {
            writeln!(f, "\nAudiences")?;
            table(
                f,
                &self.audiences.iter().map(audience_row).collect::<Vec<_>>(),
            )?;
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
        let rows = self.ids.iter().map(|id| {
            vec![
                printable(&id.path),
                id.kind.to_owned(),
                word(id.result).to_owned(),
                printable(&id.value),
            ]
        });
        let rows: Vec<_> = rows.collect();
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
        let because = printable(&self.of_strategy(one));
        let value = self
            .of_value(one)
            .map(|value| format!("; {value}"))
            .unwrap_or_default();
        let reason = format!("{}: {because}{value}", one.reason);
        let id = match &one.device {
            Some(device) => format!("{} of {device}", one.id),
            None => one.id.clone(),
        };
        vec![printable(&id), strategy, outcome.to_owned(), reason]
    }
}

fn id_details(id: &IdExplained) -> String {
    let mut details: Vec<String> = Vec::new();
    details.extend(words::id(id).map(|because| format!("ignored: {because}")));
    details.extend(
        id.canonical
            .as_ref()
            .map(|canonical| format!("hashed as {}", printable(canonical))),
    );
    details.extend(
        id.md5
            .as_ref()
            .filter(|md5| !md5.eq_ignore_ascii_case(&id.value))
            .map(|md5| format!("md5 {md5}")),
    );
    details.extend(id.shard.as_ref().map(|shard| format!("shard {shard}")));
    let log_device = id.log_device.as_ref();
    details.extend(log_device.map(|device| format!("{device} in the decision log")));
    details.extend(id.audiences.iter().map(|one| match one.answer {
        Some(Membership::Member) => format!("in {}{}", one.name, tier(one.tier)),
        Some(Membership::NotMember) => format!("not in {}", one.name),
        _ => format!("{} unavailable", one.name),
    }));
    details.join(", ")
}

/// The value of a member, behind its membership.
fn tier(tier: Option<u8>) -> String {
    tier.map(|tier| format!(" with tier {tier}"))
        .unwrap_or_default()
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
    let answer = audience.answer.map_or("not checked", membership_word);
    let answer = answer.to_owned() + &tier(audience.tier);
    let snapshot = audience.snapshot.as_ref().map(|snapshot| {
        let (age, fpr) = (words::duration(snapshot.age_seconds), snapshot.expected_fpr);
        let keys = counted(snapshot.keys, "key");
        format!(
            "generation {}, {keys}, {age} old, fpr {fpr:.1e}",
            snapshot.generation
        )
    });
    let snapshot = snapshot.filter(|_| audience.available);
    let trouble = words::unavailable(audience).as_deref().map(printable);
    vec![
        audience.name.clone(),
        answer,
        snapshot.or(trouble).unwrap_or_default(),
    ]
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
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    (0..columns.saturating_sub(1)).map(width).collect()
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
    let escaped = |character: char| -> String {
        match character.is_control() {
            true => character.escape_default().to_string(),
            false => character.to_string(),
        }
    };
    text.chars().map(escaped).collect()
}
