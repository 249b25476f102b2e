//! The explanation of a request as data: serialized as JSON, or shown as text by `Display`.

use serde::{Serialize, Serializer};

use super::input::Encoding;
use super::trace::Note;
use crate::catalog::IdResult;
use crate::config::StrategyConfig;
use crate::strategy::{Attribute, BidValue, Membership, Tiers, Truth};

/// The reason of a strategy id that the config does not map; all other reasons are a decision's.
pub const NOT_CONFIGURED: &str = "not_configured";

/// The explanation of one request's answer.
#[derive(Debug, Serialize)]
pub struct Explanation {
    pub(super) platform: String,
    pub(super) kind: &'static str,
    pub(super) path: String,
    pub(super) body: BodyRead,
    pub(super) access: AccessChecked,
    pub(super) notes: Vec<Note>,
    pub(super) ids: Vec<IdExplained>,
    /// The device in the decision log, in 32 hex digits, if there is a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log_device: Option<String>,
    pub(super) audiences: Vec<AudienceExplained>,
    pub(super) strategies: Vec<StrategyExplained>,
    pub(super) failure: Option<FailureExplained>,
    pub(super) answer: ExplainedAnswer,
    /// Caps of bidding strategies that were not checked: a pod knows their counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unchecked_caps: Vec<String>,
}

impl Explanation {
    /// Marks the caps of these strategies as unchecked, where they might change a bid.
    #[must_use]
    pub fn without_caps(mut self, strategies: &[StrategyConfig]) -> Self {
        for one in self.strategies.iter().filter(|one| one.bid) {
            let mut configs = strategies.iter();
            let config = configs.find(|config| one.strategy.as_ref() == Some(&config.name));
            if let Some(cap) = config.and_then(|config| config.cap.clone()) {
                self.unchecked_caps.push(cap);
            }
        }
        self.unchecked_caps.sort();
        self.unchecked_caps.dedup();
        self
    }
}

#[derive(Debug, Serialize)]
pub struct BodyRead {
    pub read_as: Encoding,
    pub size_bytes: usize,
    /// `server.max_body`.
    pub max_bytes: usize,
}

/// Result of the header check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub enum AccessChecked {
    /// The platform has neither headers configured nor an enforced signature.
    Open,
    /// The platform has no headers configured, but its signature is enforced.
    BySignature,
    /// The decision port does not serve `/v1/decide` beside its platforms.
    Closed,
    /// Headers are configured, but the captured request was given without any.
    NotChecked,
    Admitted,
    Refused,
}

#[derive(Debug, Serialize)]
pub struct IdExplained {
    pub path: String,
    pub kind: &'static str,
    /// As received, with replacement characters for invalid UTF-8.
    pub value: String,
    pub result: IdResult,
    /// The hashed form, if the value differs from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canonical: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub md5: Option<String>,
    /// Four hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The device in the decision log, if each id of the request is a device of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_device: Option<String>,
    /// Memberships of this id alone, if its key is usable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<IdInAudience>,
}

#[derive(Debug, Serialize)]
pub struct IdInAudience {
    pub name: String,
    #[serde(serialize_with = "as_word")]
    pub answer: Option<Membership>,
    /// The value of this id, if it is a member with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<u8>,
}

#[derive(Debug, Serialize)]
pub struct AudienceExplained {
    pub name: String,
    pub available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<Unavailable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotExplained>,
    /// Membership of the whole device; null if it was not checked.
    #[serde(serialize_with = "as_word")]
    pub answer: Option<Membership>,
    /// The greatest value of the device's ids that are members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<u8>,
}

/// The reason why an audience is unavailable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Unavailable {
    /// Its snapshot, or the audience itself, has expired.
    Expired,
    /// It is disabled.
    Disabled,
    /// It was deleted.
    Deleted,
    /// Its snapshot is too old.
    TooOld { max_age_seconds: u64 },
    /// It has not been loaded.
    NotLoaded {
        /// The error of the last poll.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

#[derive(Debug, Serialize)]
pub struct SnapshotExplained {
    pub generation: u64,
    pub keys: u64,
    pub expected_fpr: f64,
    /// Whether it was built with a value per device.
    pub has_values: bool,
    pub age_seconds: u64,
}

#[derive(Debug, Serialize)]
pub struct StrategyExplained {
    /// The platform's id of the strategy.
    pub id: String,
    /// The id of the device, if each id of the request is a device of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Null if the id is not configured.
    pub strategy: Option<String>,
    pub exclude: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<WhenExplained>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleExplained>,
    /// Name of its cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<String>,
    /// Of an `unavailable` decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownExplained>,
    /// The device's parts in the experiments that it reads, as far as they are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<BucketExplained>,
    /// The values of its bids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueExplained>,
    /// The decision is counted, and answers nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    pub bid: bool,
    /// A decision's reason, or [`NOT_CONFIGURED`].
    pub reason: &'static str,
}

/// The condition of a strategy, and the changes that would change its truth.
#[derive(Debug, Serialize)]
pub struct WhenExplained {
    /// Such as `any(vip, none(banned))`.
    pub rule: String,
    /// Its audiences, some more than once.
    pub audiences: Vec<String>,
    pub truth: Truth,
    /// Each would change the truth: one membership, or else two.
    pub changes: Vec<Vec<OtherMembership>>,
}

/// The parts that leave a decision open.
#[derive(Debug, Default, Serialize)]
pub struct UnknownExplained {
    /// Those unavailable to the device.
    pub audiences: Vec<String>,
    /// Those that the request lacks.
    pub attributes: Vec<Attribute>,
    /// Those in which the device's bucket is unknown.
    pub experiments: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct OtherMembership {
    pub audience: String,
    /// The membership that the device does not have.
    #[serde(serialize_with = "as_word")]
    pub answer: Option<Membership>,
}

/// A device's part in an experiment.
#[derive(Debug, Serialize)]
pub struct BucketExplained {
    pub experiment: String,
    pub bucket: String,
    /// Kind of the id that decides; null if the device has none.
    pub unit: Option<&'static str>,
    /// The experiment's kinds: the first one that the device has decides.
    pub kinds: Vec<&'static str>,
}

/// An entry of a strategy's values.
#[derive(Debug, Serialize)]
pub struct ValueExplained {
    /// Null for any.
    pub audience: Option<String>,
    /// The values that members must have in the audience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tiers>,
    /// Part that the device must have in an experiment, as `EXPERIMENT:BUCKET`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    pub value: BidValue,
    /// Whether this bid has it.
    pub chosen: bool,
}

#[derive(Debug, Serialize)]
pub struct ScheduleExplained {
    pub holds: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_change_unix_seconds: Option<u64>,
    /// The next change in the schedule's zone.
    #[serde(skip)]
    pub next_change: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct FailureExplained {
    pub cause: &'static str,
    /// The decoder's message about an unreadable body, or the detail of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct ExplainedAnswer {
    pub status: u16,
    pub content_type: Option<&'static str>,
    pub size_bytes: usize,
    pub hex: String,
    pub text: String,
}

fn as_word<S: Serializer>(answer: &Option<Membership>, serializer: S) -> Result<S::Ok, S::Error> {
    answer.map(membership_word).serialize(serializer)
}

/// The JSON word of a membership.
pub const fn membership_word(membership: Membership) -> &'static str {
    match membership {
        Membership::Member => "member",
        Membership::NotMember => "not_member",
        Membership::Unavailable => "unavailable",
    }
}
