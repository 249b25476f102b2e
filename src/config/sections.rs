//! The tables of the configuration, key by key: what each accepts, and what it is without a word.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::reader::{Document, Section};
use super::{AudienceConfig, Config, IdsConfig, ServerConfig, StoreConfig, StrategyConfig, platform, trust};
use crate::strategy::Outcome;
use crate::sync::SwapMode;
use rtad_core::snapshot::AudienceName;

fn number(range: std::ops::RangeInclusive<usize>) -> impl Fn(&str) -> Option<usize> {
    move |text| text.parse().ok().filter(|number| range.contains(number))
}

pub(super) fn duration(range: std::ops::RangeInclusive<Duration>) -> impl Fn(&str) -> Option<Duration> {
    move |text| humantime::parse_duration(text).ok().filter(|duration| range.contains(duration))
}

fn size(text: &str) -> Option<u64> {
    text.parse::<bytesize::ByteSize>().ok().map(|size| size.as_u64()).filter(|size| *size > 0)
}

/// The strategy of a configuration that names neither audiences nor strategies.
pub(super) const DEFAULT_STRATEGY: &str = "new-users";

pub(super) const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const SIZE: &str = "a size, such as 64KiB or 8GiB";
const COUNT: &str = "a number from 1 to 1000000";
const OUTCOME: &str = "bid or no_bid";
pub(super) const NAME: &str = "1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit";

pub(super) fn read_all(document: &mut Document<'_>) -> Config {
    let mut section = document.section("server");
    let d = &mut *document;
    let server = ServerConfig {
        listen: section.read(d, "listen", ADDRESS, |text| text.parse().ok()).unwrap_or(LOOPBACK_8080),
        admin_listen: section
            .read(d, "admin_listen", ADDRESS, |text| text.parse().ok())
            .unwrap_or(LOOPBACK_9090),
        workers: section
            .read(d, "workers", "0 (one per CPU) or a number up to 1024", number(0..=1024))
            .unwrap_or(0),
        max_connections: section.read(d, "max_connections", COUNT, number(1..=1_000_000)).unwrap_or(20_000),
        idle_timeout: section
            .read(d, "idle_timeout", "a duration from 1s to 1h, such as 75s", duration(SECOND..=HOUR))
            .unwrap_or(Duration::from_secs(75)),
        max_body: section.read(d, "max_body", SIZE, size).unwrap_or(64 << 10),
        max_in_flight: section.read(d, "max_in_flight", COUNT, number(1..=1_000_000)).unwrap_or(4096),
        max_wait: section
            .read(
                d,
                "max_wait",
                "a duration from 1ms to 1h, such as 50ms",
                duration(Duration::from_millis(1)..=HOUR),
            )
            .unwrap_or(Duration::from_millis(50)),
        drain_timeout: section
            .read(
                d,
                "drain_timeout",
                "a duration from 0s to 1h, such as 20s",
                duration(Duration::ZERO..=HOUR),
            )
            .unwrap_or(Duration::from_secs(20)),
        watch_config: section.read(
            d,
            "watch_config",
            "a duration from 100ms to 1h, such as 10s",
            duration(SECOND / 10..=HOUR),
        ),
    };
    if server.listen == server.admin_listen && server.listen.port() != 0 {
        d.mistake(None, "server.admin_listen", "is server.listen as well", "a port of its own");
    }
    section.finish(d);
    let mut section = d.section("store");
    let url: Option<String> = section
        .read(d, "url", STORE, |text| rtad_store::Store::check_url(text).is_ok().then(|| text.to_owned()));
    if url.is_none() && !section.had("url") {
        d.mistake(None, "store.url", "is missing", STORE);
    }
    let swap_line = section.line_of("swap");
    let store = StoreConfig {
        url: url.unwrap_or_default(),
        poll_interval: section
            .read(
                d,
                "poll_interval",
                "a duration from 100ms to 1h, such as 10s",
                duration(SECOND / 10..=HOUR),
            )
            .unwrap_or(Duration::from_secs(10)),
        max_snapshot_size: section.read(d, "max_snapshot_size", SIZE, size).unwrap_or(8 << 30),
        stall_timeout: section
            .read(d, "stall_timeout", "a duration from 1s to 1h, such as 30s", duration(SECOND..=HOUR))
            .unwrap_or(rtad_store::STALL_TIMEOUT),
        swap: section.read(d, "swap", "whole or rolling", |text| text.parse().ok()).unwrap_or_default(),
        cache_dir: section
            .read(d, "cache_dir", "a directory, or nothing", |text| Some(text.to_owned()))
            .filter(|folder| !folder.is_empty())
            .map(PathBuf::from),
        public_keys: trust::read_public_keys(d, &mut section),
    };
    if store.swap == SwapMode::Rolling && store.cache_dir.is_none() {
        let accepted = "whole, or rolling with a store.cache_dir for chunks to be read from";
        d.mistake(swap_line, "store.swap", "is \"rolling\" without store.cache_dir", accepted);
    }
    section.finish(d);
    let mut section = d.section("ids");
    let ids =
        IdsConfig { blank: section.read_list(d, "blank", "a list of strings", |text| Some(text.to_owned())) };
    section.finish(d);
    let sections = d.sections("audience");
    // Whoever misspelt an audience's name is told so once, not again for each strategy that names it.
    let named: Vec<String> =
        sections.iter().filter_map(|section| section.text("name").map(str::to_owned)).collect();
    let audiences: Vec<AudienceConfig> =
        sections.into_iter().filter_map(|section| read_audience(d, section)).collect();
    let sections = d.sections("strategy");
    let mut places: Vec<String> =
        sections.iter().map(|section| section.text("name").unwrap_or_default().to_owned()).collect();
    if places.is_empty() && named.is_empty() {
        places.push(DEFAULT_STRATEGY.to_owned());
    }
    let strategies =
        sections.into_iter().filter_map(|section| read_strategy(d, section, &named)).collect::<Vec<_>>();
    duplicates(d, "audience", audiences.iter().map(|audience| audience.name.as_str()));
    duplicates(d, "strategy", strategies.iter().map(|strategy| strategy.name.as_str()));
    let platforms = platform::read_all(d, &places);
    let fingerprint = d.fingerprint();
    Config { server, store, ids, audiences, strategies, platforms, fingerprint }
}

