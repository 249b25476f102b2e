//! Decisions about platforms' requests: ids to keys, and a verdict per strategy, both counted.

use std::time::Instant;

use super::served::{Catalog, ServedPlatform};
use crate::platform::{
    Digits, Failure, Id, IdReader, Keys, MAX_READ_IDS, Purpose, Read, Verdict, Verdicts,
};
use crate::strategy::{
    Assignment, Assignments, Attributes, Decision, Experiment, RequestFacts, Units,
};
use rtad_core::device::{DeviceKey, IdField, IdKind, Unusable};

/// Keys of one request, within the limits of ids. Used by serving and by `explain`.
#[derive(Debug, Clone)]
pub struct RequestKeys {
    /// Distinct keys.
    keys: Keys,
    /// The first key of the kind of id by which the platform caches.
    cached: Option<DeviceKey>,
    /// The ids by kind, if experiments need them.
    units: Option<Units>,
    coverage: Coverage,
}

/// A platform's request.
#[derive(Debug, Clone, Copy)]
pub struct PlatformRequest<'r, 'a> {
    /// The platform.
    pub served: &'r ServedPlatform,
    /// Makes keys of ids, and counts them.
    pub reader: &'r IdReader,
    /// The request.
    pub read: &'r Read<'a>,
    /// Its time.
    pub at: Instant,
}

/// The part of a request's ids that the keys stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coverage {
    /// All.
    Complete,
    /// The first ones. An unread id might be a member, so the keys can prove membership only.
    TooMany,
    /// None: the request is unreadable.
    Nothing,
}

/// The result of reading an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub enum IdResult {
    /// Its key is checked.
    Usable,
    /// A placeholder for "no id".
    Blank,
    /// Invalid for its kind.
    Malformed,
    /// Marked as unreliable by the platform.
    Doubtful,
    /// Same key as an earlier id.
    Duplicate,
    /// Beyond a limit of ids.
    NotLookedAt,
}

impl RequestKeys {
    /// Without ids. `has_experiments` keeps the ids by kind as well.
    #[inline]
    pub fn new(has_experiments: bool) -> Self {
        let units = has_experiments.then(Units::default);
        Self {
            keys: Keys::new(),
            cached: None,
            units,
            coverage: Coverage::Complete,
        }
    }

    /// Adds the ids of a request. `key` makes a key of a field and a value, and `each` gets the
    /// result of each id.
    #[inline]
    pub fn add<'r, 'a>(
        &mut self,
        read: &'r Read<'a>,
        mut key: impl FnMut(IdField, &[u8]) -> Result<DeviceKey, Unusable>,
        mut each: impl FnMut(&'r Id<'a>, IdResult, Option<DeviceKey>),
    ) {
        if read.purpose == Purpose::Fallback {
            self.coverage = Coverage::Nothing;
        }
        for (index, id) in read.ids.iter().enumerate() {
            if index >= MAX_READ_IDS {
                self.coverage = Coverage::TooMany;
            }
            let (found, key) = match self.coverage {
                Coverage::Complete if id.is_doubtful => (IdResult::Doubtful, None),
                Coverage::Complete => match key(id.field, id.value.text(&mut Digits::new())) {
                    Ok(key) => {
                        if let Some(units) = &mut self.units {
                            units.add(id.field, key);
                        }
                        if let Some(kind) = read.cached_kind
                            && self.cached.is_none()
                            && id.field.id_kind() == kind
                        {
                            self.cached = Some(key);
                        }
                        (self.keep(key), Some(key))
                    }
                    Err(Unusable::Blank) => (IdResult::Blank, None),
                    Err(Unusable::Malformed) => (IdResult::Malformed, None),
                },
                Coverage::TooMany | Coverage::Nothing => (IdResult::NotLookedAt, None),
            };
            each(id, found, key.filter(|_| found != IdResult::NotLookedAt));
        }
    }

    #[inline]
    fn keep(&mut self, key: DeviceKey) -> IdResult {
        if self.keys.contains(&key) {
            IdResult::Duplicate
        } else if self.keys.try_push(key).is_ok() {
            IdResult::Usable
        } else {
            self.coverage = Coverage::TooMany;
            IdResult::NotLookedAt
        }
    }

    /// Keys of a request whose ids were all read.
    pub const fn of(keys: Keys, units: Units) -> Self {
        Self {
            keys,
            cached: None,
            units: Some(units),
            coverage: Coverage::Complete,
        }
    }

    /// The key that stands for the device: of the kind of id by which the platform caches, or the
    /// first one. `None` without a usable id.
    #[inline]
    pub fn device(&self) -> Option<&DeviceKey> {
        self.cached.as_ref().or(self.keys.first())
    }

    /// Whether the request was unreadable, so that no id of it was read.
    pub fn is_unreadable(&self) -> bool {
        self.coverage == Coverage::Nothing
    }

    /// Whether the keys stand for all ids of the request.
    pub fn are_complete(&self) -> bool {
        self.coverage == Coverage::Complete
    }

    /// Whether the request has more ids than its keys stand for.
    pub fn has_too_many_ids(&self) -> bool {
        self.coverage == Coverage::TooMany
    }

    /// The keys that are looked up.
    pub fn keys(&self) -> &[DeviceKey] {
        &self.keys
    }

