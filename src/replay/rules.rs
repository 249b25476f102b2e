//! A configuration that decides about rows.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use rtad_log::{
    AudienceFact, CapState, DecisionFact, InAudience, LogRow, LoggedFacts, LookedUpIds,
};
use smallvec::SmallVec;

use super::clock::RowClock;
use crate::log::API;
use crate::strategy::{
    self, Assignment, Assignments, AttributeValue, AudienceAnswer, Decision, Experiment, Facts,
    LookedUp, Membership, Reason, Rule, Strategy, Tier, ValueKey,
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
    pub fn note_for(&mut self, strategy: &Strategy, sentence: String) {
        *self.sentences.entry(sentence).or_default() += 1;
        if !strategy.is_shadow {
            self.open += 1;
        }
    }

    /// Names a fact without counting it.
    pub fn name(&mut self, sentence: &str) {
        *self.sentences.entry(sentence.to_owned()).or_default() += 1;
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
    rules: strategy::Rules,
    clocks: Vec<Option<RowClock>>,
    /// Names of the caps.
    caps: Vec<String>,
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

impl Rules {
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
            caps: plan.caps.into_iter().map(|cap| cap.name).collect(),
            rules: strategy::Rules::new(plan.strategies),
            experiments: plan.experiments,
            clocks,
            platforms,
        }
    }

    /// The strategy of a decision.
    pub fn strategy(&self, decided: &Decided) -> &Strategy {
        self.strategy_at(decided.strategy)
    }

    /// The name of a strategy's cap.
    pub fn cap_of(&self, strategy: &Strategy) -> Option<&str> {
        strategy.cap.map(|index| self.caps[index].as_str())
    }

    fn strategy_at(&self, index: usize) -> &Strategy {
        &self.rules.strategies()[index]
    }

    /// Whether a strategy reads the audience of this name.
    pub fn reads_audience(&self, strategy: &Strategy, name: &str) -> bool {
        let mut audiences = strategy.audiences();
        audiences.any(|audience| self.audiences[audience] == name)
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
        logged: &LoggedFacts<'_>,
        gaps: &mut Gaps,
        to: &mut RowDecisions,
    ) {
        to.decisions.clear();
        to.parts = self.parts(logged, gaps);

        let name = row.end.platform;
        let Some(platform) = self.platforms.iter().find(|it| it.name == name) else {
            return gaps.note(format!("platform {name} is not in the config"));
        };

        let micros = u64::try_from(row.end.time).unwrap_or_default();
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
        let asked = platform.asked(logged);
        let mut facts = self.facts(logged, &to.parts);
        for index in asked {
            let strategy = &self.rules.strategies()[index];
            let name = strategy.name.as_str();
            let mut decisions = logged.decisions.iter();
            let before = decisions.find(|fact| fact.strategy == name);
            if let Some(clock) = &mut self.clocks[index]
                && !clock.holds(at, before.and_then(|fact| fact.scheduled))
            {
                facts.paused.push(index);
            }

            let mut decision = self.rules.decide(index, &facts);
            self.note_lacking(strategy, decision, &facts, gaps);
            if let Some(cap) = strategy.cap
                && decision.is_bid()
            {
                let cap = self.caps[cap].as_str();
                match cap_state(cap, before, logged) {
                    Some(CapState::Admitted) => {}
                    Some(CapState::Capped) => decision = Decision::CAPPED,
                    Some(CapState::NoGrant) => decision = Decision::NO_GRANT,
                    None => gaps.note_for(strategy, format!("cap {cap} is not in the rows")),
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

    /// Notes the audiences that the row lacks and that leave a decision, or its value, open.
    fn note_lacking(
        &self,
        strategy: &Strategy,
        decision: Decision,
        facts: &Facts<'_>,
        gaps: &mut Gaps,
    ) {
        match facts.looked_up {
            LookedUp::All | LookedUp::TooMany => {}
            LookedUp::None | LookedUp::Unread => return,
        }

        let mut open = Vec::new();
        if decision.reason == Reason::Unavailable {
            open = strategy.unknown(facts);
        }
        if decision.value.is_fallback {
            open.extend(strategy.unknown_of_value(facts).map(Rule::Audience));
        }

        for rule in open {
            if let Rule::Audience(audience) = rule
                && facts.answer_of(audience).is_none()
            {
                let name = &self.audiences[audience];
                gaps.note_for(strategy, format!("audience {name} is not in the rows"));
            }
        }
    }

    /// The name of the condition that decides; `None` if none does.
    pub fn deciding_condition(
        &self,
        decided: &Decided,
        logged: &LoggedFacts<'_>,
        parts: &Assignments,
    ) -> Option<String> {
        match logged.ids {
            LookedUpIds::None | LookedUpIds::Unread => return None,
            LookedUpIds::All | LookedUpIds::TooMany => {}
        }

        let facts = self.facts(logged, parts);
        let leaf = self.strategy(decided).deciding(decided.decision, &facts)?;
        Some(leaf.name(
            |audience| self.audiences[audience].clone(),
            &self.experiments,
        ))
    }

    /// The facts of a row, without the schedules. An audience that the row lacks was not asked.
    fn facts<'a>(&self, logged: &LoggedFacts<'a>, parts: &Assignments) -> Facts<'a> {
        let looked_up = match logged.ids {
            LookedUpIds::All => LookedUp::All,
            LookedUpIds::TooMany => LookedUp::TooMany,
            LookedUpIds::None => LookedUp::None,
            LookedUpIds::Unread => LookedUp::Unread,
        };
        let mut facts = Facts::new(looked_up, self.audiences.len());
        facts.parts.clone_from(parts);
        for (value, text) in facts.attributes.iter_mut().zip(&logged.attributes) {
            *value = text.map(|text| AttributeValue::Text(text.as_bytes()));
        }

        // If no id that was read was usable, the pod looked nothing up, but another may be a
        // member.
        let has_no_answers = looked_up == LookedUp::TooMany && logged.audiences.is_empty();
        for audience in 0..self.audiences.len() {
            if has_no_answers {
                facts.set_membership(audience, Membership::Unavailable);
            } else if let Some(fact) = self.fact(audience, logged) {
                facts.set_answer(audience, answer_of(fact));
            }
        }
        facts
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

    /// The parts of the row's device in the experiments, from its slots.
    fn parts(&self, facts: &LoggedFacts<'_>, gaps: &mut Gaps) -> Assignments {
        let mut parts = Assignments::new();
        for experiment in &self.experiments {
            parts.push(assignment(experiment, facts, gaps));
        }
        parts
    }
}

/// The state of a cap for the row's device, by a decision with it: of the strategy itself, or else
/// of another one.
fn cap_state<'a>(
    name: &str,
    of_strategy: Option<&DecisionFact<'a>>,
    logged: &LoggedFacts<'a>,
) -> Option<CapState> {
    let decisions = of_strategy.into_iter().chain(&logged.decisions);
    let mut caps = decisions.filter_map(|fact| fact.cap);
    caps.find(|cap| cap.name == name).map(|cap| cap.state)
}

/// The answer of an audience in a row.
fn answer_of(fact: &AudienceFact<'_>) -> AudienceAnswer {
    let membership = match fact.member {
        InAudience::Yes => Membership::Member,
        InAudience::No => Membership::NotMember,
        InAudience::Unavailable => Membership::Unavailable,
    };
    AudienceAnswer {
        membership,
        tier: fact.value.map_or(Tier::None, Tier::Value),
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
