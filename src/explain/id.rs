//! Explains a single id: what it can be read as, and what each audience and each strategy says of a device with it alone.
//!
//! An id as people have it does not say of which kind it is. So it is read as every kind whose shape it has, and the kinds that come to
//! the same key are one reading. Like an explanation of a request this counts and logs nothing.

use serde::Serialize;

use super::trace::Found;
use super::{AudienceExplained, IdExplained, IdInAudience, StrategyExplained};
use super::{explain_audience, explain_strategy, words};
use crate::catalog::Catalog;
use crate::platform::IdReader;
use crate::strategy::Strategy;
use crate::sync::SyncHistory;
use rtad_core::device::{Case, DeviceKey, IdKind, Unusable};

/// What a single id comes to.
#[derive(Debug, Serialize)]
pub struct IdExplanation {
    /// At least one; in the order of the kinds, which begins with md5.
    readings: Vec<Reading>,
}

/// What the id is if it is of these kinds.
#[derive(Debug, Serialize)]
struct Reading {
    kinds: Vec<&'static str>,
    result: Found,
    /// Why it does not decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    /// What is hashed, if that is not the id itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
    /// Four hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
    audiences: Vec<AudienceExplained>,
    strategies: Vec<StrategyExplained>,
}

/// Explains an id of `kind`, or of each kind that it can be of: by all audiences and all strategies. Costs a few look-ups of each audience.
pub fn explain_id(
    catalog: &Catalog,
    ids: &IdReader,
    history: &SyncHistory,
    kind: Option<IdKind>,
    id: &str,
) -> IdExplanation {
    // Raw fields have their kinds' places.
    let look = |kind: IdKind| (kind, ids.look(kind as usize, id.as_bytes()));
    let looked: Vec<_> = kind
        .map_or_else(|| IdKind::ALL.to_vec(), |kind| vec![kind])
        .into_iter()
        .map(look)
        .collect();
    let is_some_kind = looked.iter().any(|(_, key)| *key != Err(Unusable::Malformed));
    let mut groups: Vec<(Result<DeviceKey, Unusable>, Vec<IdKind>)> = Vec::new();
    for (kind, key) in
        looked.into_iter().filter(|(_, key)| !is_some_kind || *key != Err(Unusable::Malformed))
    {
        match groups.iter_mut().find(|(same, _)| *same == key) {
            Some((_, kinds)) => kinds.push(kind),
            None => groups.push((key, vec![kind])),
        }
    }
    let readings = groups.into_iter().map(|(key, kinds)| read(catalog, history, id, key, &kinds));
    IdExplanation { readings: readings.collect() }
}

fn read(
    catalog: &Catalog,
    history: &SyncHistory,
    id: &str,
    key: Result<DeviceKey, Unusable>,
    kinds: &[IdKind],
) -> Reading {
    let first = *kinds.first().expect("a reading is of some kind");
    let result = match key {
        Ok(_) => Found::Usable,
        Err(Unusable::Blank) => Found::Blank,
        Err(Unusable::Malformed) => Found::Malformed,
    };
    let because = match kinds {
        [_, _, ..] if result == Found::Malformed => Some("it has the shape of no kind".to_owned()),
        _ => words::id(result, first),
    };
    let key = key.ok();
    let audiences: Vec<AudienceExplained> = (0..catalog.audiences().len())
        .map(|place| {
            let answer = key.map(|key| catalog.audiences()[place].membership(&[key]));
            explain_audience(catalog, place, answer, history)
        })
        .collect();
    let in_audience = |audience: &AudienceExplained| IdInAudience {
        name: audience.name.clone(),
        answer: audience.answer,
    };
    let found = IdExplained {
        path: "the id".to_owned(),
        kind: first.as_str(),
        value: String::new(),
        result,
        because,
        canonical: key.and_then(|key| canonical(id, first, key)),
        md5: key.map(|key| const_hex::encode(key.as_bytes())),
        shard: key.map(|key| format!("{:04x}", key.shard())),
        audiences: audiences.iter().map(in_audience).collect(),
    };
    let facts =
        words::Facts { ids: std::slice::from_ref(&found), audiences: &audiences, failure: None };
    let decide = |(place, strategy): (usize, &Strategy)| {
        explain_strategy(
            catalog,
            strategy.name.clone(),
            place,
            catalog.decide_uncounted(place, key.as_slice()),
            &facts,
        )
    };
    let strategies: Vec<_> = catalog.strategies().iter().enumerate().map(decide).collect();
    Reading {
        kinds: kinds.iter().map(|kind| kind.as_str()).collect(),
        result,
        because: found.because,
        canonical: found.canonical,
        md5: found.md5,
        shard: found.shard,
        audiences,
        strategies,
    }
}

/// The form that is hashed, if the value is in another. It is made here once more, so it is shown only if it has that very md5.
pub(super) fn canonical(value: &str, kind: IdKind, key: DeviceKey) -> Option<String> {
    let trimmed = value.trim_ascii();
    let canonical = match kind.canonical_case() {
        Case::Lower => trimmed.to_ascii_lowercase(),
        Case::Upper => trimmed.to_ascii_uppercase(),
        Case::AsIs | Case::All => trimmed.to_owned(),
    };
    let is_hashed = kind != IdKind::Md5 && canonical != value;
    (is_hashed && DeviceKey::of_canonical(canonical.as_bytes()) == key).then_some(canonical)
}
