//! Carried changes of a build, on one machine or distributed: devices that were appended or removed
//! before the previous build.
//!
//! The previous build merged them into its generation. This build knows them only through its
//! input, unless `--keep-carried` applies them again. The differences are counted while keys are
//! sorted.

use clap::Args;
use indicatif::HumanCount;
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{self, CommandFailure, ExitStatus};
use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::AudienceName;
use rtad_store::write::Base;
use rtad_store::{Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::keys::{Distinct, KeyChecks};
use crate::merged_deltas::{CarriedChanges, MergedDeltas};

#[derive(Debug, Args)]
pub struct CarriedArgs {
    /// Carry on the devices that were appended or removed before the previous build, whatever the
    /// input contains
    #[arg(long)]
    pub keep_carried: bool,
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
    pub added: u64,
    pub removed: u64,
    /// Additions that the input lacks.
    pub dropped: u64,
    /// Removed devices that the input contains.
    pub returned: u64,
    /// Whether they apply to this generation, despite the input.
    pub kept: bool,
}

/// Carried changes that are to be kept and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "the deltas merged into the live generation are unreadable, so its carried changes are \
     unknown; nothing was published; without --keep-carried the input decides"
)]
struct CarriedUnreadable(#[source] StoreError);

impl CommandFailure for CarriedUnreadable {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Store
    }
}

impl Carried {
    /// Reads the carried changes, and adds them to `merged` if they are kept. Unless they are,
    /// unreadable ones are a warning.
    pub async fn read(
        is_kept: bool,
        merged: &mut MergedDeltas,
        store: &Store,
        base: &Base,
    ) -> Result<Option<Self>, CommandError> {
        let changes = match merged.read_carried(store, base).await {
            Ok(changes) => changes,
            Err(source) if is_kept => {
                return Err(CarriedUnreadable(source).into());
            }
            Err(error) => {
                warn_unreadable(base.audience(), &error);
                return Ok(None);
            }
        };

        let report = CarriedReport {
            added: changes.added.len() as u64,
            removed: changes.removed.len() as u64,
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
            let dropped = HumanCount(*dropped);
            let returned = HumanCount(*returned);
            exit::write_warning(&format!(
                "{audience}: the input lacks {dropped} devices that were appended before the \
                 previous build, and has {returned} that were removed before it; the input \
                 decides; --keep-carried keeps such changes"
            ));
        }
    }
}
