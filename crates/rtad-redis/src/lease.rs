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
/// Field of a quota with the units of all members.
const ALL: &str = "all";

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

/// A member of a quota, and what is known of the server's record of it.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its name: a number.
    pub id: u64,
    /// [`Lease::recorded`] of its last answer, 0 before the first.
    pub recorded: u64,
    /// Whether a call since then was refused. The member's record may have units that the sum of
    /// all members lacks, so those are neither granted nor given back.
    pub is_doubtful: bool,
}

/// Answer to a call for units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Units that the caller has now in addition, of this call and of earlier ones without an
    /// answer.
    pub granted: u64,
    /// Units of all members so far, with wasted ones and those beyond the total that other members
    /// are about to give back.
    pub all: u64,
    /// Units recorded for this member: those of its next call.
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
        let limits = Limits {
            connect: config.connect_timeout,
            response: config.response_timeout,
        };
        let connector = Connector::new(&target, config.ca_file.as_deref())?;
        Ok(Self {
            namespace: config.namespace.clone(),
            group: config.window.clone(),
            router: Router::new(&target, connector, limits),
            limits,
        })
    }

    /// Leases up to `units` of a quota to a member; 0 only asks. One round trip, about 200 bytes;
    /// another one after a loss, two to give back units beyond the total: they would hide units
    /// that other members give back later. A call with units is not repeated after a lost
    /// connection.
    ///
    /// # Errors
    ///
    /// No units were granted, but they may be recorded: call with 0 units until there is an answer,
    /// as doubtful after other errors than [`RedisError::Unreachable`] and [`RedisError::Timeout`].
    pub async fn take(
        &self,
        quota: Quota<'_>,
        member: Member,
        units: u64,
    ) -> Result<Lease, RedisError> {
        let deadline = self.deadline();
        let (all, own) = self.add(quota, member.id, units, deadline).await?;
        let (held, expected) = (signed(member.recorded), signed(member.recorded + units));
        if own < expected {
            let missing = u64::try_from(held - own).unwrap_or(0);
            let (all, own) = match missing {
                0 => (all, own),
                missing => self.add(quota, member.id, missing, deadline).await?,
            };
            return Ok(Lease {
                granted: 0,
                all,
                recorded: unsigned(own),
                was_lost: true,
            });
        }
        // Units of earlier calls without an answer.
        let earlier = if member.is_doubtful {
            0
        } else {
            unsigned(own - expected)
        };
        let granted = if all <= quota.total {
            // All recorded units of all members are within the total.
            units + earlier
        } else {
            let before = all.saturating_sub(units);
            quota.total.saturating_sub(before).min(units)
        };
        let rest = units + earlier - granted;
        if rest > 0 {
            // If they are not given back they stay recorded, as units of a call without an answer.
            let _ = self.subtract(quota, member.id, rest, self.deadline()).await;
        }
        let (all, recorded) = (all.saturating_sub(rest), unsigned(own).saturating_sub(rest));
        Ok(Lease {
            granted,
            all,
            recorded,
            was_lost: false,
        })
    }

    /// Gives back units that the member was granted and has not used, and those of calls without an
    /// answer. Nothing is given back to a server that has lost them. Three round trips, not
    /// repeated after a lost connection.
    ///
    /// # Errors
    ///
    /// The units may be wasted.
    pub async fn give_back(
        &self,
        quota: Quota<'_>,
        member: Member,
        units: u64,
    ) -> Result<(), RedisError> {
        let deadline = self.deadline();
        let (_, own) = self.add(quota, member.id, 0, deadline).await?;
        let unknown = own - signed(member.recorded);
        if unknown < 0 {
            return Ok(());
        }
        let unknown = if member.is_doubtful {
            0
        } else {
            unsigned(unknown)
        };
        match units + unknown {
            0 => Ok(()),
            units => self.subtract(quota, member.id, units, deadline).await,
        }
    }

    /// Adds units; returns the sums of all members and of this one.
    async fn add(
        &self,
        quota: Quota<'_>,
        member: u64,
        units: u64,
        deadline: Instant,
    ) -> Result<(u64, i64), RedisError> {
        // The order protects the quota: a failover loses the last writes. It may lose the member's
        // record of units that the sum has, but not the reverse.
        let fields = vec![ALL.to_owned(), field_of(member)];
        let sums = self
            .increment(quota, fields, signed(units), deadline)
            .await?;
        match sums[..] {
            [all, own] if all >= 0 => Ok((all.cast_unsigned(), own)),
            _ => Err(self.unexpected()),
        }
    }

    /// Subtracts units. The sum of all members follows an answer about the member's own: it never
    /// lacks units that the member may be granted.
    async fn subtract(
        &self,
        quota: Quota<'_>,
        member: u64,
        units: u64,
        deadline: Instant,
    ) -> Result<(), RedisError> {
        let units = -signed(units);
        let own = self
            .increment(quota, vec![field_of(member)], units, deadline)
            .await?;
        // A negative record is that of a server that has lost the units meanwhile.
        if own.first().is_some_and(|own| *own >= 0) {
            self.increment(quota, vec![ALL.to_owned()], units, deadline)
                .await?;
        }
        Ok(())
    }

    /// Increments fields of a quota by units; returns their values.
    async fn increment(
        &self,
        quota: Quota<'_>,
        fields: Vec<String>,
        units: i64,
        deadline: Instant,
    ) -> Result<Vec<i64>, RedisError> {
        let left = quota
            .end
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        let seconds = left.saturating_add(GRACE).as_secs();
        let command = KeyCommand::Lease {
            fields,
            units,
            seconds,
        };
        let name = Names::quota(&self.namespace, &self.group, quota.name);
        let answers = self.router.run(&command, &[name], deadline).await?;
        let values = answers.first().and_then(|answers| answers.split_last());
        let number = |value: &Value| match value {
            Value::Int(number) => Some(*number),
            _ => None,
        };
        let sums = values.and_then(|(_, sums)| sums.iter().map(number).collect());
        sums.ok_or_else(|| self.unexpected())
    }

    fn unexpected(&self) -> RedisError {
        RedisError::other(self.router.server(), "unexpected answer to HINCRBY")
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.connect + self.limits.response
    }
}

fn field_of(member: u64) -> String {
    format!("{member:016x}")
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

fn unsigned(units: i64) -> u64 {
    u64::try_from(units).unwrap_or(0)
}

impl fmt::Debug for RedisLeases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut leases = formatter.debug_struct("RedisLeases");
        leases
            .field("server", &self.router.server())
            .field("namespace", &self.namespace);
        leases.finish_non_exhaustive()
    }
}
