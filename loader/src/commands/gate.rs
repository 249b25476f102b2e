//! Publish gate: limits that stop an empty, truncated or wrong export from going live.
//!
//! A build is compared with what was live: its keys with the largest of the last seven generations,
//! so that a list cannot shrink a little every night, and its devices with a sample of the live
//! filters. Both are checked before chunks are built if the keys are in memory. The expected
//! false-positive rate and the fill of the fullest shard are checked after. A rejected build makes
//! nothing live.
//!
//! Every manifest has the keys of the six generations before it. They are compared whatever a gc
//! removed, cost no read, and leave out generations that were rolled back from.
//!
//! A ribbon filter has no fill. Instead its builder looked members and random keys up in it, and
//! the gate rejects a missing member or too many false positives.

use std::fmt;

use clap::Args;
use serde::Serialize;

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::device::SHARDS;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{AudienceName, BuildReport, Current, FilterCheck, Manifest};
use rtad_store::write::{Base, StoreWriter};
use rtad_store::{Store, StoreError};

use super::overlap::Overlap;
use super::value_parsers::parse_ratio;
use super::verify::{MAX_EXCESS, MIN_POSITIVES, wilson};

/// Margin over the fill of a correctly sized filter: small shards vary by this much.
const FILL_MARGIN: f64 = 0.1;

/// Default of `--max-change`.
const DEFAULT_CHANGE: &str = "0.2";
/// A list may have so many times the keys that are live.
const MAX_GROWTH: u64 = 5;
/// Keys up to which a live list is a trial, which a list of any size may follow.
const TRIAL_KEYS: u64 = 1000;

/// The accepted change, as given on the command line.
#[derive(Debug, Args)]
pub struct GateArgs {
    /// Publish nothing if more than this fraction of the live generation's devices would leave, if
    /// the keys would fall by more than half of it below the largest of the last seven generations,
    /// or grow beyond five times the live ones, appended ones included; a live list of up to 1,000
    /// keys may grow freely. `any` accepts every change, also over an unreadable generation, and
    /// gives up the appends, removals and erasures of lost records
    #[arg(long, value_name = "RATIO", default_value = DEFAULT_CHANGE, value_parser = parse_change)]
    max_change: MaxChange,
}

/// The change that a build accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaxChange {
    /// The fraction of the live devices that may leave.
    Share(f64),
    Any,
}

impl MaxChange {
    /// The least change that accepts `share`, which is rounded up.
    fn accepting(share: f64) -> Self {
        let share = (share * 1000.0 - 1e-9).ceil() / 1000.0;
        if share <= 1.0 {
            Self::Share(share)
        } else {
            Self::Any
        }
    }
}

impl fmt::Display for MaxChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => share.fmt(formatter),
            Self::Any => formatter.write_str("any"),
        }
    }
}

impl GateArgs {
    /// The base of a build. `--max-change any` gives up the changes of lost records. A writer that
    /// may not publish, or a bucket that ignores conditions, fails here, not after an hour of
    /// reading.
    pub async fn base(
        &self,
        writer: &StoreWriter,
        audience: &AudienceName,
    ) -> Result<Base, StoreError> {
        let base = match writer.base(audience).await {
            Err(StoreError::LostRecords { .. }) if self.max_change == MaxChange::Any => {
                Base::new(audience.clone(), None)
            }
            base => base?,
        };
        writer.check_creates(audience).await?;

        if base.current().is_some()
            && let Some(live) = writer.store().live(audience).await?
        {
            writer.check_signs(audience, &live)?;
        }
        Ok(base)
    }
}

/// The limits in effect, and the generations that they follow from.
#[derive(Debug, Clone, Serialize)]
pub struct Gate {
    live_generation: Option<u64>,
    live_keys: Option<u64>,
    is_live_unreadable: bool,
    /// Keys that deltas added to the live generation.
    live_added: u64,
    /// Keys of the generations before the live one, newest first.
    recent_keys: Vec<u64>,
    /// The keys of the largest of the last seven generations. One that was smaller than the limits
    /// accept was accepted by a flag: those before it no longer count.
    largest_keys: Option<u64>,
    /// `None` accepts any change.
    max_change: Option<f64>,
    min_keys: Option<u64>,
    max_keys: Option<u64>,
    min_overlap: Option<f64>,
    max_fpr: f64,
    /// `None` for ribbon filters.
    max_fill: Option<f64>,
}

