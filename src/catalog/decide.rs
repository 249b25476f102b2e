//! Decisions about a device in steps: ids to keys, keys to facts, facts to verdicts, and what the
//! verdicts count.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use super::{Catalog, ServedPlatform};
use crate::platform::api::NamedDecision;
use crate::platform::{
    Digits, Failure, Id, IdReader, Keys, MAX_READ_IDS, Purpose, Read, Verdict, Verdicts,
};
use crate::strategy::{
    Assignment, Assignments, AudienceAnswer, Experiment, Facts, LookedUp, Membership, Reason, Tier,
    Units,
};
use rtad_core::device::{DeviceKey, IdField, IdKind, Unusable};
use tokio::time::Instant;

/// Keys of one request, within the limits of ids. Used by serving and by `explain`.
#[derive(Debug, Clone)]
pub struct RequestKeys {
    /// Distinct keys.
    keys: Keys,
    /// The kind of id by which the platform caches the answer.
    cached_kind: Option<IdKind>,
    /// The first key of that kind.
    cached: Option<DeviceKey>,
    /// The ids by kind, if experiments need them.
    units: Option<Units>,
    coverage: Coverage,
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
            cached_kind: None,
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
        self.cached_kind = read.cached_kind;
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
                        if let Some(kind) = self.cached_kind
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
            let kept = if found == IdResult::NotLookedAt {
                None
            } else {
                key
            };
            each(id, found, kept);
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
            cached_kind: None,
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

    /// The ids that the keys stand for.
    #[inline]
    pub fn looked_up(&self) -> LookedUp {
        match self.coverage {
            Coverage::Complete if self.keys.is_empty() => LookedUp::None,
            Coverage::Complete => LookedUp::All,
            Coverage::TooMany => LookedUp::TooMany,
            Coverage::Nothing => LookedUp::Unread,
        }
    }

    /// Whether the request has more ids than its keys stand for.
    pub fn has_too_many_ids(&self) -> bool {
        self.coverage == Coverage::TooMany
    }

    /// The keys that are looked up.
    pub fn keys(&self) -> &[DeviceKey] {
        &self.keys
    }

    /// Appends the device's parts in all experiments: unknown if an id that was not read may be the
    /// unit.
    #[inline(never)]
    fn assign(&self, catalog: &Catalog, parts: &mut Assignments) {
        let experiments = catalog.experiments();
        match (self.coverage, &self.units) {
            (Coverage::Complete, Some(units)) => experiments.assign(self.cached_kind, units, parts),
            _ => parts.extend(experiments.list().iter().map(|_| Assignment::Unknown)),
        }
    }

    /// The id that is the unit of an experiment: its kind and its key.
    pub fn unit(&self, experiment: &Experiment) -> Option<&(IdKind, DeviceKey)> {
        experiment.unit_of(self.cached_kind, self.units.as_ref()?)
    }
}

impl Catalog {
    /// Keys of a request before its ids are read.
    #[inline]
    pub fn no_keys(&self) -> RequestKeys {
        RequestKeys::new(!self.experiments().is_empty())
    }

    /// Adds the keys of a platform's request to none. Counts its ids, and what is wrong with them.
    ///
    /// Neither keys nor facts are results: a move of them would cost as much as a lookup.
    #[inline]
    pub fn add_keys(
        &self,
        served: &ServedPlatform,
        reader: &IdReader,
        read: &Read<'_>,
        keys: &mut RequestKeys,
    ) {
        keys.add(
            read,
            |field, id| served.ids.counted(reader, field, id),
            |id, found, _| {
                if found == IdResult::Doubtful {
                    served.ids.count_doubtful(id.field);
                }
            },
        );

        if let Some(failure) = read.observed {
            served.count_failure(failure);
        }
        if keys.has_too_many_ids() {
            served.count_failure(Failure::TooManyIds);
        }
        if read.has_unknown_os {
            served.ids.count_unknown_os();
        }
    }

    /// Begins to read the memory of the strategies' caps, beside the lookups that follow.
    #[inline]
    pub fn prefetch_caps(
        &self,
        keys: &RequestKeys,
        at: Instant,
        strategies: impl Iterator<Item = usize>,
    ) {
        if !self.has_caps {
            return;
        }
        for strategy in strategies {
            self.caps().prefetch(strategy, &keys.keys, at);
        }
    }