    /// The decision of the strategy at `index`, before its cap and not counted.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn decide(&self, catalog: &Catalog, index: usize, attributes: &dyn Attributes) -> Decision {
        match self.coverage {
            Coverage::Complete => catalog.decide_uncounted(index, &self.keys, attributes),
            Coverage::TooMany => catalog.decide_incomplete(index, &self.keys, attributes),
            Coverage::Nothing => catalog.strategy(index).when_unavailable(),
        }
    }

    /// Appends the device's parts in all experiments: unknown if an id that was not read may be the
    /// unit.
    #[inline(never)]
    pub fn assign(&self, catalog: &Catalog, read: &Read<'_>, parts: &mut Assignments) {
        let experiments = catalog.experiments();
        match (self.coverage, &self.units) {
            (Coverage::Complete, Some(units)) => experiments.assign(read.cached_kind, units, parts),
            _ => parts.extend(experiments.list().iter().map(|_| Assignment::Unknown)),
        }
    }

    /// The id that is the unit of an experiment: its kind and its key.
    pub fn unit(
        &self,
        experiment: &Experiment,
        cached_kind: Option<IdKind>,
    ) -> Option<&(IdKind, DeviceKey)> {
        experiment.unit_of(cached_kind, self.units.as_ref()?)
    }
}

impl Catalog {
    /// Appends the verdicts that answer a platform's request. Counts the ids, the decisions, the
    /// device under caps and by strategies with a bid, and too many ids. `decided` gets the keys,
    /// the device's parts in experiments and all verdicts, those in shadow too.
    #[inline]
    pub fn decide_request(
        &self,
        &PlatformRequest {
            served,
            reader,
            read,
            at,
        }: &PlatformRequest<'_, '_>,
        verdicts: &mut Verdicts,
        decided: impl FnOnce(&RequestKeys, &Assignments, &Verdicts),
    ) {
        let experiments = self.experiments();
        let mut keys = RequestKeys::new(!experiments.is_empty());
        let doubtful = |id: &Id<'_>, found, _| {
            if found == IdResult::Doubtful {
                served.ids.count_doubtful(id.field);
            }
        };
        keys.add(
            read,
            |field, id| served.ids.counted(reader, field, id),
            doubtful,
        );
        let too_many = keys.has_too_many_ids().then_some(Failure::TooManyIds);
        for failure in read.observed.into_iter().chain(too_many) {
            served.count_failure(failure);
        }
        if read.has_unknown_os {
            served.ids.count_unknown_os();
        }
        let mut assignments = Assignments::new();
        if !experiments.is_empty() {
            keys.assign(self, read, &mut assignments);
        }
        let facts = RequestFacts {
            attributes: read,
            assignments: &assignments,
        };
        read.decide(verdicts, |strategy| {
            let decide = || keys.decide(self, strategy, &facts);
            let decision = self.caps().admit(strategy, keys.keys(), at, decide);
            served.count(strategy, decision);
            experiments.count(strategy, decision, &assignments);
            let tag = experiments.tag(strategy, &assignments);
            let changes_in = self.changes_in(strategy, decision, at);
            Verdict {
                strategy,
                decision,
                changes_in,
                tag,
            }
        });
        if self.has_values {
            for verdict in &*verdicts {
                self.served(verdict.strategy).count_value(verdict.decision);
            }
        }
        decided(&keys, &assignments, verdicts);
        self.remove_shadow(verdicts);
    }

    /// The verdicts about a request with these keys, those in shadow too. Nothing is counted.
    pub fn decide_request_uncounted(
        &self,
        keys: &RequestKeys,
        read: &Read<'_>,
        at: Instant,
    ) -> Verdicts {
        let mut verdicts = Verdicts::new();
        let mut assignments = Assignments::new();
        keys.assign(self, read, &mut assignments);
        let facts = RequestFacts {
            attributes: read,
            assignments: &assignments,
        };
        read.decide(&mut verdicts, |strategy| {
            let decision = keys.decide(self, strategy, &facts);
            let decision = self
                .caps()
                .admit_uncounted(strategy, decision, keys.keys(), at);
            let tag = self.experiments().tag(strategy, &assignments);
            let changes_in = self.changes_in(strategy, decision, at);
            Verdict {
                strategy,
                decision,
                changes_in,
                tag,
            }
        });
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Value;

    #[test]
    fn device_is_the_cached_kind_or_the_first_usable_id() {
        let device = |ids: &[(&'static str, &'static str)], cached_kind| {
            let id = |(field, value): &(&'static str, &'static str)| Id {
                path: field,
                field: IdField::named(field).unwrap(),
                value: Value::Bytes(value.as_bytes()),
                is_doubtful: *value == "doubtful",
                is_accepted: false,
            };
            let mut read = Read::default();
            (read.ids, read.cached_kind) = (ids.iter().map(id).collect(), cached_kind);
            let mut keys = RequestKeys::new(false);
            let key = |_, id: &[u8]| match id {
                b"" => Err(Unusable::Blank),
                id => Ok(DeviceKey::of_canonical(id)),
            };
            keys.add(&read, key, |_, _, _| ());
            keys.device().copied()
        };
        let key = |id: &str| Some(DeviceKey::of_canonical(id.as_bytes()));
        let ids = [
            ("imei", ""),
            ("idfa", "doubtful"),
            ("mac", "a"),
            ("oaid_md5", "b"),
            ("oaid", "c"),
        ];
        assert_eq!(device(&ids, None), key("a"));
        assert_eq!(device(&ids, Some(IdKind::Oaid)), key("b"));
        assert_eq!(device(&ids, Some(IdKind::Idfa)), key("a"));
        assert_eq!(device(&ids[..2], None), None);
    }
}
