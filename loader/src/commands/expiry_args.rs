//! `--expires`: lifetime of a new generation.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;

#[derive(Debug, Clone, Copy, Default, Args)]
pub struct ExpiryArgs {
    /// Lifetime of the generation, such as 72h; after it pods stop serving the generation and no
    /// longer load it
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    expires: Option<Duration>,
}

impl ExpiryArgs {
    /// Expiry of a generation created at `now`, both in seconds since 1970.
    pub fn end(self, now: u64) -> Option<u64> {
        self.expires.map(|lifetime| now + lifetime.as_secs())
    }
}

fn parse_lifetime(text: &str) -> Result<Duration, &'static str> {
    const LIFETIMES: RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_secs(3650 * 24 * 3600);
    let lifetime = humantime::parse_duration(text)
        .ok()
        .filter(|lifetime| LIFETIMES.contains(lifetime));
    lifetime.ok_or("accepted: a duration from 1s to 3650d, such as 72h")
}
