//! Facts: everything that the decisions about one device depend on, attributes of its request among
//! them.
//!
//! Whoever decides fills them first: a request from audiences and the clock, a replay from a row of
//! the log, a check of a config with chosen values. The decisions are pure functions of them. The
//! price: a strategy that an excluding audience decides still looks up its other audiences.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use strum::VariantArray as _;

use super::Membership;
use super::experiment::{Assignment, Assignments};

/// The ids of a device that were looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookedUp {
    /// All that are usable.
    All,
    /// The first ones. Another id might be a member, so they prove membership only.
    TooMany,
    /// None, as none is usable.
    None,
    /// None, as the request is unreadable.
    Unread,
}

/// An audience's answer about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudienceAnswer {
    /// Membership, by the ids that were looked up.
    pub membership: Membership,
    /// The value of a member.
    pub tier: Tier,
}

/// The value of a member of an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// From 0 to 15.
    Value(u8),
    /// It has none.
    None,
    /// One of the device's ids, which was not read, may have a greater one.
    Unknown,
}

/// Values of a request's attributes, by index in [`Attribute::ALL`]; `None` if one is absent.
pub type AttributeValues<'a> = [Option<AttributeValue<'a>>; Attribute::ALL.len()];

/// Audiences whose answers need no allocation.
const INLINE_AUDIENCES: usize = 32;

/// The facts about one device.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The ids that the facts stand for.
    pub looked_up: LookedUp,
    /// Attributes of the request.
    pub attributes: AttributeValues<'a>,
    /// The device's parts, by index of the experiment. A part that is missing is unknown.
    pub parts: Assignments,
    /// Indexes of the strategies whose schedule does not hold.
    pub paused: SmallVec<[usize; 4]>,
    /// Memberships by index of the audience; `None` if it was not asked. Apart from the values, as
    /// filling both costs every decision 40 instructions.
    memberships: SmallVec<[Option<Membership>; INLINE_AUDIENCES]>,
    /// Values of members by index of the audience; empty if no member has any.
    tiers: SmallVec<[Tier; INLINE_AUDIENCES]>,
}

impl<'a> Facts<'a> {
    /// Facts without an answer of one of these audiences.
    #[inline]
    pub fn new(looked_up: LookedUp, audiences: usize) -> Self {
        let memberships = if audiences <= INLINE_AUDIENCES {
            SmallVec::from_buf_and_len([None; INLINE_AUDIENCES], audiences)
        } else {
            smallvec![None; audiences]
        };
        Self {
            looked_up,
            attributes: AttributeValues::default(),
            parts: Assignments::new(),
            paused: SmallVec::new(),
            memberships,
            tiers: SmallVec::new(),
        }
    }

    /// Sets the answer of an audience.
    ///
    /// # Panics
    ///
    /// If there is no such audience.
    #[inline]
    pub fn set_answer(&mut self, audience: usize, answer: AudienceAnswer) {
        self.memberships[audience] = Some(answer.membership);
        if answer.tier != Tier::None && self.tiers.is_empty() {
            self.tiers.resize(self.memberships.len(), Tier::None);
        }
        if let Some(tier) = self.tiers.get_mut(audience) {
            *tier = answer.tier;
        }
    }

    /// Sets the membership in an audience, without a value.
    ///
    /// # Panics
    ///
    /// If there is no such audience.
    pub fn set_membership(&mut self, audience: usize, membership: Membership) {
        let tier = Tier::None;
        self.set_answer(audience, AudienceAnswer { membership, tier });
    }

    /// The answer of an audience; `None` if it was not asked.
    #[inline]
    pub fn answer_of(&self, audience: usize) -> Option<AudienceAnswer> {
        let membership = self.memberships[audience]?;
        let tier = self.tiers.get(audience).copied().unwrap_or(Tier::None);
        Some(AudienceAnswer { membership, tier })
    }

    /// Membership of the device in an audience. One that was not asked is unavailable.
    #[inline]
    pub fn membership(&self, audience: usize) -> Membership {
        let Some(membership) = self.memberships[audience] else {
            return Membership::Unavailable;
        };
        match membership {
            // An id that was not looked up may be a member.
            Membership::NotMember if self.looked_up == LookedUp::TooMany => Membership::Unavailable,
            membership => membership,
        }
    }