const ADDRESS: &str = "an address and port, such as 0.0.0.0:8080 or [::1]:8080";
pub(super) const STORE: &str = rtad_store::ACCEPTED_URLS;
const LOOPBACK_8080: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
const LOOPBACK_9090: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9090);

fn read_audience(d: &mut Document<'_>, mut section: Section) -> Option<AudienceConfig> {
    let name = section.read_required(d, "name", NAME, |text| text.parse().ok());
    let required = section.read(d, "required", "true or false", |text| text.parse().ok()).unwrap_or(true);
    let max_age =
        section.read(d, "max_age", "a duration from 1s to 365d, such as 48h", duration(SECOND..=YEAR));
    section.finish(d);
    Some(AudienceConfig { name: name?, required, max_age })
}

fn read_strategy(d: &mut Document<'_>, mut section: Section, named: &[String]) -> Option<StrategyConfig> {
    let accepted = format!("a list of audiences of this file: {}", named.join(", "));
    let audience = |text: &str| named.iter().any(|name| name == text).then(|| text.parse().ok());
    let name = section
        .read_required(d, "name", NAME, |text| text.parse().ok().map(|name: AudienceName| name.into()));
    let exclude: Vec<AudienceName> =
        section.read_list(d, "exclude", &accepted, audience).into_iter().flatten().collect();
    let include: Vec<AudienceName> =
        section.read_list(d, "include", &accepted, audience).into_iter().flatten().collect();
    if !section.had("exclude") && !section.had("include") {
        d.mistake(
            section.line(),
            section.path(),
            "names no audience",
            "exclude or include with at least one",
        );
    }
    let outcome = |text: &str| text.parse().ok();
    let no_device = section.read(d, "no_device", OUTCOME, outcome).unwrap_or(Outcome::NoBid);
    let unavailable = section.read(d, "unavailable", OUTCOME, outcome).unwrap_or(Outcome::NoBid);
    section.finish(d);
    Some(StrategyConfig { name: name?, exclude, include, no_device, unavailable })
}

pub(super) fn duplicates<'a>(d: &mut Document<'_>, kind: &str, names: impl Iterator<Item = &'a str>) {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            d.mistake(None, kind, &format!("has the name {name:?} twice"), "a name of its own for each");
        }
    }
}
