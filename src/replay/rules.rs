//! A configuration that decides about rows.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use rtad_log::{AudienceFact, CapState, InAudience, LogRow, LoggedFacts, LookedUpIds};
use smallvec::SmallVec;

use super::clock::RowClock;
use crate::log::API;
use crate::strategy::{
    Assignment, Assignments, Attribute, AttributeValue, Attributes, Decision, Experiment,
    Membership, Reason, Rule, Strategy, Tier, ValueKey,
};
use crate::sync::CatalogPlan;

/// Facts that the rows lack.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Sentences, and how often each was noted.
    pub(super) sentences: BTreeMap<String, u64>,
    /// Number of notes that leave an answer or a bucket open.
    pub(super) open: u64,
}

impl Gaps {
    /// Notes a missing fact.
    pub(super) fn note(&mut self, sentence: String) {
        *self.sentences.entry(sentence).or_default() += 1;
        self.open += 1;
    }

    /// Notes a fact that a strategy's decision lacks. A strategy in shadow leaves no answer open.
    fn note_for(&mut self, strategy: &Strategy, sentence: String) {
        *self.sentences.entry(sentence).or_default() += 1;
        self.open += u64::from(!strategy.is_shadow);
    }
}

/// The rules of a configuration.
#[derive(Debug)]
pub struct Rules {
    audiences: Vec<String>,
    strategies: Vec<Strategy>,
    clocks: Vec<Option<RowClock>>,
    has_cap: Vec<bool>,
    pub(super) experiments: Vec<Experiment>,
    platforms: Vec<PlatformIds>,
}

/// The strategy ids of a platform.
#[derive(Debug)]
struct PlatformIds {
    name: String,
    ids: HashMap<String, usize>,
    /// Each strategy once, in the order of a request that names none.
    all: Vec<usize>,
}

/// A decision about a row.
#[derive(Debug, Clone, Copy)]
pub struct Decided {
    /// Index of the strategy.
    pub(super) strategy: usize,
    pub(super) decision: Decision,
    /// Numbers of the bid's value.
    pub(super) numbers: [Option<f64>; ValueKey::ALL.len()],
}

/// The decisions about a row, and the device's parts in experiments.
#[derive(Debug, Default)]
pub struct RowDecisions {
    pub(super) decisions: SmallVec<[Decided; 8]>,
    pub(super) parts: Assignments,
}

/// A row's attributes, and the parts of its device in experiments.
struct RowAttributes<'r> {
    attributes: &'r [Option<&'r str>; Attribute::ALL.len()],
    parts: &'r [Assignment],
}

impl Attributes for RowAttributes<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<AttributeValue<'_>> {
        let text = self.attributes[attribute as usize]?;
        Some(AttributeValue::Text(text.as_bytes()))
    }

    fn assignment(&self, experiment: usize) -> Assignment {
        self.parts[experiment]
    }
}

impl Rules {
    /// The rules of a plan.
    pub fn new(plan: CatalogPlan) -> Self {
        let platforms = plan.platforms.iter().map(|platform| {
            let mut all = Vec::new();
            let ids = platform.strategy_ids().inspect(|(_, strategy)| {
                if !all.contains(strategy) {
                    all.push(*strategy);
                }
            });
            PlatformIds {
                ids: ids.collect(),
                name: platform.name.clone(),
                all,
            }
        });
        let api = PlatformIds {
            name: API.to_owned(),
            ids: plan
                .strategies
                .iter()
                .map(|it| it.name.clone())
                .zip(0..)
                .collect(),
            all: (0..plan.strategies.len()).collect(),
        };
        let clock = |strategy: &Strategy| strategy.schedule.clone().map(RowClock::new);
        Self {
            platforms: platforms.chain([api]).collect(),
            audiences: plan
                .audiences
                .iter()
                .map(|audience| audience.name.to_string())
                .collect(),
            clocks: plan.strategies.iter().map(clock).collect(),
            has_cap: plan.caps.iter().map(Option::is_some).collect(),
            experiments: plan.experiments,
            strategies: plan.strategies,
        }
    }