    /// The value of a member of an audience. An id that was not looked up may have a greater one.
    #[inline]
    pub fn tier(&self, audience: usize) -> Tier {
        match self.answer_of(audience) {
            Some(answer) if self.looked_up == LookedUp::All => answer.tier,
            _ => Tier::Unknown,
        }
    }

    /// The value of an attribute; `None` if it is absent.
    #[inline]
    pub fn attribute(&self, attribute: Attribute) -> Option<AttributeValue<'a>> {
        self.attributes[attribute as usize]
    }

    /// The device's part in an experiment.
    #[inline]
    pub fn part(&self, experiment: usize) -> Assignment {
        let part = self.parts.get(experiment);
        part.copied().unwrap_or(Assignment::Unknown)
    }
}

/// A fact that a request carries beside the device's ids.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Attribute {
    /// Operating system: one of [`OS_WORDS`].
    Os,
    /// The app or site that shows the ad.
    App,
    /// The slot of the ad.
    Slot,
    /// The region of the device.
    Region,
    /// The kind of request.
    RequestType,
}

/// Operating systems.
pub const OS_WORDS: [&str; 7] = [
    "ios", "android", "harmony", "windows", "mac", "symbian", "java",
];

/// The operating system that a text names, in any case and with spaces around it.
pub fn os_word(text: &[u8]) -> Option<&'static str> {
    let text = text.trim_ascii();
    let mut words = OS_WORDS.into_iter();
    words.find(|word| text.eq_ignore_ascii_case(word.as_bytes()))
}

/// Hides the text: what a request carries must not reach a log.
impl fmt::Debug for AttributeValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttributeValue")
    }
}

impl Attribute {
    /// All attributes, in the order of answers.
    pub const ALL: [Self; 5] = *Self::VARIANTS.as_array().expect("every variant");

    /// The word in the config and in answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a device's requests differ in it: an answer that depends on it is not the device's.
    pub const fn is_of_request(self) -> bool {
        !matches!(self, Self::Os)
    }
}

/// A value as a request carries it.
#[derive(Clone, Copy)]
pub enum AttributeValue<'a> {
    /// A text.
    Text(&'a [u8]),
    /// A number.
    Number(i64),
}

/// A value that a condition accepts: a text, or a number in decimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    text: Box<str>,
    number: Option<i64>,
}

impl Accepted {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is the value of a request, in any case and with spaces around it.
    pub(super) fn is(&self, value: AttributeValue<'_>) -> bool {
        match value {
            AttributeValue::Text(text) => {
                text.trim_ascii().eq_ignore_ascii_case(self.text.as_bytes())
            }
            AttributeValue::Number(number) => self.number == Some(number),
        }
    }
}

impl From<&str> for Accepted {
    fn from(text: &str) -> Self {
        let number = text
            .trim_ascii()
            .parse()
            .ok()
            .filter(|number: &i64| number.to_string() == text.trim_ascii());
        Self {
            text: text.trim_ascii().into(),
            number,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Facts of a device with these memberships, whose ids were all looked up.
    pub fn facts(memberships: &[Membership]) -> Facts<'static> {
        let mut facts = Facts::new(LookedUp::All, memberships.len());
        for (audience, membership) in memberships.iter().enumerate() {
            facts.set_membership(audience, *membership);
        }
        facts
    }

    #[test]
    fn ids_that_were_not_looked_up_may_be_members_or_have_a_greater_value() {
        let mut facts = facts(&[Membership::Member, Membership::NotMember]);
        let tier = Tier::Value(7);
        let membership = Membership::Member;
        facts.set_answer(0, AudienceAnswer { membership, tier });
        assert_eq!(facts.membership(1), Membership::NotMember);
        assert_eq!(facts.tier(0), tier);

        facts.looked_up = LookedUp::TooMany;
        assert_eq!(facts.membership(0), Membership::Member);
        assert_eq!(facts.membership(1), Membership::Unavailable);
        assert_eq!(facts.tier(0), Tier::Unknown);
    }

    #[test]
    fn audience_that_was_not_asked_is_unavailable() {
        let facts = Facts::new(LookedUp::All, 1);
        assert_eq!(facts.membership(0), Membership::Unavailable);
        assert_eq!(facts.tier(0), Tier::Unknown);
        assert_eq!(facts.part(0), Assignment::Unknown);
    }
}
