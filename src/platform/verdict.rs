//! Verdicts: the strategies' decisions about a request, and the cache time of an answer with them.

use std::time::Duration;

use smallvec::SmallVec;

use super::read::Known;
use crate::config::PlatformConfig;
use crate::strategy::{Decision, Reason};

/// A strategy's decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the strategy in the catalog.
    pub strategy: usize,
    /// Its decision.
    pub decision: Decision,
    /// Time until its cap counts anew or its schedule changes, zero if each request decides anew;
    /// `None` otherwise. It is the upper limit of a cache time in the answer.
    pub changes_in: Option<Duration>,
    /// Index of the tag of the device's bucket.
    pub tag: Option<u16>,
}

/// The verdicts about a request, one per strategy.
pub type Verdicts = SmallVec<[Verdict; 8]>;

/// Whether a strategy bids.
#[inline]
pub fn bids(verdicts: &[Verdict], id: Option<Known>) -> bool {
    verdict_of(verdicts, id).is_some_and(Verdict::bids)
}

/// The verdict about a strategy id.
#[inline]
pub fn verdict_of(verdicts: &[Verdict], id: Option<Known>) -> Option<&Verdict> {
    let id = id?;
    verdicts
        .iter()
        .find(|verdict| verdict.strategy == id.strategy)
}

impl Verdict {
    /// Whether it is a bid.
    #[inline]
    pub fn bids(&self) -> bool {
        self.decision.is_bid()
    }
}

/// Seconds for which the platform may cache an answer; `None` = the platform decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTimes {
    /// Seconds of an answer with a bid.
    pub bid: Option<u32>,
    /// Seconds of an answer without a bid.
    pub no_bid: Option<u32>,
}

impl From<&PlatformConfig> for CacheTimes {
    fn from(config: &PlatformConfig) -> Self {
        Self {
            bid: config.bid_cache.map(whole_seconds),
            no_bid: config.no_bid_cache.map(whole_seconds),
        }
    }
}

fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Cache time of an answer without a bid that a cap or a schedule refuses, if none is configured:
/// at most until the cap's period ends or the schedule changes.
const REFUSED_CACHE: u32 = 3600;

impl CacheTimes {
    /// The cache time of an answer with these verdicts. An answer that depends on a missing
    /// audience or grant carries none: a short outage would be cached for a day. Nor
    /// does one with a default value in place of one that depends on a missing audience. An answer
    /// without a decision carries none either, as it does not depend on the device.
    ///
    /// The time in an answer of a strategy with a cap ends with the cap's period: a bid cached for
    /// longer would not be counted in the next one, a cached `capped` would refuse a device that it
    /// admits. It ends with the next change of a schedule too. An answer without a bid always
    /// carries a time if it has `capped` or `not_scheduled`; one with a bid only if one is
    /// configured.
    pub(super) fn of(&self, bids: bool, verdicts: &[Verdict]) -> Option<u32> {
        if verdicts.is_empty() {
            return None;
        }
        let mut is_refused = false;
        let mut ends_in = None;
        for Verdict {
            decision,
            changes_in,
            ..
        } in verdicts
        {
            match decision.reason {
                Reason::Unavailable | Reason::NoGrant => return None,
                _ if decision.value.is_fallback => return None,
                Reason::Capped | Reason::NotScheduled => is_refused = true,
                Reason::Member
                | Reason::NotMember
                | Reason::NoDevice
                | Reason::Rule
                | Reason::Bucket => {}
            }
            ends_in = ends_in.into_iter().chain(*changes_in).min();
        }

        let configured = if bids { self.bid } else { self.no_bid };
        let usual = configured.or_else(|| (is_refused && !bids).then_some(REFUSED_CACHE));
        let Some(left) = ends_in else { return usual };
        // Platforms read 0 as "not given".
        let left = whole_seconds(left).max(1);
        usual.map(|seconds| seconds.min(left))
    }
}
