//! Statistics of filters: fill, expected rate, and the check of static filters after their build.

use serde::{Deserialize, Serialize};

use crate::device::DeviceKey;
use crate::filter::{FilterSpec, ShardCounts, ShardFilter, fill_ratio};
use crate::synth::random_key;

/// Statistics of a chunk's filters, as sums that a manifest builder merges. Serializable, so that
/// chunks and manifest can be built on different machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterStats {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) sum: f64,
    pub(super) shards: u32,
    pub(super) fpr_sum: f64,
    /// Diverted keys of ribbon filters, which have no fill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ribbon: Option<RibbonStats>,
}

/// Figures of ribbon filters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RibbonStats {
    /// Keys of second tiers.
    pub(super) diverted_keys: u64,
    /// Entries of lists.
    pub(super) listed_keys: u64,
    pub(super) check: FilterCheck,
}

/// Results of lookups in static filters after they were built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterCheck {
    /// Members looked up.
    pub members_checked: u64,
    /// Those of them that are missing or have another value: 0, unless the builder or the machine
    /// is at fault.
    pub members_missing: u64,
    /// Random keys looked up.
    pub probes: u64,
    /// Those of them that are in the filter.
    pub false_positives: u64,
}

impl FilterCheck {
    /// Random keys looked up in each shard: with 65,536 shards, a rate of 1e-4 is known to 10 %.
    pub const PROBES_PER_SHARD: u64 = 64;
}

impl RibbonStats {
    pub(super) fn merge(&mut self, other: &Self) {
        // Journals and reports of other machines may hold any numbers.
        for (sum, number) in [
            (&mut self.diverted_keys, other.diverted_keys),
            (&mut self.listed_keys, other.listed_keys),
            (&mut self.check.members_checked, other.check.members_checked),
            (&mut self.check.members_missing, other.check.members_missing),
            (&mut self.check.probes, other.check.probes),
            (&mut self.check.false_positives, other.check.false_positives),
        ] {
            *sum = sum.saturating_add(number);
        }
    }
}

/// One member of so many is looked up after a ribbon filter is built. A lookup costs a third of the
/// construction.
const CHECK_EVERY: usize = 8;

impl FilterStats {
    pub(super) const NONE: Self = Self {
        min: f64::INFINITY,
        max: 0.0,
        sum: 0.0,
        shards: 0,
        fpr_sum: 0.0,
        ribbon: None,
    };

    pub(super) fn of_bloom(spec: &FilterSpec, shard: u16, filter: &[u8]) -> Self {
        let fill = fill_ratio(filter);
        let fpr_sum = spec.expected_fpr(shard, filter);
        Self {
            min: fill,
            max: fill,
            sum: fill,
            shards: 1,
            fpr_sum,
            ribbon: None,
        }
    }

    pub(super) fn of_ribbon(
        spec: &FilterSpec,
        shard: u16,
        counts: ShardCounts,
        filter: ShardFilter<'_>,
        members: impl Iterator<Item = (DeviceKey, u8)>,
    ) -> Self {
        let has_values = spec.value_bits() > 0;
        let probes = FilterCheck::PROBES_PER_SHARD;
        let mut check = FilterCheck {
            probes,
            ..FilterCheck::default()
        };

        for (key, value) in members.step_by(CHECK_EVERY) {
            let is_found = if has_values {
                spec.value(filter, &key) == Some(value)
            } else {
                spec.contains(filter, &key)
            };
            check.members_checked += 1;
            check.members_missing += u64::from(!is_found);
        }

        for index in 0..probes {
            let mut bytes = *random_key(u64::from(shard) * probes + index).as_bytes();
            bytes[..2].copy_from_slice(&shard.to_be_bytes());
            let is_positive = spec.contains(filter, &DeviceKey::from_bytes(bytes));
            check.false_positives += u64::from(is_positive);
        }

        let diverted_keys = counts.diverted.into();
        let listed_keys = counts.listed.into();
        let ribbon = RibbonStats {
            diverted_keys,
            listed_keys,
            check,
        };

        let fpr_sum = spec.expected_fpr(shard, filter);
        Self {
            min: 0.0,
            max: 0.0,
            sum: 0.0,
            shards: 1,
            fpr_sum,
            ribbon: Some(ribbon),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.shards = self.shards.saturating_add(other.shards);
        self.fpr_sum += other.fpr_sum;
        if let Some(ribbon) = &other.ribbon {
            self.ribbon.get_or_insert_default().merge(ribbon);
        }
    }
}
