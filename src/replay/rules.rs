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
pub struct Gaps {
    /// Sentences, and how often each was noted.
    pub sentences: BTreeMap<String, u64>,
    /// Number of notes that leave an answer or a bucket open.
    pub open: u64,
}

impl Gaps {
    /// Notes a missing fact.
    pub fn note(&mut self, sentence: String) {
        *self.sentences.entry(sentence).or_default() += 1;
        self.open += 1;
    }

    /// Notes a fact that a strategy's decision lacks. A strategy in shadow leaves no answer open.
    fn note_for(&mut self, strategy: &Strategy, sentence: String) {
        *self.sentences.entry(sentence).or_default() += 1;
        if !strategy.is_shadow {
            self.open += 1;
        }
    }

    /// Adds the gaps of other rows.
    pub fn merge(&mut self, other: Self) {
        for (sentence, times) in other.sentences {
            *self.sentences.entry(sentence).or_default() += times;
        }
        self.open += other.open;
    }

    /// Adds what the configuration of `--against` lacks.
    pub fn add_against(&mut self, other: Self) {
        for (sentence, times) in other.sentences {
            let sentence = format!("{sentence} (--against)");
            *self.sentences.entry(sentence).or_default() += times;
        }
        self.open += other.open;
    }
}

/// The rules of a configuration.
#[derive(Debug)]
pub struct Rules {
    audiences: Vec<String>,
    strategies: Vec<Strategy>,
    clocks: Vec<Option<RowClock>>,
    has_cap: Vec<bool>,
    pub experiments: Vec<Experiment>,
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

impl PlatformIds {
    fn new(name: &str, ids: impl Iterator<Item = (String, usize)>) -> Self {
        let mut platform = Self {
            name: name.to_owned(),
            ids: HashMap::new(),
            all: Vec::new(),
        };
        for (id, strategy) in ids {
            if !platform.all.contains(&strategy) {
                platform.all.push(strategy);
            }
            platform.ids.insert(id, strategy);
        }
        platform
    }

    /// The strategies that a request asks for, each once.
    fn asked(&self, facts: &LoggedFacts<'_>) -> SmallVec<[usize; 8]> {
        let Some(ids) = &facts.asked else {
            return SmallVec::from_slice(&self.all);
        };
        let mut asked = SmallVec::new();
        for id in ids {
            if let Some(strategy) = self.ids.get(*id)
                && !asked.contains(strategy)
            {
                asked.push(*strategy);
            }
        }
        asked
    }
}

/// A decision about a row.
#[derive(Debug, Clone, Copy)]
pub struct Decided {
    /// Index of the strategy.
    strategy: usize,
    pub decision: Decision,
    /// Numbers of the bid's value.
    pub numbers: [Option<f64>; ValueKey::ALL.len()],
}

/// The decisions about a row, and the device's parts in experiments.
#[derive(Debug, Default)]
pub struct RowDecisions {
    pub decisions: SmallVec<[Decided; 8]>,
    pub parts: Assignments,
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
    /// Platforms of both whose ids name other strategies. Decisions are compared by strategy, so
    /// what the answer says of each id is not.
    pub fn renamed_platforms(&self, before: &Self) -> Vec<String> {
        let mut renamed = Vec::new();
        for platform in &self.platforms {
            let earlier = before.platforms.iter().find(|it| it.name == platform.name);
            if let Some(earlier) = earlier
                && self.named_ids(platform) != before.named_ids(earlier)
            {
                renamed.push(platform.name.clone());
            }
        }
        renamed
    }

    /// The names of strategies by the ids of a platform.
    fn named_ids<'a>(&'a self, platform: &'a PlatformIds) -> BTreeMap<&'a str, &'a str> {
        let mut names = BTreeMap::new();
        for (id, strategy) in &platform.ids {
            names.insert(id.as_str(), self.strategies[*strategy].name.as_str());
        }
        names
    }

    /// The rules of a plan.
    pub fn new(plan: CatalogPlan) -> Self {
        let mut platforms = Vec::new();
        for platform in &plan.platforms {
            platforms.push(PlatformIds::new(&platform.name, platform.strategy_ids()));
        }
        // Requests to rtad's own API name strategies as the configuration does.
        let names = plan.strategies.iter().map(|strategy| strategy.name.clone());
        platforms.push(PlatformIds::new(API, names.zip(0..)));

        let mut clocks = Vec::new();
        for strategy in &plan.strategies {
            clocks.push(strategy.schedule.clone().map(RowClock::new));
        }
        let audiences = plan.audiences.iter();
        Self {
            audiences: audiences.map(|it| it.name.to_string()).collect(),
            has_cap: plan.caps.iter().map(Option::is_some).collect(),
            strategies: plan.strategies,
            experiments: plan.experiments,
            clocks,
            platforms,
        }
    }

    /// The strategy of a decision.
    pub fn strategy(&self, decided: &Decided) -> &Strategy {
        &self.strategies[decided.strategy]
    }

