//! Strategies: rules that turn memberships in audiences into bid or no-bid.
//!
//! Pure: no IO and no clock. A decision is a function of a strategy and of the [`Facts`] about a
//! device, in which audiences, experiments and strategies have indexes.
//!
//! | file | job |
//! |---|---|
//! | `facts` | facts about a device: memberships, attributes, parts in experiments |
//! | `rule` | conditions, and the one that decides |
//! | `value` | values of bids |
//! | `experiment` | parts in experiments |

mod experiment;
mod facts;
mod rule;
mod value;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rtad_core::clock;
use rtad_core::schedule::Schedule;
use strum::VariantArray as _;
use tokio::time::Instant;

pub use experiment::{
    Assignment, Assignments, Bucket, Experiment, HOLDOUT, MAX_BUCKETS, MAX_EXPERIMENTS, NO_BUCKET,
    Slots, Tag, Units,
};
pub use facts::{
    Accepted, Attribute, AttributeValue, AttributeValues, AudienceAnswer, Facts, LookedUp,
    OS_WORDS, Tier, os_word,
};
pub use rule::{Leaf, Rule, Truth};
pub use value::{BidValue, ChosenValue, MAX_VALUES, Tiers, ValueEntry, ValueKey};

/// Membership of a device in an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// One of the device's ids is in it.
    Member,
    /// None of them is.
    NotMember,
    /// The audience is missing or too old.
    Unavailable,
}

/// Bid or no bid: the two normal outcomes.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Show an ad.
    Bid,
    /// Do not.
    #[default]
    NoBid,
}

impl Outcome {
    /// The word in the config and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bid => "bid",
            Self::NoBid => "no_bid",
        }
    }
}

/// Reason of a decision.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// The device is in an excluded audience.
    Member,
    /// The device is in none of them, and the rule, if there is one, holds.
    NotMember,
    /// The request carries no usable id.
    NoDevice,
    /// An audience that the decision depends on is missing or too old, the request lacks an
    /// attribute that it depends on, or the service is overloaded.
    Unavailable,
    /// The strategy would bid, but its cap of distinct devices is reached.
    Capped,
    /// The strategy would bid, and its cap is not reached, but this pod was granted no more of it
    /// yet.
    NoGrant,
    /// The strategy's rule decides: it holds without other audiences, or it does not hold.
    Rule,
    /// The strategy's schedule does not hold now.
    NotScheduled,
    /// The rule decides, and the device's bucket of an experiment decides in it.
    Bucket,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 9] = *Self::VARIANTS.as_array().expect("every variant");

    /// The word in answers and in metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A strategy's answer for one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Bid or no bid.
    pub outcome: Outcome,
    /// Its reason.
    pub reason: Reason,
    /// The value of a bid.
    pub value: ChosenValue,
}

impl Decision {
    /// No bid, because of a cap.
    pub const CAPPED: Self = Self::no_bid(Reason::Capped);
    /// No bid, because nothing of a cap is granted.
    pub const NO_GRANT: Self = Self::no_bid(Reason::NoGrant);

    /// No bid.
    pub const fn no_bid(reason: Reason) -> Self {
        Self::of(Outcome::NoBid, reason)
    }

    /// A bid without a value.
    pub const fn bid(reason: Reason) -> Self {
        Self::of(Outcome::Bid, reason)
    }

    const fn of(outcome: Outcome, reason: Reason) -> Self {
        Self {
            outcome,
            reason,
            value: ChosenValue {
                index: None,
                is_fallback: false,
            },
        }
    }

    /// Whether it is a bid.
    #[inline]
    pub const fn is_bid(self) -> bool {
        matches!(self.outcome, Outcome::Bid)
    }
}

/// A rule over audiences, which are named by their indexes in the catalog.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Strategy {
    /// Its name in requests and in platforms' mappings.
    pub name: String,
    /// A member of any of these gets no bid.
    pub exclude: Vec<usize>,
    /// Devices for which this does not hold get no bid.
    pub rule: Option<Rule>,
    /// Experiments of the rule and of the values, by index, each once.
    pub experiments: Vec<usize>,
    /// No device gets a bid while this does not hold.
    pub schedule: Option<Scheduled>,
    /// Values of its bids: the first one that fits, at most [`MAX_VALUES`].
    pub values: Vec<ValueEntry>,
    /// Index of its cap.
    pub cap: Option<usize>,
    /// Its decisions are counted, and answer nothing.
    pub is_shadow: bool,
    /// The answer to a request without a usable id.
    pub no_device: Outcome,
    /// The answer when an audience that the decision depends on is unavailable.
    pub unavailable: Outcome,
}

