//! Explanation of a single id: its possible kinds, and the answers for a device with this id alone.
//!
//! The kind of an id is often unknown. The id is read as every kind that accepts it; kinds that
//! yield the same key are one reading. Nothing is counted or logged.

use std::time::SystemTime;

use serde::Serialize;
use tokio::time::Instant;

use super::explainer::Explainer;
use super::parts::{ExplainedDevice, canonical, explain_audience, explain_strategies};
use super::report::{AudienceExplained, StrategyExplained};
use crate::catalog::{IdResult, RequestKeys};
use crate::platform::{Keys, Verdicts};
use crate::strategy::{AttributeValues, Units};
use rtad_core::device::{DeviceKey, IdKind, Unusable};

/// An id to explain.
#[derive(Clone, Copy)]
pub struct AskedId<'a> {
    /// The id.
    pub id: &'a str,
    /// Its kind, if known.
    pub kind: Option<IdKind>,
    /// The time of the schedules; now without one.
    pub at: Option<SystemTime>,
}

/// The explanation of a single id.
#[derive(Debug, Serialize)]
pub struct IdExplanation {
    /// At least one; in the order of the kinds, which begins with md5.
    readings: Vec<IdReading>,
}

/// The id, read as these kinds.
#[derive(Debug, Serialize)]
struct IdReading {
    kinds: Vec<&'static str>,
    result: IdResult,
    /// The hashed form, if the id differs from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
    /// Four hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
    /// The device in the decision log, if its request has no other id; 32 hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_device: Option<String>,
    audiences: Vec<AudienceExplained>,
    strategies: Vec<StrategyExplained>,
}

/// Explains an id of a kind, or of each kind that accepts it, for all audiences and strategies.
/// Costs a few lookups per audience.
pub fn explain_id(explainer: &Explainer<'_>, asked: &AskedId<'_>) -> IdExplanation {
    let AskedId { id, kind, .. } = *asked;
    let kinds = kind.map_or_else(|| IdKind::ALL.to_vec(), |kind| vec![kind]);
    let mut keys = Vec::with_capacity(kinds.len());
    for kind in kinds {
        // The index of a raw field is that of its kind.
        let key = explainer.ids.key_uncounted(kind.into(), id.as_bytes());
        keys.push((kind, key));
    }
    let is_some_kind = keys.iter().any(|(_, key)| *key != Err(Unusable::Malformed));

    let mut groups: Vec<(Result<DeviceKey, Unusable>, Vec<IdKind>)> = Vec::new();
    for (kind, key) in keys {
        if is_some_kind && key == Err(Unusable::Malformed) {
            continue;
        }
        match groups.iter_mut().find(|(same, _)| *same == key) {
            Some((_, kinds)) => kinds.push(kind),
            None => groups.push((key, vec![kind])),
        }
    }

    let mut readings = Vec::with_capacity(groups.len());
    for (key, kinds) in groups {
        readings.push(read(explainer, asked, key, &kinds));
    }
    IdExplanation { readings }
}

fn read(
    explainer: &Explainer<'_>,
    asked: &AskedId<'_>,
    key: Result<DeviceKey, Unusable>,
    kinds: &[IdKind],
) -> IdReading {
    let catalog = explainer.catalog;
    let first = *kinds.first().expect("a reading has a kind");
    let result = match key {
        Ok(_) => IdResult::Usable,
        Err(Unusable::Blank) => IdResult::Blank,
        Err(Unusable::Malformed) => IdResult::Malformed,
    };
    let key = key.ok();
    let mut units = Units::default();
    for (kind, key) in kinds.iter().zip(key.iter().cycle()) {
        units.add((*kind).into(), *key);
    }
    let keys = RequestKeys::of(Keys::from_iter(key), units);
    let device = ExplainedDevice::new(catalog, &keys, AttributeValues::default(), asked.at);

    let mut audiences = Vec::new();
    for index in 0..catalog.audiences().len() {
        audiences.push(explain_audience(explainer, index, &device.facts));
    }

    let all = 0..catalog.strategies().len();
    let mut verdicts = Verdicts::new();
    catalog.decide(all, &device.facts, &mut verdicts);
    catalog.would_admit(&keys, Instant::now(), asked.at, &mut verdicts);
    let mut named = Vec::new();
    for (index, strategy) in catalog.strategies().enumerate() {
        named.push((strategy.name.clone(), Some(index)));
    }
    let strategies = explain_strategies(catalog, named, &device, &verdicts);
    IdReading {
        kinds: kinds.iter().map(|kind| kind.as_str()).collect(),
        result,
        canonical: key.and_then(|key| canonical(asked.id, first, key)),
        md5: key.map(|key| const_hex::encode(key.as_bytes())),
        shard: key.map(|key| format!("{:04x}", key.shard())),
        log_device: explainer.log_device(&keys),
        audiences,
        strategies,
    }
}