    /// Each platform's strategy ids, and the names of their strategies.
    pub fn ids(&self) -> BTreeMap<[&str; 2], &str> {
        let platforms = self
            .platforms
            .iter()
            .filter(|platform| platform.name != API);
        let ids = platforms.flat_map(|platform| {
            let ids = platform.ids.iter();
            ids.map(|(id, index)| ([&*platform.name, id], &*self.strategies[*index].name))
        });
        ids.collect()
    }

    /// The strategy of a decision.
    pub fn strategy(&self, decided: &Decided) -> &Strategy {
        &self.strategies[decided.strategy]
    }

    /// Decides about a row. Nothing is decided if the configuration does not have its platform.
    pub fn decide(
        &mut self,
        row: &LogRow<'_>,
        facts: &LoggedFacts<'_>,
        gaps: &mut Gaps,
        to: &mut RowDecisions,
    ) {
        to.decisions.clear();
        self.assign(facts, gaps, &mut to.parts);
        let Some(platform) = self.platforms.iter().find(|it| it.name == row.end.platform) else {
            return gaps.note(format!(
                "platform {} is not in the config",
                row.end.platform
            ));
        };
        let mut asked: SmallVec<[usize; 8]> = SmallVec::new();
        match &facts.asked {
            None => asked.extend_from_slice(&platform.all),
            Some(ids) => {
                for index in ids.iter().filter_map(|id| platform.ids.get(*id)) {
                    if !asked.contains(index) {
                        asked.push(*index);
                    }
                }
            }
        }
        let micros = u64::try_from(row.end.time).unwrap_or_default();
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
        for index in asked {
            let strategy = &self.strategies[index];
            let name = strategy.name.as_str();
            let logged = facts.decisions.iter().find(|fact| fact.strategy == name);
            if let Some(clock) = &mut self.clocks[index] {
                clock.set(at, logged.and_then(|fact| fact.scheduled));
            }
            let decision = self.decide_one(index, facts, &to.parts, gaps);
            let cap = logged.and_then(|fact| fact.cap);
            let decision = if self.has_cap[index] && decision.is_bid() {
                match cap {
                    Some(CapState::Admitted) => decision,
                    Some(CapState::Capped) => Decision::CAPPED,
                    Some(CapState::NoLease) => Decision::NO_LEASE,
                    None => {
                        gaps.note_for(strategy, format!("the cap of {name} is not in the rows"));
                        decision
                    }
                }
            } else {
                decision
            };
            let value = strategy.value_of(decision);
            let numbers = ValueKey::ALL.map(|key| value?.get(key));
            to.decisions.push(Decided {
                strategy: index,
                decision,
                numbers,
            });
        }
    }

    fn decide_one(
        &self,
        index: usize,
        facts: &LoggedFacts<'_>,
        parts: &[Assignment],
        gaps: &mut Gaps,
    ) -> Decision {
        let strategy = &self.strategies[index];
        let attributes = RowAttributes {
            attributes: &facts.attributes,
            parts,
        };
        match facts.ids {
            LookedUpIds::None => strategy.without_device(),
            LookedUpIds::Unread => strategy.when_unavailable(),
            LookedUpIds::All | LookedUpIds::TooMany => {
                let mut lacks_any = false;
                let membership = |audience| {
                    let logged = self.membership(audience, facts);
                    lacks_any |= logged.is_none();
                    logged.unwrap_or(Membership::Unavailable)
                };
                let tier = |audience| self.tier(audience, facts);
                let decision = strategy.decide(&attributes, membership, tier);
                if lacks_any {
                    self.note_lacking(strategy, decision, &attributes, facts, gaps);
                }
                decision
            }
        }
    }