/// A build that exceeds a limit.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error(
        "{keys} keys: expected at least {min_keys} by --max-change {max_change}, as the largest of \
the last seven generations has {largest_keys}; nothing was published; --max-change {needed} accepts \
it"
    )]
    Shrunk {
        keys: u64,
        min_keys: u64,
        largest_keys: u64,
        max_change: f64,
        needed: MaxChange,
    },
    #[error(
        "{keys} keys: expected at most {max_keys}, five times those of live generation \
{generation}; nothing was published; --max-change any accepts it"
    )]
    Grown {
        keys: u64,
        max_keys: u64,
        generation: u64,
    },
    #[error(
        "overlap: expected at least {min:.3} of the devices of live generation {generation} to stay \
members by --max-change {max_change}, found {found:.4}; nothing was published; check whether the \
input is another list; --max-change {needed} accepts it"
    )]
    Overlap {
        found: f64,
        min: f64,
        generation: u64,
        max_change: f64,
        needed: MaxChange,
    },
    #[error(
        "false-positive rate: expected at most {max:e}, twice --fpr, found {found:e}; nothing was \
published; the keys may not be md5s"
    )]
    Fpr { found: f64, max: f64 },
    #[error(
        "fill of the fullest shard: expected at most {max}, found {found:.4}; nothing was \
published; the keys may not be md5s"
    )]
    Fill { found: f64, max: f64 },
    #[error(
        "check of the built filters: {missing} of {checked} members are missing; nothing was \
published; the memory of this machine may be faulty: build again, on another one if it repeats"
    )]
    MissingMembers { missing: u64, checked: u64 },
    #[error(
        "check of the built filters: expected a false-positive rate of {expected:.3e}, found \
{found:.3e} among {probes} random keys; nothing was published; the keys may not be md5s"
    )]
    MeasuredFpr {
        found: f64,
        expected: f64,
        probes: u64,
    },
    #[error(
        "live generation {generation} is unreadable, so the build cannot be compared with it; \
nothing was published; --max-change any skips the comparison"
    )]
    LiveUnreadable {
        generation: u64,
        #[source]
        source: StoreError,
    },
}

impl CommandFailure for GateError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::LiveUnreadable { source, .. } => match source {
                StoreError::Signature { .. } => ExitStatus::VerificationFailed,
                _ => ExitStatus::Store,
            },
            _ => ExitStatus::BadInput,
        }
    }
}

impl Gate {
    /// Reads the live generation. A first publish, or the first after a deletion, is not compared.
    pub async fn open(
        args: &GateArgs,
        filter: &FilterSpec,
        fpr: f64,
        store: &Store,
        base: &Base,
    ) -> Result<Self, GateError> {
        let mut gate = Self::without_live();
        gate.max_fpr = (2.0 * fpr).min(1.0);
        if filter.kind() != FilterKind::Ribbon {
            gate.max_fill = Some(largest_fill(filter));
        }
        if let MaxChange::Share(share) = args.max_change {
            gate.max_change = Some(share);
        }

        let Some(current) = base.with_generation() else {
            return Ok(gate);
        };
        let generation = current.generation;
        let manifest = store.manifest(base.audience(), &current.live_entry()).await;
        match manifest {
            Ok(live) => gate.compare_with(&live, current),
            Err(source) if gate.max_change.is_some() => {
                return Err(GateError::LiveUnreadable { generation, source });
            }
            // Nothing to compare with, which --max-change any accepts.
            Err(_) => gate.is_live_unreadable = true,
        }
        Ok(gate)
    }

    /// A gate that has nothing to compare with and accepts every filter.
    pub const fn without_live() -> Self {
        Self {
            live_generation: None,
            live_keys: None,
            is_live_unreadable: false,
            live_added: 0,
            recent_keys: Vec::new(),
            largest_keys: None,
            max_change: None,
            min_keys: None,
            max_keys: None,
            min_overlap: None,
            max_fpr: 1.0,
            max_fill: None,
        }
    }

    /// Sets the limits that follow from the live generation.
    fn compare_with(&mut self, live: &Manifest, current: &Current) {
        self.live_generation = Some(live.generation());
        self.live_keys = Some(live.keys());
        self.live_added = current.deltas.iter().map(|delta| delta.added).sum();
        self.recent_keys.clone_from(&live.build().recent_keys);
        self.set_limits();
    }

    fn set_limits(&mut self) {
        let (Some(live_keys), Some(max_change)) = (self.live_keys, self.max_change) else {
            return;
        };
        let max_shrink = max_change / 2.0;
        let mut largest_keys = 0;
        let oldest_first = self.recent_keys.iter().rev().chain([&live_keys]);
        for keys in oldest_first {
            let was_accepted = *keys < least_keys(largest_keys, max_shrink);
            if was_accepted {
                largest_keys = *keys;
            }
            largest_keys = largest_keys.max(*keys);
        }

        self.largest_keys = Some(largest_keys);
        self.min_keys = Some(least_keys(largest_keys, max_shrink));
        self.min_overlap = Some(1.0 - max_change);
        let was = live_keys + self.live_added;
        if was > TRIAL_KEYS {
            self.max_keys = Some(was.saturating_mul(MAX_GROWTH));
        }
    }

    /// Numbers of keys that the manifest of this build has for the next one.
    pub fn recent_keys(&self) -> Vec<u64> {
        let mut recent = Vec::new();
        recent.extend(self.live_keys);
        recent.extend(&self.recent_keys);
        recent.truncate(BuildReport::MAX_RECENT);
        recent
    }

    /// Whether a live generation was compared with.
    pub const fn has_live(&self) -> bool {
        self.live_generation.is_some()
    }

