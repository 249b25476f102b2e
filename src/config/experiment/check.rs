//! Mistakes in experiments: names, layers and slots.

use std::ops::Range;

use rtad_config::Document;
use rtad_core::experiment::SLOTS;

use super::ExperimentConfig;
use crate::strategy::{MAX_BUCKETS, MAX_EXPERIMENTS, NO_BUCKET};

/// Notes the mistakes in experiments.
pub fn check(d: &mut Document<'_>, configs: &[ExperimentConfig]) {
    d.refuse_duplicates("experiment", "name");
    if configs.len() > MAX_EXPERIMENTS {
        let found = format!("has {} entries", configs.len());
        d.mistake("experiment", &found, &format!("at most {MAX_EXPERIMENTS}"));
    }

    for (index, config) in configs.iter().enumerate() {
        let table = format!("experiment[{index}]");
        check_buckets(d, &table, config);

        check_end(d, &format!("{table}.traffic"), &config.traffic());

        let mut layers = configs.iter();
        if let Some(other) = layers.find(|other| config.name == other.layer()) {
            let found = format!(
                "is that of the layer of {}: buckets would get uneven shares",
                other.name
            );
            d.mistake(&format!("{table}.name"), &found, "another name");
        }

        for earlier in &configs[..index] {
            let name = &earlier.name;
            if name == &config.name {
                // A mistake already.
                continue;
            }
            if earlier.layer() != config.layer() {
                continue;
            }

            if earlier.unit != config.unit {
                let found = format!("differs from that of {name}, in the same layer");
                d.mistake(
                    &format!("{table}.unit"),
                    &found,
                    "the same in the whole layer",
                );
            }
            if let Some(slot) = common_slot(&earlier.traffic(), &config.traffic()) {
                let found = match (&config.traffic, &earlier.traffic) {
                    (None, _) => format!(
                        "is missing, which stands for all slots: slot {slot} is one of {name}, in \
                         the same layer"
                    ),
                    (_, None) => format!(
                        "has slot {slot}: {name}, in the same layer, has all slots, as its traffic \
                         is missing"
                    ),
                    _ => format!("has slot {slot}, which {name} has in the same layer"),
                };
                d.mistake(
                    &format!("{table}.traffic"),
                    &found,
                    "slots that no other one has",
                );
            }
        }
    }
}

fn check_buckets(d: &mut Document<'_>, table: &str, config: &ExperimentConfig) {
    let key = format!("{table}.buckets");
    if !(1..=MAX_BUCKETS).contains(&config.buckets.len()) {
        let found = format!("has {} entries", config.buckets.len());
        d.mistake(&key, &found, &format!("1 to {MAX_BUCKETS} buckets"));
    }

    for (index, bucket) in config.buckets.iter().enumerate() {
        let bucket_table = format!("{key}[{index}]");
        let name = format!("{bucket_table}.name");
        let before = &config.buckets[..index];
        if bucket.name == NO_BUCKET {
            d.reject(
                &name,
                "another name: this one stands for devices without a bucket",
            );
        } else if before.iter().any(|it| it.name == bucket.name) {
            d.reject(&name, "a name that no other bucket of the experiment has");
        }
        let slots = format!("{bucket_table}.slots");
        check_end(d, &slots, &bucket.slots.0);
        for earlier in before {
            if let Some(slot) = common_slot(&earlier.slots.0, &bucket.slots.0) {
                let found = format!("has slot {slot}, which {} has", earlier.name);
                d.mistake(&slots, &found, "slots that no other bucket has");
            }
        }
    }
}

fn check_end(d: &mut Document<'_>, key: &str, ranges: &[Range<u32>]) {
    if let Some(range) = ranges.iter().find(|range| range.end > SLOTS) {
        let found = format!("ends at {}", range.end);
        d.mistake(key, &found, &format!("at most {SLOTS}"));
    }
}

/// The least slot of both.
pub fn common_slot(one: &[Range<u32>], other: &[Range<u32>]) -> Option<u32> {
    let mut least = None;
    for a in one {
        for b in other {
            let start = a.start.max(b.start);
            let end = a.end.min(b.end);
            if start < end && least.is_none_or(|least| start < least) {
                least = Some(start);
            }
        }
    }
    least
}
