//! Publish gate: limits that stop an empty, truncated or wrong export from going live.
//!
//! Shrinkage, growth and overlap compare with the live generation, and are checked before chunks
//! are built if the keys are in memory. The expected false-positive rate and the fill of the
//! fullest shard are checked after. A rejected build makes nothing live. Each comparison has a flag
//! that overrides it for one run.
//!
//! A ribbon filter has no fill. Instead its builder looked members and random keys up in it, and
//! the gate rejects a missing member or too many false positives.

use clap::Args;
use indicatif::HumanCount;
use serde::Serialize;

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::device::SHARDS;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{AudienceName, FilterCheck, Manifest};
use rtad_store::write::{Base, StoreWriter};
use rtad_store::{Store, StoreError};

use super::overlap::Overlap;
use super::value_parsers::parse_ratio;
use super::verify::{MAX_EXCESS, MIN_POSITIVES, wilson};

/// Margin over the fill of a correctly sized filter: small shards vary by this much.
const FILL_MARGIN: f64 = 0.1;

/// Default of `--max-growth`.
const DEFAULT_GROWTH: f64 = 4.0;
/// Keys up to which an audience may grow without a limit: a trial precedes the first export.
const TRIAL_KEYS: u64 = 1000;

/// The limits, as given on the command line.
#[derive(Debug, Args)]
pub struct GateArgs {
    /// Publish nothing if the audience loses more than this fraction of the live generation's keys;
    /// 1 disables the comparison, and gives up the appends, removals and erasures of a lost CURRENT
    #[arg(long, value_name = "RATIO", default_value_t = 0.5, value_parser = parse_ratio)]
    max_shrink: f64,
    /// Publish nothing if the audience gains more than this multiple of the live generation's keys,
    /// appended ones included: 4 is five times as many. Up to 1,000 keys grow without a limit; inf
    /// disables it
    #[arg(long, value_name = "RATIO", default_value_t = DEFAULT_GROWTH,
        value_parser = parse_growth)]
    max_growth: f64,
    /// Publish nothing if fewer than this fraction of the live generation's keys stay members. The
    /// report has the overlap in any case
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, value_parser = parse_ratio)]
    min_overlap: f64,
}

impl GateArgs {
    /// The base of a build. `--max-shrink 1` gives up the changes of a lost `CURRENT`.
    pub async fn base(
        &self,
        writer: &StoreWriter,
        audience: &AudienceName,
    ) -> Result<Base, StoreError> {
        match writer.base(audience).await {
            Err(StoreError::LostCurrent { .. }) if self.max_shrink >= 1.0 => {
                Ok(Base::new(audience.clone(), None))
            }
            base => base,
        }
    }
}

/// The limits in effect, and the size of the live generation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Gate {
    live_generation: Option<u64>,
    live_keys: Option<u64>,
    is_live_unreadable: bool,
    /// Keys that deltas added to the live generation.
    live_added: u64,
    max_shrink: f64,
    /// `None` if infinite.
    max_growth: Option<f64>,
    min_overlap: f64,
    max_fpr: f64,
    /// `None` for ribbon filters.
    max_fill: Option<f64>,
}