    /// Checks the keys, and the overlap unless it is unknown.
    pub fn check_change(&self, keys: u64, overlap: Option<Overlap>) -> Result<(), GateError> {
        let ratio = overlap.map(|overlap| overlap.ratio);
        self.check_least(keys, ratio)?;

        let (Some(generation), Some(max_change)) = (self.live_generation, self.max_change) else {
            return Ok(());
        };
        if let Some(max_keys) = self.max_keys
            && keys > max_keys
        {
            return Err(GateError::Grown {
                keys,
                max_keys,
                generation,
            });
        }
        if let (Some(found), Some(min)) = (ratio, self.min_overlap)
            && found < min
            && !self.follows_trial(keys)
        {
            return Err(GateError::Overlap {
                found,
                min,
                generation,
                max_change,
                needed: MaxChange::accepting(1.0 - found),
            });
        }
        Ok(())
    }

    /// Whether a first export follows a trial, whose devices it need not have.
    fn follows_trial(&self, keys: u64) -> bool {
        let was = self.live_keys.unwrap_or(0) + self.live_added;
        was <= TRIAL_KEYS && keys > was * MAX_GROWTH
    }

    /// Checks that the keys are not too few: they may be an upper bound. The error names a change
    /// that accepts the overlap, too.
    pub fn check_least(&self, keys: u64, overlap: Option<f64>) -> Result<(), GateError> {
        let (Some(min_keys), Some(largest_keys), Some(max_change)) =
            (self.min_keys, self.largest_keys, self.max_change)
        else {
            return Ok(());
        };
        if keys >= min_keys {
            return Ok(());
        }
        Err(GateError::Shrunk {
            keys,
            min_keys,
            largest_keys,
            max_change,
            needed: self.change_needed(keys, overlap),
        })
    }

    /// The least change that accepts too few keys, and the overlap.
    fn change_needed(&self, keys: u64, overlap: Option<f64>) -> MaxChange {
        let mut gate = self.clone();
        let left = overlap.map_or(0.0, |overlap| 1.0 - overlap);
        let mut needed = MaxChange::accepting(left.max(self.max_change.unwrap_or(0.0)));
        while let MaxChange::Share(share) = needed {
            // A larger change may bring back generations that a smaller one left out.
            gate.max_change = Some(share);
            gate.set_limits();
            if gate.min_keys.is_none_or(|min_keys| keys >= min_keys) {
                break;
            }
            let expected = gate.largest_keys.unwrap_or(0) as f64;
            let lost = 1.0 - keys as f64 / expected;
            needed = MaxChange::accepting((2.0 * lost).max(share + 0.001));
        }
        needed
    }

    /// Checks the built filters, and the results of their own check.
    pub fn check_filters(&self, built: &Manifest, check: &FilterCheck) -> Result<(), GateError> {
        let found = built.expected_fpr();
        let max = self.max_fpr;
        if found > max {
            return Err(GateError::Fpr { found, max });
        }
        if let (Some(fill), Some(max)) = (built.fill_ratio(), self.max_fill)
            && fill.max > max
        {
            return Err(GateError::Fill {
                found: fill.max,
                max,
            });
        }

        let FilterCheck {
            members_checked,
            members_missing,
            probes,
            false_positives,
        } = *check;
        if members_missing > 0 {
            return Err(GateError::MissingMembers {
                missing: members_missing,
                checked: members_checked,
            });
        }

        // Each shard with keys has as many probes; the manifest's rate is over all shards.
        let shards = probes as f64 / FilterCheck::PROBES_PER_SHARD as f64;
        let expected = built.expected_fpr() * SHARDS as f64 / shards;
        if false_positives >= MIN_POSITIVES
            && wilson(false_positives, probes).0 > expected * MAX_EXCESS
        {
            let found = false_positives as f64 / probes as f64;
            return Err(GateError::MeasuredFpr {
                found,
                expected,
                probes,
            });
        }
        Ok(())
    }
}

/// The fewest keys after a loss of at most a fraction.
fn least_keys(keys: u64, max_shrink: f64) -> u64 {
    let least = keys as f64 * (1.0 - max_shrink);
    // Rounding of the fraction must not cost a key.
    (least * (1.0 - 1e-12)).ceil() as u64
}

fn parse_change(text: &str) -> Result<MaxChange, &'static str> {
    if text == "any" {
        return Ok(MaxChange::Any);
    }
    let share = parse_ratio(text).map_err(|_| "accepted: a fraction from 0 to 1, or any")?;
    Ok(MaxChange::Share(share))
}

/// The largest accepted fill of a shard. The fill of a filter with n keys and m bits is 1 −
/// exp(−k·n/m). A shard of eight or more blocks is rounded to the nearest block, so at worst the
/// keys of 8.5 blocks share 8.
fn largest_fill(filter: &FilterSpec) -> f64 {
    const CROWDING: f64 = 8.5 / 8.0;
    let bits_per_key = f64::from(filter.millibits_per_key()) / 1000.0;
    let fill = 1.0 - (-f64::from(filter.hashes()) * CROWDING / bits_per_key).exp();
    ((fill + FILL_MARGIN).min(1.0) * 100.0).ceil() / 100.0
}

#[cfg(test)]
mod tests;