impl Strategy {
    /// Decides about a device, before the strategy's schedule and cap. An unavailable audience
    /// matters only if the others leave the answer open. No allocation.
    #[inline]
    pub fn decide(&self, facts: &Facts<'_>) -> Decision {
        let mut decision = match facts.looked_up {
            LookedUp::All | LookedUp::TooMany => self.decide_by_rules(facts),
            LookedUp::None => Decision::of(self.no_device, Reason::NoDevice),
            LookedUp::Unread => self.unavailable(),
        };

        if decision.is_bid() && !self.values.is_empty() {
            decision.value = match facts.looked_up {
                LookedUp::All | LookedUp::TooMany => ChosenValue::first(&self.values, facts),
                LookedUp::None | LookedUp::Unread => ChosenValue::default_of(&self.values),
            };
        }
        decision
    }

    /// The decision of `exclude`, and then of the rule about what that leaves open.
    #[inline]
    fn decide_by_rules(&self, facts: &Facts<'_>) -> Decision {
        let mut is_open = false;
        for audience in &self.exclude {
            match facts.membership(*audience) {
                Membership::Member => return Decision::no_bid(Reason::Member),
                Membership::Unavailable => is_open = true,
                Membership::NotMember => {}
            }
        }

        let not_excluded = if is_open {
            self.unavailable()
        } else {
            Decision::bid(Reason::NotMember)
        };
        match &self.rule {
            Some(rule) => self.decide_by_rule(rule, not_excluded, facts),
            None => not_excluded,
        }
    }

    /// The decision of a rule about a device that is not excluded.
    fn decide_by_rule(&self, rule: &Rule, not_excluded: Decision, facts: &Facts<'_>) -> Decision {
        let truth = rule.truth(facts);
        if truth == Truth::Unknown {
            return self.unavailable();
        }
        if truth == Truth::True && !self.exclude.is_empty() {
            return not_excluded;
        }

        let is_by_bucket = !self.experiments.is_empty() && rule.is_decided_by_bucket(facts);
        let reason = if is_by_bucket {
            Reason::Bucket
        } else {
            Reason::Rule
        };
        match truth {
            Truth::True => Decision::bid(reason),
            Truth::False | Truth::Unknown => Decision::no_bid(reason),
        }
    }

    /// The excluded audiences and the leaves of the rule that leave an `unavailable` decision open.
    pub fn unknown(&self, facts: &Facts<'_>) -> Vec<Rule> {
        let mut unknown = Vec::new();
        for audience in &self.exclude {
            if facts.membership(*audience) == Membership::Unavailable {
                unknown.push(Rule::Audience(*audience));
            }
        }

        if let Some(rule) = &self.rule {
            rule.add_unknown(facts, &mut unknown);
        }
        unknown
    }

    const fn unavailable(&self) -> Decision {
        Decision::of(self.unavailable, Reason::Unavailable)
    }

    /// Whether a request can get this decision. Grants of a cap count as one.
    pub fn can_decide(&self, outcome: Outcome, reason: Reason) -> bool {
        let is_bid = outcome == Outcome::Bid;
        let is_by_exclude = self.rule.is_none() || !self.exclude.is_empty();
        match reason {
            Reason::Member => !is_bid && !self.exclude.is_empty(),
            Reason::NotMember => is_bid && is_by_exclude,
            Reason::NoDevice => outcome == self.no_device,
            Reason::Unavailable => outcome == self.unavailable,
            Reason::Capped | Reason::NoGrant => !is_bid && self.cap.is_some(),
            Reason::Rule => self.rule.is_some() && (!is_bid || !is_by_exclude),
            Reason::Bucket => {
                let rule = self.rule.as_ref();
                rule.is_some_and(|rule| !rule.buckets().is_empty()) && (!is_bid || !is_by_exclude)
            }
            Reason::NotScheduled => !is_bid && self.schedule.is_some(),
        }
    }

    /// The numbers of a decision's value.
    pub fn value_of(&self, decision: Decision) -> Option<&BidValue> {
        decision
            .value
            .index
            .map(|index| &self.values[usize::from(index)].value)
    }

    /// The audience for which the value of a bid is the default, as it is unavailable; `None` if
    /// the value is not open, or by a part in an experiment.
    pub fn unknown_of_value(&self, facts: &Facts<'_>) -> Option<usize> {
        let audience = ValueEntry::first_unknown(&self.values, facts)?.audience?;
        (facts.membership(audience) == Membership::Unavailable).then_some(audience)
    }

    /// Sets the bit of its schedule, and logs a change.
    pub fn follow_schedule(&self, wall: SystemTime, now: Instant) {
        let Some(schedule) = &self.schedule else {
            return;
        };
        if schedule.follow(wall, now) {
            let strategy = self.name.as_str();
            let holds = schedule.holds();
            tracing::info!(strategy, holds, "schedule of the strategy has changed");
        }
    }

