//! Carried changes of a build, on one machine or distributed: devices that were appended or removed
//! before the previous build.
//!
//! The previous build merged them into its generation. This build knows them only through its
//! input, unless `--keep-carried` applies them again. The differences are counted while keys are
//! sorted.

use std::fmt;

use clap::Args;
use indicatif::HumanCount;
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{self, CommandFailure, ExitStatus};
use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::AudienceName;
use rtad_store::write::Base;
use rtad_store::{Store, StoreError};
use serde::{Deserialize, Serialize};

use super::gate::GateError;
use crate::keys::{Distinct, KeyChecks};
use crate::merged_deltas::{CarriedChanges, MergedDeltas};

#[derive(Debug, Args)]
pub struct CarriedArgs {
    /// Carry on the devices that were appended or removed before the previous build, whatever the
    /// input contains
    #[arg(long)]
    pub(super) keep_carried: bool,
    #[command(flatten)]
    pub(super) limit: CarriedLimitArgs,
}

#[derive(Debug, Args)]
pub struct CarriedLimitArgs {
    /// Publish nothing if the input undoes more of these changes than N, or than P percent of them
    #[arg(long, value_name = "N|P%", value_parser = parse_limit)]
    max_carried_loss: Option<CarriedLimit>,
}

/// Highest number of changes that an input may undo.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CarriedLimit {
    Changes(u64),
    Percent(f64),
}

fn parse_limit(text: &str) -> Result<CarriedLimit, &'static str> {
    let limit = match text.strip_suffix('%') {
        None => text.parse().ok().map(CarriedLimit::Changes),
        Some(percent) => {
            let percent = percent
                .parse()
                .ok()
                .filter(|percent| (0.0..=100.0).contains(percent));
            percent.map(CarriedLimit::Percent)
        }
    };
    limit.ok_or("accepted: a number of changes, or a percentage such as 5%")
}

impl fmt::Display for CarriedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changes(changes) => write!(f, "{changes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl CarriedLimit {
    fn allows(self, lost: u64, all: u64) -> bool {
        match self {
            Self::Changes(most) => lost <= most,
            // Rounding must not cost a change.
            Self::Percent(percent) => lost as f64 <= all as f64 * percent / 100.0 * (1.0 + 1e-12),
        }
    }
}

/// The carried changes of the live generation.
#[derive(Debug, Default)]
pub struct Carried {
    /// Those that the input decides about.
    changes: CarriedChanges,
    report: CarriedReport,
}

/// Part of the JSON object of `build --json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedReport {
    /// Carried additions and removals.
    pub(super) added: u64,
    pub(super) removed: u64,
    /// Additions that the input lacks.
    pub(super) dropped: u64,
    /// Removed devices that the input contains.
    pub(super) returned: u64,
    /// Whether they apply to this generation, despite the input.
    pub(super) kept: bool,
}

/// Carried changes that a flag needs and that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "the deltas merged into the live generation are unreadable, so its carried changes are \
     unknown; nothing was published; without --keep-carried and --max-carried-loss the input \
     decides"
)]
struct CarriedUnreadable(#[source] StoreError);

impl CommandFailure for CarriedUnreadable {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Store
    }
}

impl Carried {
    /// Reads the carried changes, and adds them to `merged` if they are kept. Unless they are
    /// needed, unreadable ones are a warning.
    pub async fn read(
        (is_kept, is_needed): (bool, bool),
        merged: &mut MergedDeltas,
        store: &Store,
        base: &Base,
    ) -> Result<Option<Self>, CommandError> {
        let changes = match merged.read_carried(store, base).await {
            Ok(changes) => changes,
            Err(source) if is_kept || is_needed => {
                return Err(CarriedUnreadable(source).into());
            }
            Err(error) => {
                warn_unreadable(base.audience(), &error);
                return Ok(None);
            }
        };
        let (added, removed) = (changes.added.len() as u64, changes.removed.len() as u64);
        let report = CarriedReport {
            added,
            removed,
            ..CarriedReport::default()
        };
        let mut carried = Self { changes, report };
        if is_kept {
            merged.keep(std::mem::take(&mut carried.changes));
            carried.report.kept = true;
        }
        Ok(Some(carried))
    }

    /// The changes that the input decides about.
    pub const fn changes(&self) -> &CarriedChanges {
        &self.changes
    }

    /// The report without what the input undoes.
    pub const fn unchecked(&self) -> CarriedReport {
        self.report
    }

    /// Counts the changes among the keys of the new generation.
    pub fn checks(&self) -> KeyChecks<'_> {
        let CarriedChanges { added, removed, .. } = &self.changes;
        KeyChecks {
            carried_added: added,
            carried_removed: removed,
            ..KeyChecks::default()
        }
    }

    pub fn report(&self, distinct: &Distinct) -> CarriedReport {
        let added = self.changes.added.len() as u64;
        let dropped = added.saturating_sub(distinct.carried_added);
        CarriedReport {
            dropped,
            returned: distinct.carried_removed,
            ..self.report
        }
    }
}

fn warn_unreadable(audience: &AudienceName, error: &StoreError) {
    exit::write_warning(&format!(
        "{audience}: the changes merged into the live generation are unreadable, so those that the \
         input undoes are not counted: {}",
        error_chain(error)
    ));
}

impl CarriedReport {
    /// Adds the numbers of another part of the audience.
    pub const fn add(&mut self, other: Self) {
        self.added += other.added;
        self.removed += other.removed;
        self.dropped += other.dropped;
        self.returned += other.returned;
    }

    /// Warns of changes that the input undoes.
    pub fn warn(&self, audience: &str) {
        let Self {
            dropped, returned, ..
        } = self;
        if dropped + returned > 0 {
            let (dropped, returned) = (HumanCount(*dropped), HumanCount(*returned));
            exit::write_warning(&format!(
                "{audience}: the input lacks {dropped} devices that were appended before the \
                 previous build, and has {returned} that were removed before it; the input \
                 decides; --keep-carried keeps such changes"
            ));
        }
    }
}

impl CarriedLimitArgs {
    /// Whether a flag needs the carried changes.
    pub const fn is_given(&self) -> bool {
        self.max_carried_loss.is_some()
    }

    /// Checks `--max-carried-loss`.
    pub fn check(&self, report: CarriedReport) -> Result<(), GateError> {
        let CarriedReport {
            added,
            removed,
            dropped,
            returned,
            ..
        } = report;
        let all = added + removed;
        match self
            .max_carried_loss
            .filter(|limit| !limit.allows(dropped + returned, all))
        {
            None => Ok(()),
            Some(limit) => Err(GateError::Carried {
                limit: limit.to_string(),
                dropped,
                returned,
                all,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_a_number_or_a_percentage() {
        for (text, lost, all, allows) in [
            ("0", 0, 10, true),
            ("0", 1, 10, false),
            ("3", 3, 3, true),
            ("10%", 1, 10, true),
            ("10%", 2, 10, false),
            ("0.1%", 3, 3000, true),
            ("0%", 0, 0, true),
        ] {
            assert_eq!(
                parse_limit(text).unwrap().allows(lost, all),
                allows,
                "{text} {lost}"
            );
        }
        for refused in ["", "%", "-1", "1.5", "101%", "-1%", "NaN%", "5 %x"] {
            assert!(parse_limit(refused).is_err(), "{refused}");
        }
    }
}
