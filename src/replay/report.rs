//! The report as text and JSON.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::comparison::{ChangeKey, Changes, Comparison, RowCounts, StrategyCounts};

/// Most kinds of changes in the text.
const MAX_SHOWN: usize = 40;
/// Columns of the table of strategies.
const COLUMNS: [&str; 9] = [
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

/// The result of a replay.
#[derive(Debug, Serialize)]
pub struct Report {
    files: usize,
    #[serde(flatten)]
    counts: RowCounts,
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
    counts: StrategyCounts,
}

#[derive(Debug, Serialize)]
struct ReplayChange {
    #[serde(flatten)]
    key: ChangeKey,
    #[serde(flatten)]
    changes: Changes,
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

fn share_of(part: f64, all: f64) -> f64 {
    if part == 0.0 { 0.0 } else { part / all }
}

impl Report {
    pub(crate) fn new(files: usize, found: Comparison) -> Self {
        let estimated = found.estimated;
        let mut report = Self {
            files,
            counts: found.counts,
            changed_share: share_of(found.estimated_changed, estimated),
            shadow_changed_share: share_of(found.estimated_shadow_changed, estimated),
            open_share: share_of(found.estimated_open, estimated),
            times: found.times,
            configs: Vec::new(),
            strategies: Vec::new(),
            changes: Vec::new(),
            buckets: Vec::new(),
            gaps: Vec::new(),
        };

        for (config, rows) in found.configs {
            report.configs.push(ConfigRows { config, rows });
        }
        for (platform, strategies) in found.strategies {
            for (strategy, counts) in strategies {
                report.strategies.push(StrategyLine {
                    platform: platform.clone(),
                    strategy,
                    counts,
                });
            }
        }
        for (key, changes) in found.changes {
            report.changes.push(ReplayChange { key, changes });
        }
        report
            .changes
            .sort_by_key(|change| std::cmp::Reverse(change.changes.rows));
        for ([experiment, before, after], rows) in found.buckets {
            report.buckets.push(BucketChange {
                experiment,
                before,
                after,
                rows,
            });
        }
        for (gap, times) in found.gaps.sentences {
            report.gaps.push(Gap { gap, times });
        }
        report
    }

    /// Whether no row was decided again.
    pub const fn has_decided_nothing(&self) -> bool {
        self.counts.rows == self.counts.undecided
    }

    /// The share of requests whose answer, value or bucket changes or cannot be known, by the
    /// weights of the rows.
    pub const fn open_share(&self) -> f64 {
        self.open_share
    }

    fn write_head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} rows of {} files", self.counts.rows, self.files)?;
        if let Some([first, last]) = self.times {
            writeln!(f, "from {} to {}", time_text(first), time_text(last))?;
        }
        for ConfigRows { config, rows } in &self.configs {
            writeln!(f, "config {config}: {rows} rows")?;
        }
        if self.counts.undecided > 0 {
            let rows = self.counts.undecided;
            writeln!(f, "{rows} rows without decisions: callers without access")?;
        }

        let share = 100.0 * self.changed_share;
        let rows = self.counts.changed_rows;
        writeln!(f, "\nchanged: {rows} rows, {share:.4} % of requests\n")?;
        if self.counts.shadow_changed_rows > 0 {
            let share = 100.0 * self.shadow_changed_share;
            let rows = self.counts.shadow_changed_rows;
            writeln!(
                f,
                "changed in shadow: {rows} rows, {share:.4} % of requests\n"
            )?;
        }
        if self.counts.incomplete_rows > 0 {
            let rows = self.counts.incomplete_rows;
            writeln!(f, "not known: {rows} rows, as they lack facts; see below\n")?;
        }
        Ok(())
    }

    fn write_strategies(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut table = vec![COLUMNS.map(str::to_owned)];
        for line in &self.strategies {
            let counts = &line.counts;
            table.push([
                line.platform.clone(),
                line.strategy.clone(),
                counts.decisions.to_string(),
                counts.bids_before.to_string(),
                counts.bids_after.to_string(),
                counts.gained.to_string(),
                counts.lost.to_string(),
                counts.values_changed.to_string(),
                counts.reasons_changed.to_string(),
            ]);
        }
        write_table(f, &table)
    }

    fn write_changes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for ReplayChange { key, changes } in self.changes.iter().take(MAX_SHOWN) {
            let rows = changes.rows;
            writeln!(f, "\n{} {}: {rows} rows", key.platform, key.strategy)?;
            writeln!(f, "  {}\n  {}", key.before, key.after)?;
            if !changes.examples.is_empty() {
                writeln!(f, "  requests {}", changes.examples.join(", "))?;
            }
        }
        let hidden = self.changes.len().saturating_sub(MAX_SHOWN);
        if hidden > 0 {
            writeln!(f, "\n{hidden} further kinds of changes: --json")?;
        }
        Ok(())
    }
}

/// Tables for a terminal.
impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_head(f)?;
        self.write_strategies(f)?;
        self.write_changes(f)?;

        for change in &self.buckets {
            let BucketChange {
                experiment,
                before,
                after,
                rows,
            } = change;
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

fn time_text(micros: i64) -> impl Display {
    let micros = Duration::from_micros(u64::try_from(micros).unwrap_or_default());
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + micros)
}

/// Writes columns, the first two of texts and the others of numbers.
fn write_table(f: &mut Formatter<'_>, table: &[[String; COLUMNS.len()]]) -> fmt::Result {
    let mut widths = [0; COLUMNS.len()];
    for row in table {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }

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