    /// The device's bucket in an experiment; `None` if it is unknown.
    pub fn bucket(&self, decided: &RowDecisions, experiment: &str) -> Option<&str> {
        let mut experiments = self.experiments.iter();
        let index = experiments.position(|it| it.name == experiment)?;
        match *decided.parts.get(index)? {
            Assignment::Unknown => None,
            part => Some(self.experiments[index].part_name(part)),
        }
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

        let name = row.end.platform;
        let Some(platform) = self.platforms.iter().find(|it| it.name == name) else {
            return gaps.note(format!("platform {name} is not in the config"));
        };

        let micros = u64::try_from(row.end.time).unwrap_or_default();
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
        for index in platform.asked(facts) {
            let strategy = &self.strategies[index];
            let name = strategy.name.as_str();
            let logged = facts.decisions.iter().find(|fact| fact.strategy == name);
            if let Some(clock) = &mut self.clocks[index] {
                clock.set(at, logged.and_then(|fact| fact.scheduled));
            }

            let mut decision = self.decide_strategy(index, facts, &to.parts, gaps);
            if self.has_cap[index] && decision.is_bid() {
                match logged.and_then(|fact| fact.cap) {
                    Some(CapState::Admitted) => {}
                    Some(CapState::Capped) => decision = Decision::CAPPED,
                    Some(CapState::NoLease) => decision = Decision::NO_LEASE,
                    None => {
                        gaps.note_for(strategy, format!("the cap of {name} is not in the rows"))
                    }
                }
            }

            let value = strategy.value_of(decision);
            to.decisions.push(Decided {
                strategy: index,
                decision,
                numbers: ValueKey::ALL.map(|key| value?.get(key)),
            });
        }
    }

    /// A strategy's decision, without its cap.
    fn decide_strategy(
        &self,
        index: usize,
        facts: &LoggedFacts<'_>,
        parts: &[Assignment],
        gaps: &mut Gaps,
    ) -> Decision {
        let strategy = &self.strategies[index];
        match facts.ids {
            LookedUpIds::None => return strategy.without_device(),
            LookedUpIds::Unread => return strategy.when_unavailable(),
            LookedUpIds::All | LookedUpIds::TooMany => {}
        }

        let attributes = RowAttributes {
            attributes: &facts.attributes,
            parts,
        };
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

    /// Notes the audiences that the row lacks and that leave a decision, or its value, open.
    fn note_lacking(
        &self,
        strategy: &Strategy,
        decision: Decision,
        attributes: &RowAttributes<'_>,
        facts: &LoggedFacts<'_>,
        gaps: &mut Gaps,
    ) {
        let mut membership = |audience| {
            self.membership(audience, facts)
                .unwrap_or(Membership::Unavailable)
        };
        let mut open = Vec::new();
        if decision.reason == Reason::Unavailable {
            open = strategy.unknown(attributes, &mut membership);
        }
        if decision.value.is_fallback {
            // The first unavailable audience leads to the fallback.
            let mut audiences = strategy.values.iter().filter_map(|entry| entry.audience);
            let first = audiences.find(|audience| membership(*audience) == Membership::Unavailable);
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
    pub fn deciding_leaf(
        &self,
        decided: &Decided,
        facts: &LoggedFacts<'_>,
        parts: &[Assignment],
    ) -> String {
        match facts.ids {
            LookedUpIds::None | LookedUpIds::Unread => return String::new(),
            LookedUpIds::All | LookedUpIds::TooMany => {}
        }

        let attributes = RowAttributes {
            attributes: &facts.attributes,
            parts,
        };
        let mut membership = |audience| {
            self.membership(audience, facts)
                .unwrap_or(Membership::Unavailable)
        };
        let strategy = self.strategy(decided);
        let leaf = strategy.deciding(decided.decision, &attributes, &mut membership);
        let Some(leaf) = leaf else {
            return String::new();
        };
        let name = |audience: usize| self.audiences[audience].clone();
        leaf.to_text(&name, &self.experiments)
    }

    fn fact<'f, 'a>(
        &self,
        audience: usize,
        facts: &'f LoggedFacts<'a>,
    ) -> Option<&'f AudienceFact<'a>> {
        let name = self.audiences[audience].as_str();
        // The rows of a pod have the audiences of its configuration, mostly in the same order.
        if let Some(fact) = facts.audiences.get(audience)
            && fact.name == name
        {
            return Some(fact);
        }
        facts.audiences.iter().find(|fact| fact.name == name)
    }

    /// The membership of a row's device in an audience; `None` if the row lacks it.
    fn membership(&self, audience: usize, facts: &LoggedFacts<'_>) -> Option<Membership> {
        let has_unread_ids = facts.ids == LookedUpIds::TooMany;
        let Some(fact) = self.fact(audience, facts) else {
            // No id that was read was usable: the pod looked nothing up.
            let is_known = has_unread_ids && facts.audiences.is_empty();
            return is_known.then_some(Membership::Unavailable);
        };
        Some(match fact.member {
            InAudience::Yes => Membership::Member,
            // An id that was not read may be a member.
            InAudience::No if has_unread_ids => Membership::Unavailable,
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
            parts.push(assignment(experiment, facts, gaps));
        }
    }
}

fn assignment(experiment: &Experiment, facts: &LoggedFacts<'_>, gaps: &mut Gaps) -> Assignment {
    let name = &experiment.name;
    match facts.ids {
        LookedUpIds::TooMany | LookedUpIds::Unread => return Assignment::Unknown,
        LookedUpIds::All | LookedUpIds::None => {}
    }

    let Some(fact) = facts.experiments.iter().find(|fact| fact.name == *name) else {
        if facts.ids == LookedUpIds::None {
            return Assignment::NoBucket;
        }
        gaps.note(format!("experiment {name} is not in the rows"));
        return Assignment::Unknown;
    };
    if fact.rule != experiment.rule_id() {
        gaps.note(format!("experiment {name} has another layer or unit"));
        return Assignment::Unknown;
    }
    match fact.slots {
        Some([layer, bucket]) => experiment.assign_slots(|| layer, || bucket),
        None => Assignment::NoBucket,
    }
}
