//! Leases of units of a quota: all members together get no more than its total.

use std::fmt;
use std::time::{Duration, SystemTime};

use redis::Value;
use tokio::time::Instant;

use crate::command::KeyCommand;
use crate::config::RedisConfig;
use crate::connection::Connector;
use crate::error::RedisError;
use crate::name::Names;
use crate::node::Limits;
use crate::router::Router;

/// Time that a quota's record outlives it, for members whose clocks are late.
const GRACE: Duration = Duration::from_secs(24 * 3600);

/// A quota: a name, and what its members may have together.
#[derive(Clone, Copy, Debug)]
pub struct Quota<'a> {
    /// Its name, different for each period.
    pub name: &'a str,
    /// Units of all members together.
    pub total: u64,
    /// End of the period. Redis deletes the quota a day later.
    pub end: SystemTime,
}

/// Answer to a call for units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Units of this call that the caller has now in addition.
    pub granted: u64,
    /// Units of earlier calls without an answer, if all recorded units are within the total.
    pub unanswered: u64,
    /// Units of all members so far, with wasted ones and those beyond the total.
    pub all: u64,
    /// Units recorded for this member: `recorded` of its next call.
    pub recorded: u64,
    /// The server had lost units of this member. They were added again, and none granted: wait some
    /// seconds, until the other members have called too.
    pub was_lost: bool,
}

/// Leases of quotas, shared through Redis by all processes with the same URL, namespace and name.
pub struct RedisLeases {
    namespace: String,
    group: String,
    router: Router,
    limits: Limits,
}

impl RedisLeases {
    /// Validates the config and reads the CA file. Connects with the first call, and again after a
    /// lost connection: the server need not run yet.
    ///
    /// # Errors
    ///
    /// [`RedisError::Config`].
    pub fn connect(config: &RedisConfig) -> Result<Self, RedisError> {
        let target = config.target()?;
        let limits = Limits { connect: config.connect_timeout, response: config.response_timeout };
        let connector = Connector::new(&target, config.ca_file.as_deref())?;
        Ok(Self {
            namespace: config.namespace.clone(),
            group: config.window.clone(),
            router: Router::new(&target, connector, limits),
            limits,
        })
    }

    /// Leases up to `units` of a quota to a member; 0 only asks. `recorded` is that of the member's
    /// last answer, 0 before the first. One round trip, about 200 bytes; another one after a loss.
    /// A call with units is not repeated after a lost connection.
    ///
    /// # Errors
    ///
    /// No units were granted, but they may be recorded: call with 0 units until there is an answer.
    /// The [`Lease::unanswered`] of [`RedisError::Unreachable`] and [`RedisError::Timeout`] may be
    /// used. That of a refusal may not: the member's record may have units that the sum of all
    /// members lacks.
    pub async fn take(
        &self,
        quota: Quota<'_>,
        member: u64,
        recorded: u64,
        units: u64,
    ) -> Result<Lease, RedisError> {
        let deadline = self.deadline();
        let (all, own) = self.add(quota, member, signed(units), deadline).await?;
        let expected = recorded.saturating_add(units);
        if own < expected {
            let missing = signed(expected - own);
            let (all, recorded) = self.add(quota, member, missing, deadline).await?;
            return Ok(Lease { granted: 0, unanswered: 0, all, recorded, was_lost: true });
        }
        let (granted, unanswered) = if all <= quota.total {
            // All recorded units of all members are within the total.
            (units, own - expected)
        } else {
            let before = all.saturating_sub(units);
            (quota.total.saturating_sub(before).min(units), 0)
        };
        Ok(Lease { granted, unanswered, all, recorded: own, was_lost: false })
    }

    /// Gives back units that the member was granted and has not used; `recorded` is that of its
    /// last answer. Nothing is given back to a server that has lost them. Two round trips, not
    /// repeated after a lost connection.
    ///
    /// # Errors
    ///
    /// The units may be wasted.
    pub async fn give_back(
        &self,
        quota: Quota<'_>,
        member: u64,
        recorded: u64,
        units: u64,
    ) -> Result<(), RedisError> {
        let deadline = self.deadline();
        let (_, own) = self.add(quota, member, 0, deadline).await?;
        if own >= recorded {
            self.add(quota, member, -signed(units), deadline).await?;
        }
        Ok(())
    }

    /// The sums of all members and of this one.
    async fn add(
        &self,
        quota: Quota<'_>,
        member: u64,
        units: i64,
        deadline: Instant,
    ) -> Result<(u64, u64), RedisError> {
        let left = quota.end.duration_since(SystemTime::now()).unwrap_or_default();
        let seconds = left.saturating_add(GRACE).as_secs();
        let command = KeyCommand::Lease { member: format!("{member:016x}"), units, seconds };
        let name = Names::quota(&self.namespace, &self.group, quota.name);
        let answers = self.router.run(&command, &[name], deadline).await?;
        match answers.first().map(Vec::as_slice) {
            Some(&[Value::Int(all @ 0..), Value::Int(own @ 0..), Value::Int(_)]) => {
                Ok((all.cast_unsigned(), own.cast_unsigned()))
            }
            _ => Err(RedisError::other(self.router.server(), "unexpected answer to HINCRBY")),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.connect + self.limits.response
    }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

impl fmt::Debug for RedisLeases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut leases = formatter.debug_struct("RedisLeases");
        leases.field("server", &self.router.server()).field("namespace", &self.namespace);
        leases.finish_non_exhaustive()
    }
}
