//! The report as text and JSON.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::comparison::{ChangeKey, Changes, Comparison, StrategyCounts};

/// Most kinds of changes in the text.
const MAX_SHOWN: usize = 40;

/// The result of a replay.
#[derive(Debug, Serialize)]
pub struct Report {
    files: usize,
    rows: u64,
    /// Rows without decisions.
    undecided: u64,
    /// Rows whose answer, value or bucket changes.
    changed_rows: u64,
    /// Rows in which a decision in shadow changes, which answers nothing.
    shadow_changed_rows: u64,
    /// Rows that lack a fact which leaves an answer or a bucket open.
    incomplete_rows: u64,
    /// The share of requests that the changed rows stand for.
    changed_share: f64,
    /// That of the rows with a change in shadow.
    shadow_changed_share: f64,
    /// That of requests which change or lack a fact.
    open_share: f64,
    /// Times of the first and the last row, in microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<[i64; 2]>,
    /// The configurations that decided, and their rows.
    configs: Vec<ConfigRows>,
    strategies: Vec<StrategyLine>,
    changes: Vec<ReplayChange>,
    buckets: Vec<BucketChange>,
    /// Facts that the rows do not hold.
    gaps: Vec<Gap>,
}

#[derive(Debug, Serialize)]
struct ConfigRows {
    config: String,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct StrategyLine {
    platform: String,
    strategy: String,
    #[serde(flatten)]
    line: StrategyCounts,
}

#[derive(Debug, Serialize)]
struct ReplayChange {
    platform: String,
    strategy: String,
    before: String,
    after: String,
    rows: u64,
    estimated_requests: f64,
    examples: Vec<String>,
}

#[derive(Debug, Serialize)]
struct BucketChange {
    experiment: String,
    before: String,
    after: String,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct Gap {
    gap: String,
    times: u64,
}

impl Report {
    pub(super) fn new(files: usize, found: Comparison) -> Self {
        let lines = found.lines.into_iter().flat_map(|(platform, lines)| {
            lines.into_iter().map(move |(strategy, line)| StrategyLine {
                platform: platform.clone(),
                strategy,
                line,
            })
        });
        let change = |(
            ChangeKey {
                platform,
                strategy,
                before,
                after,
            },
            changes,
        ): (_, Changes)| {
            ReplayChange {
                platform,
                strategy,
                before,
                after,
                rows: changes.count,
                estimated_requests: changes.estimated,
                examples: changes.examples,
            }
        };
        let mut changes: Vec<_> = found.changes.into_iter().map(change).collect();
        changes.sort_by_key(|change| std::cmp::Reverse(change.rows));
        let share = |part: f64| {
            if part == 0.0 {
                0.0
            } else {
                part / found.estimated
            }
        };
        let bucket = |([experiment, before, after], rows): ([String; 3], u64)| BucketChange {
            experiment,
            before,
            after,
            rows,
        };
        Self {
            files,
            rows: found.rows,
            undecided: found.undecided,
            changed_rows: found.changed_rows,
            shadow_changed_rows: found.shadow_changed_rows,
            incomplete_rows: found.incomplete_rows,
            changed_share: share(found.estimated_changed),
            shadow_changed_share: share(found.estimated_shadow_changed),
            open_share: share(found.estimated_open),
            times: found.times,
            configs: found
                .configs
                .into_iter()
                .map(|(config, rows)| ConfigRows { config, rows })
                .collect(),
            strategies: lines.collect(),
            changes,
            buckets: found.buckets.into_iter().map(bucket).collect(),
            gaps: found
                .gaps
                .sentences
                .into_iter()
                .map(|(gap, times)| Gap { gap, times })
                .collect(),
        }
    }

    /// The share of requests whose answer, value or bucket changes or cannot be known, by the
    /// weights of the rows.
    pub const fn open_share(&self) -> f64 {
        self.open_share
    }
}

/// Tables for a terminal.
impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            files,
            rows,
            changed_rows,
            ..
        } = self;
        writeln!(f, "{rows} rows of {files} files")?;
        if let Some([first, last]) = self.times {
            let text = |micros: i64| {
                let micros = Duration::from_micros(u64::try_from(micros).unwrap_or_default());
                humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + micros)
            };
            writeln!(f, "from {} to {}", text(first), text(last))?;
        }
        for ConfigRows { config, rows } in &self.configs {
            writeln!(f, "config {config}: {rows} rows")?;
        }
        if self.undecided > 0 {
            writeln!(
                f,
                "{} rows without decisions: callers without access",
                self.undecided
            )?;
        }
        let share = 100.0 * self.changed_share;
        writeln!(
            f,
            "\nchanged: {changed_rows} rows, {share:.4} % of requests\n"
        )?;
        if self.shadow_changed_rows > 0 {
            let (rows, share) = (self.shadow_changed_rows, 100.0 * self.shadow_changed_share);
            writeln!(
                f,
                "changed in shadow: {rows} rows, {share:.4} % of requests\n"
            )?;
        }
        if self.incomplete_rows > 0 {
            writeln!(
                f,
                "not known: {} rows, as they lack facts; see below\n",
                self.incomplete_rows
            )?;
        }
        let head = [
            "platform",
            "strategy",
            "decisions",
            "bids before",
            "after",
            "gained",
            "lost",
            "value",
            "reason",
        ];
        let mut table = vec![head.map(str::to_owned)];
        table.extend(self.strategies.iter().map(
            |StrategyLine {
                 platform,
                 strategy,
                 line,
             }| {
                let numbers = [
                    line.decisions,
                    line.bids_before,
                    line.bids_after,
                    line.gained,
                    line.lost,
                    line.values_changed,
                    line.reasons_changed,
                ];
                let [a, b, c, d, e, g, h] = numbers.map(|number| number.to_string());
                [platform.clone(), strategy.clone(), a, b, c, d, e, g, h]
            },
        ));
        write_table(f, &table)?;
        for change in self.changes.iter().take(MAX_SHOWN) {
            let ReplayChange {
                platform,
                strategy,
                before,
                after,
                rows,
                ..
            } = change;
            writeln!(
                f,
                "\n{platform} {strategy}: {rows} rows\n  {before}\n  {after}"
            )?;
            if !change.examples.is_empty() {
                writeln!(f, "  requests {}", change.examples.join(", "))?;
            }
        }
        if self.changes.len() > MAX_SHOWN {
            writeln!(
                f,
                "\n{} further kinds of changes: --json",
                self.changes.len() - MAX_SHOWN
            )?;
        }
        for BucketChange {
            experiment,
            before,
            after,
            rows,
        } in &self.buckets
        {
            writeln!(
                f,
                "\nbucket of {experiment}: {before} to {after}, {rows} rows"
            )?;
        }
        for Gap { gap, times } in &self.gaps {
            writeln!(f, "\nnot answered by the rows: {gap} ({times} times)")?;
        }
        Ok(())
    }
}

/// Writes columns, the first two of texts and the others of numbers.
fn write_table(f: &mut Formatter<'_>, table: &[[String; 9]]) -> fmt::Result {
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..9).map(|column| width(column).unwrap_or(0)).collect();
    for row in table {
        let [platform, strategy, numbers @ ..] = row;
        write!(f, "{platform:0$}  {strategy:1$}", widths[0], widths[1])?;
        for (number, width) in numbers.iter().zip(&widths[2..]) {
            write!(f, "  {number:>width$}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}