/// A build that exceeds a limit.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error(
        "{keys} keys: expected at least {least} by --max-shrink {max_shrink}, as live generation \
{generation} has {live_keys}; nothing was published; --max-shrink {needed} allows it"
    )]
    Shrunk {
        keys: u64,
        live_keys: u64,
        generation: u64,
        max_shrink: f64,
        least: u64,
        needed: f64,
    },
    #[error(
        "{keys} keys, was {was}: expected at most {most} by --max-growth {max_growth} over live \
generation {generation}; nothing was published; --max-growth {needed} allows it"
    )]
    Grown {
        keys: u64,
        was: HumanCount,
        generation: u64,
        max_growth: f64,
        most: u64,
        needed: f64,
    },
    #[error(
        "overlap: expected at least --min-overlap {min} of the live generation's keys to stay \
members, found {found:.4}; nothing was published; a lower --min-overlap allows it"
    )]
    Overlap { found: f64, min: f64 },
    #[error(
        "the live filters are unreadable, so --min-overlap cannot be \
checked; nothing was published; --min-overlap 0 skips the check"
    )]
    OverlapUnknown(#[source] StoreError),
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
        "live generation {generation} is unreadable, so the sizes cannot be compared; \
nothing was published; --max-shrink 1 skips the comparison"
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
            Self::LiveUnreadable { source, .. } | Self::OverlapUnknown(source) => match source {
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
        let has_fill = filter.kind() != FilterKind::Ribbon;
        let mut gate = Self {
            live_generation: None,
            live_keys: None,
            is_live_unreadable: false,
            live_added: 0,
            max_shrink: args.max_shrink,
            max_growth: Some(args.max_growth).filter(|ratio| ratio.is_finite()),
            min_overlap: args.min_overlap,
            max_fpr: (2.0 * fpr).min(1.0),
            max_fill: has_fill.then(|| largest_fill(filter)),
        };
        let Some(current) = base.with_generation() else {
            return Ok(gate);
        };
        let generation = current.generation;
        match store.manifest(base.audience(), current).await {
            Ok(live) => {
                gate.live_generation = Some(generation);
                gate.live_keys = Some(live.keys());
                gate.live_added = current.deltas.iter().map(|delta| delta.added).sum();
            }
            Err(source) if args.max_shrink < 1.0 => {
                return Err(GateError::LiveUnreadable { generation, source });
            }
            // Nothing to compare with, which --max-shrink 1 accepts.
            Err(_) => gate.is_live_unreadable = true,
        }
        Ok(gate)
    }

    /// No limits, for other tests.
    #[cfg(test)]
    pub const fn without_limits() -> Self {
        Self {
            live_generation: None,
            live_keys: None,
            is_live_unreadable: false,
            live_added: 0,
            max_shrink: 1.0,
            max_growth: None,
            min_overlap: 0.0,
            max_fpr: 1.0,
            max_fill: None,
        }
    }

    fn least_keys(&self, live_keys: u64) -> u64 {
        let least = live_keys as f64 * (1.0 - self.max_shrink);
        // Rounding of the fraction must not cost a key.
        (least * (1.0 - 1e-12)).ceil() as u64
    }

    /// The most keys by `--max-growth`.
    fn most_keys(&self, live_keys: u64) -> Option<u64> {
        let was = live_keys + self.live_added;
        let most = was as f64 * (1.0 + self.max_growth.filter(|_| was > TRIAL_KEYS)?);
        Some((most * (1.0 + 1e-12)).floor() as u64)
    }

    /// Checks shrinkage and growth.
    pub fn check_keys(&self, keys: u64) -> Result<(), GateError> {
        self.check_least(keys)?;
        let (Some(generation), Some(live_keys)) = (self.live_generation, self.live_keys) else {
            return Ok(());
        };
        let (Some(most), Some(max_growth)) = (self.most_keys(live_keys), self.max_growth) else {
            return Ok(());
        };
        if keys <= most {
            return Ok(());
        }
        let was = live_keys + self.live_added;
        // Rounded up, so that the suggested limit passes.
        let gained = u128::from(keys - was) * 100;
        let needed = gained.div_ceil(u128::from(was)) as f64 / 100.0;
        let was = HumanCount(was);
        Err(GateError::Grown {
            keys,
            was,
            generation,
            max_growth,
            most,
            needed,
        })
    }

    /// Checks `--min-overlap`.
    pub fn check_overlap(&self, overlap: Option<Overlap>) -> Result<(), GateError> {
        match overlap.filter(|overlap| overlap.ratio < self.min_overlap) {
            Some(Overlap { ratio: found, .. }) => Err(GateError::Overlap {
                found,
                min: self.min_overlap,
            }),
            None => Ok(()),
        }
    }

    /// Whether a live generation was compared with.
    pub const fn has_live(&self) -> bool {
        self.live_generation.is_some()
    }

    /// Whether a build without a known overlap is refused.
    pub fn needs_overlap(&self) -> bool {
        let may_have_keys = self.is_live_unreadable || self.live_keys.is_some_and(|keys| keys > 0);
        self.min_overlap > 0.0 && may_have_keys
    }

    /// Checks shrinkage, also of an upper bound of the keys.
    pub fn check_least(&self, keys: u64) -> Result<(), GateError> {
        let (Some(generation), Some(live_keys)) = (self.live_generation, self.live_keys) else {
            return Ok(());
        };
        let least = self.least_keys(live_keys);
        if keys >= least || self.max_shrink >= 1.0 {
            return Ok(());
        }
        // Rounded up, so that the suggested limit passes.
        let lost = u128::from(live_keys - keys) * 1000;
        let needed = lost.div_ceil(u128::from(live_keys)) as f64 / 1000.0;
        Err(GateError::Shrunk {
            keys,
            live_keys,
            generation,
            max_shrink: self.max_shrink,
            least,
            needed,
        })
    }

    /// Checks all limits on the built chunks, and the results of their own check.
    pub fn check(&self, built: &Manifest, check: &FilterCheck) -> Result<(), GateError> {
        let (found, max) = (built.expected_fpr(), self.max_fpr);
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
            let (missing, checked) = (members_missing, members_checked);
            return Err(GateError::MissingMembers { missing, checked });
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
        self.check_keys(built.keys())
    }
}

fn parse_growth(text: &str) -> Result<f64, &'static str> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| *ratio >= 0.0);
    ratio.ok_or("accepted: a number of 0 or more, or inf")
}

/// The largest accepted fill of a shard. The fill of a filter with n keys and m bits is 1 − exp(−k·n/m). A shard of eight or more blocks
/// is rounded to the nearest block, so at worst the keys of 8.5 blocks share 8.
fn largest_fill(filter: &FilterSpec) -> f64 {
    const CROWDING: f64 = 8.5 / 8.0;
    let bits_per_key = f64::from(filter.millibits_per_key()) / 1000.0;
    let fill = 1.0 - (-f64::from(filter.hashes()) * CROWDING / bits_per_key).exp();
    ((fill + FILL_MARGIN).min(1.0) * 100.0).ceil() / 100.0
}

#[cfg(test)]
mod tests;