    /// Whether its schedule holds now.
    #[inline]
    pub fn is_scheduled(&self) -> bool {
        self.schedule.as_ref().is_none_or(Scheduled::holds)
    }

    /// Whether one device's requests may get different answers by their attributes.
    pub fn is_per_request(&self) -> bool {
        let attributes = self.rule.as_ref().map_or_else(Vec::new, Rule::attributes);
        attributes
            .iter()
            .any(|(attribute, _)| attribute.is_of_request())
    }

    /// Its audiences, some more than once.
    pub fn audiences(&self) -> impl Iterator<Item = usize> {
        let of_rule = self.rule.as_ref().map_or_else(Vec::new, Rule::audiences);
        let of_values = self.values.iter().filter_map(|entry| entry.audience);
        let excluded = self.exclude.iter().copied();
        excluded.chain(of_rule).chain(of_values)
    }
}

/// A schedule, and its state at the current time, which copies share: one bit, so that no request
/// reads a clock.
#[derive(Debug, Clone)]
pub struct Scheduled {
    schedule: Arc<Schedule>,
    state: Arc<ScheduleState>,
}

#[derive(Debug)]
struct ScheduleState {
    began: Instant,
    /// Seconds from `began` to the next change, `NEVER` without one; over them [`HOLDS`]. In one
    /// word, so that a request around a change reads both of one time.
    word: AtomicU64,
}

/// Bit of a schedule that holds.
const HOLDS: u64 = 1 << 63;
const NEVER: u64 = HOLDS - 1;

impl Scheduled {
    /// A schedule at the current time.
    pub fn new(schedule: Schedule) -> Self {
        let state = ScheduleState {
            began: Instant::now(),
            word: AtomicU64::new(NEVER),
        };
        let scheduled = Self {
            schedule: Arc::new(schedule),
            state: Arc::new(state),
        };

        scheduled.follow(clock::now(), Instant::now());
        scheduled
    }

    /// Whether it holds, as of the last call of [`Self::follow`].
    #[inline]
    pub fn holds(&self) -> bool {
        self.state.word.load(Ordering::Relaxed) & HOLDS != 0
    }

    /// Time from `at` to the next change of a schedule that a request found to hold or not; zero if
    /// it has changed since, `None` if it never changes.
    pub fn changes_in(&self, held: bool, at: Instant) -> Option<Duration> {
        let word = self.state.word.load(Ordering::Relaxed);
        if (word & HOLDS != 0) != held {
            return Some(Duration::ZERO);
        }

        let changes_at = word & !HOLDS;
        let since = at.saturating_duration_since(self.state.began);
        (changes_at != NEVER).then(|| Duration::from_secs(changes_at).saturating_sub(since))
    }

    /// Sets its state for a time. Returns whether it begins or ends to hold. Takes up to a
    /// millisecond.
    pub fn follow(&self, wall: SystemTime, now: Instant) -> bool {
        let left = self
            .next_change(wall)
            .and_then(|at| at.duration_since(wall).ok());
        let changes_at = left.map_or(NEVER, |left| (now + left - self.state.began).as_secs());

        let holds = self.schedule.holds_at(wall);
        let word = if holds {
            changes_at | HOLDS
        } else {
            changes_at
        };
        let before = self.state.word.swap(word, Ordering::Relaxed);
        (before & HOLDS != 0) != holds
    }

    /// Whether the schedule holds at a time.
    pub fn holds_at(&self, time: SystemTime) -> bool {
        self.schedule.holds_at(time)
    }

    /// A time with the offset of the schedule's zone.
    pub fn local(&self, time: SystemTime) -> String {
        self.schedule.local(time)
    }

    /// The first change after a time; `None` if there is none.
    pub fn next_change(&self, now: SystemTime) -> Option<SystemTime> {
        self.schedule.next_change(now)
    }
}

/// By the schedule alone.
impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.schedule == other.schedule
    }
}

impl Eq for Scheduled {}

/// The strategies of a configuration.
#[derive(Debug, Default)]
pub struct Rules {
    strategies: Vec<Strategy>,
}

impl Rules {
    /// The rules of these strategies.
    pub const fn new(strategies: Vec<Strategy>) -> Self {
        Self { strategies }
    }

    /// The strategies, in the config's order.
    pub fn strategies(&self) -> &[Strategy] {
        &self.strategies
    }

    /// The decision of the strategy at `index` about a device, before its cap.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn decide(&self, index: usize, facts: &Facts<'_>) -> Decision {
        if facts.paused.contains(&index) {
            return Decision::no_bid(Reason::NotScheduled);
        }
        self.strategies[index].decide(facts)
    }
}

#[cfg(test)]
mod tests;