    /// Notes the audiences that the row lacks and that leave a decision, or its value, open.
    fn note_lacking(
        &self,
        strategy: &Strategy,
        decision: Decision,
        attributes: &RowAttributes<'_>,
        facts: &LoggedFacts<'_>,
        gaps: &mut Gaps,
    ) {
        let of = |audience| {
            self.membership(audience, facts)
                .unwrap_or(Membership::Unavailable)
        };
        let mut open = Vec::new();
        if decision.reason == Reason::Unavailable {
            open = strategy.unknown(attributes, &mut |audience| of(audience));
        }
        if decision.value.is_fallback {
            // The first unavailable audience leads to the fallback.
            let mut audiences = strategy.values.iter().filter_map(|entry| entry.audience);
            let first = audiences.find(|audience| of(*audience) == Membership::Unavailable);
            open.extend(first.map(Rule::Audience));
        }
        for rule in open {
            if let Rule::Audience(audience) = rule
                && self.membership(audience, facts).is_none()
            {
                let name = &self.audiences[audience];
                gaps.note_for(strategy, format!("audience {name} is not in the rows"));
            }
        }
    }

    /// The audience, or the part of the rule, that decides: a short text.
    pub fn leaf(&self, decided: &Decided, facts: &LoggedFacts<'_>, parts: &[Assignment]) -> String {
        let strategy = self.strategy(decided);
        if !matches!(facts.ids, LookedUpIds::All | LookedUpIds::TooMany) {
            return String::new();
        }
        let mut membership = |audience| {
            self.membership(audience, facts)
                .unwrap_or(Membership::Unavailable)
        };
        let name = |audience: usize| self.audiences[audience].clone();
        let attributes = RowAttributes {
            attributes: &facts.attributes,
            parts,
        };
        strategy
            .deciding(decided.decision, &attributes, &mut membership)
            .map(|deciding| deciding.to_text(&name, &self.experiments))
            .unwrap_or_default()
    }

    fn fact<'f, 'a>(
        &self,
        audience: usize,
        facts: &'f LoggedFacts<'a>,
    ) -> Option<&'f AudienceFact<'a>> {
        let name = self.audiences[audience].as_str();
        // The rows of a pod have the audiences of its configuration, mostly in the same order.
        let guess = facts
            .audiences
            .get(audience)
            .filter(|fact| fact.name == name);
        guess.or_else(|| facts.audiences.iter().find(|fact| fact.name == name))
    }

    /// The membership of a row's device in an audience; `None` if the row lacks it.
    fn membership(&self, audience: usize, facts: &LoggedFacts<'_>) -> Option<Membership> {
        let Some(fact) = self.fact(audience, facts) else {
            // No id that was read was usable: the pod looked nothing up.
            let is_known = facts.ids == LookedUpIds::TooMany && facts.audiences.is_empty();
            return is_known.then_some(Membership::Unavailable);
        };
        Some(match fact.member {
            InAudience::Yes => Membership::Member,
            // An id that was not read may be a member.
            InAudience::No if facts.ids == LookedUpIds::TooMany => Membership::Unavailable,
            InAudience::No => Membership::NotMember,
            InAudience::Unavailable => Membership::Unavailable,
        })
    }

    fn tier(&self, audience: usize, facts: &LoggedFacts<'_>) -> Tier {
        match self.fact(audience, facts) {
            Some(fact) if facts.ids == LookedUpIds::All => {
                fact.value.map_or(Tier::None, Tier::Value)
            }
            _ => Tier::Unknown,
        }
    }

    /// The parts of the row's device in the experiments, from its slots.
    fn assign(&self, facts: &LoggedFacts<'_>, gaps: &mut Gaps, parts: &mut Assignments) {
        parts.clear();
        for experiment in &self.experiments {
            let fact = facts
                .experiments
                .iter()
                .find(|fact| fact.name == experiment.name);
            parts.push(match (facts.ids, fact) {
                (LookedUpIds::TooMany | LookedUpIds::Unread, _) => Assignment::Unknown,
                (_, Some(fact)) if fact.rule != experiment.rule_id() => {
                    let name = &experiment.name;
                    gaps.note(format!(
                        "experiment {name} has another salt, layer, hash or unit"
                    ));
                    Assignment::Unknown
                }
                (_, Some(fact)) => match fact.slots {
                    Some([layer, bucket]) => experiment.assign_slots(|| layer, || bucket),
                    None => Assignment::NoBucket,
                },
                (LookedUpIds::None, None) => Assignment::NoBucket,
                (LookedUpIds::All, None) => {
                    gaps.note(format!("experiment {} is not in the rows", experiment.name));
                    Assignment::Unknown
                }
            });
        }
    }
}