    /// Facts about a device before anything is looked up.
    #[inline]
    pub fn no_facts<'a>(&self, keys: &RequestKeys) -> Facts<'a> {
        Facts::new(keys.looked_up(), self.audiences().len())
    }

    /// Adds the facts about the device of a platform's request to none.
    #[inline]
    pub fn add_facts<'a>(&self, keys: &RequestKeys, read: &'a Read<'_>, facts: &mut Facts<'a>) {
        if self.reads_attributes {
            facts.attributes = read.attributes();
        }
        self.look_up(keys, read.strategies(), facts);
    }

    /// Adds the facts about a device that decisions of these strategies depend on, but for its
    /// attributes. Asks each of their audiences once, at the cost of a lookup per key. Allocates
    /// only with more than 32 audiences.
    ///
    /// # Panics
    ///
    /// If there is no strategy at one of the indexes.
    #[inline]
    pub fn look_up(
        &self,
        keys: &RequestKeys,
        strategies: impl Iterator<Item = usize>,
        facts: &mut Facts<'_>,
    ) {
        if !self.experiments().is_empty() {
            keys.assign(self, &mut facts.parts);
        }

        for index in strategies {
            let served = self.served(index);
            if !self.strategy(index).is_scheduled() {
                facts.paused.push(index);
                continue;
            }
            // Nothing is looked up without a usable id.
            if keys.keys.is_empty() {
                continue;
            }
            for audience in &served.audiences {
                if facts.answer_of(*audience).is_none() {
                    let has_tiers = self.has_tiers(*audience);
                    facts.set_answer(*audience, self.ask(*audience, keys, has_tiers));
                }
            }
        }
    }

    /// Puts the schedules of a time in the place of today's. Costs up to a millisecond per
    /// strategy.
    pub fn pause_at(&self, at: SystemTime, facts: &mut Facts<'_>) {
        facts.paused.clear();
        for (index, strategy) in self.strategies().enumerate() {
            let schedule = strategy.schedule.as_ref();
            if schedule.is_some_and(|schedule| !schedule.holds_at(at)) {
                facts.paused.push(index);
            }
        }
    }

    /// Asks all audiences, and for the values of all members: rules of another time may read any.
    pub fn complete(&self, keys: &RequestKeys, facts: &mut Facts<'_>) {
        if keys.keys.is_empty() {
            return;
        }
        for (index, audience) in self.audiences().iter().enumerate() {
            facts.set_answer(index, self.ask(index, keys, !audience.has_no_values()));
        }
    }

    #[inline]
    fn ask(&self, index: usize, keys: &RequestKeys, has_tiers: bool) -> AudienceAnswer {
        let audience = &self.audiences()[index];
        let membership = audience.membership(&keys.keys);
        let mut tier = Tier::None;
        if has_tiers && membership == Membership::Member {
            tier = audience.tier(&keys.keys);
        }
        AudienceAnswer { membership, tier }
    }

    /// Appends the verdicts of these strategies, each once. Pure: nothing is looked up or counted.
    ///
    /// # Panics
    ///
    /// If there is no strategy at one of the indexes.
    #[inline]
    pub fn decide(
        &self,
        strategies: impl Iterator<Item = usize>,
        facts: &Facts<'_>,
        verdicts: &mut Verdicts,
    ) {
        for strategy in strategies {
            if verdicts.iter().any(|verdict| verdict.strategy == strategy) {
                continue;
            }
            verdicts.push(Verdict {
                strategy,
                decision: self.rules.decide(strategy, facts),
                changes_in: None,
                tag: self.experiments().tag(strategy, &facts.parts),
            });
        }
    }

    /// Asks the caps of the strategies that bid, and counts the device in them: it gets no bid of a
    /// cap that is full. Says until when each verdict holds.
    #[inline]
    pub fn admit(&self, keys: &RequestKeys, at: Instant, verdicts: &mut Verdicts) {
        if !self.has_caps_or_times {
            return;
        }
        for verdict in verdicts {
            if verdict.bids() {
                let refusal = self.caps().admit(verdict.strategy, &keys.keys, at);
                verdict.decision = refusal.unwrap_or(verdict.decision);
            }
            verdict.changes_in = self.holds_for(verdict, keys, at, None);
        }
    }

    /// [`Self::admit`] without counting, by the schedules of `time` if one is given.
    pub fn would_admit(
        &self,
        keys: &RequestKeys,
        at: Instant,
        time: Option<SystemTime>,
        verdicts: &mut Verdicts,
    ) {
        for verdict in verdicts {
            if verdict.bids() {
                let refusal = self.caps().would_refuse(verdict.strategy, &keys.keys, at);
                verdict.decision = refusal.unwrap_or(verdict.decision);
            }
            verdict.changes_in = self.holds_for(verdict, keys, at, time);
        }
    }

    /// Time for which a verdict holds for the same device: none if its ids were not read, as a cap
    /// may have counted it before.
    #[inline]
    fn holds_for(
        &self,
        verdict: &Verdict,
        keys: &RequestKeys,
        at: Instant,
        time: Option<SystemTime>,
    ) -> Option<Duration> {
        if verdict.decision.reason == Reason::Capped && keys.coverage == Coverage::Nothing {
            return Some(Duration::ZERO);
        }
        self.changes_in(verdict.strategy, verdict.decision, at, time)
    }

    /// Counts the verdicts about a platform's request.
    #[inline]
    pub fn count(&self, served: &ServedPlatform, facts: &Facts<'_>, verdicts: &Verdicts) {
        for verdict in verdicts {
            let leaf = self.refusing_leaf(verdict.strategy, verdict.decision, facts);
            served.count(verdict.strategy, verdict.decision, leaf);
            self.count_parts(verdict, facts);
        }
    }

    /// Adds the facts about the device of a request to `/v1/decide`, decides, and counts the
    /// verdicts. The cost is that of [`Self::look_up`], and a read of memory for each cap.
    ///
    /// # Panics
    ///
    /// If there is no strategy at one of the indexes.
    pub fn decide_named(
        &self,
        keys: &RequestKeys,
        strategies: &[usize],
        at: Instant,
        facts: &mut Facts<'_>,
    ) -> Verdicts {
        self.prefetch_caps(keys, at, strategies.iter().copied());
        self.look_up(keys, strategies.iter().copied(), facts);
        let mut verdicts = Verdicts::new();
        self.decide(strategies.iter().copied(), facts, &mut verdicts);
        self.admit(keys, at, &mut verdicts);

        for verdict in &verdicts {
            let leaf = self.refusing_leaf(verdict.strategy, verdict.decision, facts);
            self.served(verdict.strategy).count(verdict.decision, leaf);
            self.count_parts(verdict, facts);
        }
        verdicts
    }

    /// The indexes of strategies with these names, of all without a name; `None` if there is no
    /// strategy of a name.
    #[inline]
    pub fn named_strategies(&self, names: &[Cow<'_, str>]) -> Option<Vec<usize>> {
        if names.is_empty() {
            return Some((0..self.strategies().len()).collect());
        }

        let mut indexes = Vec::with_capacity(names.len());
        for name in names {
            indexes.push(self.strategy_index(name)?);
        }
        Some(indexes)
    }

    /// The decisions that a request to `/v1/decide` for these strategies gets.
    #[inline]
    pub fn named_decisions<'c>(
        &'c self,
        strategies: &[usize],
        verdicts: &Verdicts,
        facts: &Facts<'_>,
    ) -> Vec<NamedDecision<'c>> {
        let mut decisions = Vec::with_capacity(strategies.len());
        for index in strategies {
            let strategy = self.strategy(*index);
            let mut verdicts = verdicts.iter();

            // A name that comes twice is answered twice, and counted once.
            let verdict = verdicts.find(|verdict| verdict.strategy == *index);
            if let Some(verdict) = verdict
                && !strategy.is_shadow
            {
                let buckets = self.experiments().named(*index, &facts.parts);
                decisions.push(NamedDecision::new(strategy, verdict.decision, buckets));
            }
        }
        decisions
    }

    /// Counts a verdict by the device's parts in experiments, and by its value.
    #[inline]
    fn count_parts(&self, verdict: &Verdict, facts: &Facts<'_>) {
        self.experiments()
            .count(verdict.strategy, verdict.decision, &facts.parts);
        if self.has_values {
            self.served(verdict.strategy).count_value(verdict.decision);
        }
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
