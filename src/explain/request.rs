//! Explanation of a captured request.

use std::collections::BTreeSet;

use super::capture::Captured;
use super::explainer::Explainer;
use super::parts::{canonical, explain_audience};
use super::report::{BodyRead, Explanation, IdExplained, IdInAudience};
use super::trace::TracedId;
use super::{api, platform};
use crate::catalog::{Catalog, IdResult, RequestKeys};
use crate::platform::{API, Keys, Platform};
use crate::strategy::{Facts, Tier, Units};

/// The route that a captured request was sent to.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// That of a platform.
    Platform(&'a Platform),
    /// `/v1/decide`.
    Api,
}

impl<'a> Target<'a> {
    /// The target of a name; `None` if it is not one of [`target_names`].
    pub fn named(catalog: &'a Catalog, name: &str) -> Option<Self> {
        if name == API {
            return Some(Self::Api);
        }
        let served = catalog.platform_named(name)?;
        Some(Self::Platform(&served.platform))
    }

    fn name(self) -> &'a str {
        match self {
            Self::Platform(platform) => &platform.name,
            Self::Api => API,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Platform(platform) => platform.kind(),
            Self::Api => API,
        }
    }

    fn path(self) -> &'a str {
        match self {
            Self::Platform(platform) => &platform.path,
            Self::Api => "/v1/decide",
        }
    }
}

/// The platforms with these names, and `api`, a name that no platform has.
pub fn target_names<'a>(platforms: impl Iterator<Item = &'a str>) -> Vec<String> {
    platforms.chain([API]).map(str::to_owned).collect()
}

/// Explains the answer to a captured request. Costs the answer itself and one lookup per id and
/// audience.
///
/// # Panics
///
/// If the target is a platform that is not one of the catalog's.
pub fn explain(
    explainer: &Explainer<'_>,
    target: Target<'_>,
    captured: &Captured<'_>,
) -> Explanation {
    let catalog = explainer.catalog;
    let outcome = match target {
        Target::Platform(platform) => platform::decide(explainer, platform, captured),
        Target::Api => api::decide(explainer, captured),
    };

    // The ids of several devices have no membership as a whole.
    let no_keys = RequestKeys::of(Keys::new(), Units::default());
    let keys = if outcome.is_batch {
        &no_keys
    } else {
        &outcome.trace.keys
    };
    let facts = facts_of_keys(catalog, keys);
    let mut audiences = Vec::new();
    for index in &outcome.audiences {
        audiences.push(explain_audience(explainer, *index, &facts));
    }
    let mut ids = Vec::new();
    for id in &outcome.trace.ids {
        ids.push(explain_traced(catalog, id, &outcome.audiences));
    }

    Explanation {
        platform: target.name().to_owned(),
        kind: target.kind(),
        path: target.path().to_owned(),
        body: BodyRead {
            read_as: captured.encoding,
            size_bytes: captured.body.len(),
            max_bytes: captured.max_body,
        },
        access: outcome.access,
        log_device: explainer.log_device(keys),
        notes: outcome.trace.notes,
        ids,
        audiences,
        strategies: outcome.strategies,
        failure: outcome.failure,
        answer: outcome.answer,
        unchecked_caps: Vec::new(),
    }
}

/// Names of the audiences that an explanation of the request shows.
pub fn audiences_of(
    explainer: &Explainer<'_>,
    target: Target<'_>,
    captured: &Captured<'_>,
) -> Vec<String> {
    let catalog = explainer.catalog;
    let indexes = match target {
        Target::Platform(platform) => platform::audiences(catalog, platform),
        Target::Api => api::audiences(explainer, captured),
    };

    let mut names = Vec::new();
    for index in indexes {
        names.push(catalog.audiences()[index].name.to_string());
    }
    names
}

/// The answers of all audiences about a device with these keys.
fn facts_of_keys(catalog: &Catalog, keys: &RequestKeys) -> Facts<'static> {
    let mut facts = catalog.no_facts(keys);
    catalog.complete(keys, &mut facts);
    facts
}

fn explain_traced(catalog: &Catalog, id: &TracedId, indexes: &BTreeSet<usize>) -> IdExplained {
    let mut audiences = Vec::new();
    if id.found == IdResult::Usable {
        let keys = RequestKeys::of(Keys::from_iter(id.key), Units::default());
        let facts = facts_of_keys(catalog, &keys);
        for index in indexes {
            let mut value = None;
            if let Some(Tier::Value(tier)) = facts.answer_of(*index).map(|answer| answer.tier) {
                value = Some(tier);
            }
            audiences.push(IdInAudience {
                name: catalog.audiences()[*index].name.to_string(),
                answer: Some(facts.membership(*index)),
                tier: value,
            });
        }
    }

    IdExplained {
        path: id.path.clone(),
        kind: id.field.as_str(),
        value: id.value.clone(),
        result: id.found,
        canonical: id
            .key
            .and_then(|key| canonical(&id.value, id.field.kind(), key)),
        md5: id.key.map(|key| const_hex::encode(key.as_bytes())),
        shard: id.key.map(|key| format!("{:04x}", key.shard())),
        log_device: id.log_device.clone(),
        audiences,
    }
}
