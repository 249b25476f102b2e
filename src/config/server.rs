//! `[server]`: ports and limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use super::api::{self, ApiConfig};
use super::reader::Document;
use super::values::{
    HOUR, SECOND, SIZE, as_duration, as_optional_duration, as_size, duration, number, size,
};

/// Ports and limits. Changing any of them but `api.token_files` and `api.public` takes a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct ServerConfig {
    /// Address of the decision port.
    pub listen: SocketAddr,
    /// Address of the admin port. It has no authentication: keep it inside the network.
    pub admin_listen: SocketAddr,
    /// Public host names under which browsers reach the admin port, as through a proxy. Browsers'
    /// POSTs under other public names are refused, against DNS rebinding; addresses, names without
    /// dots and private domains are accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admin_hosts: Vec<String>,
    /// Threads that answer decisions; 0 = one per CPU of the cgroup quota.
    pub workers: usize,
    /// Open connections of the decision port. A further connection gets 503 and is closed.
    pub max_connections: usize,
    /// Idle timeout of a connection; closing takes up to 25 % longer. It also limits the time to
    /// receive a request head, and a request body if the timeout is under 5 s.
    #[serde(serialize_with = "as_duration")]
    pub idle_timeout: Duration,
    /// Largest request body. A larger one gets 413. The limit of a batch check is at least 2 MiB.
    #[serde(serialize_with = "as_size")]
    pub max_body: u64,
    /// Bytes of unanswered requests (heads and bodies) over all connections; the first 8 KiB of
    /// each connection do not count. At least `max_body`; batch checks take 2 MiB. A request over
    /// the limit gets 503, or the platform's unavailable answer.
    #[serde(serialize_with = "as_size")]
    pub max_buffered: u64,
    /// Requests that wait for the rest of their bodies, half of them of one client address at most.
    /// A further incomplete request is shed; complete requests are answered in any case.
    pub max_in_flight: usize,
    /// Longest queueing delay of a batch check. One that waited longer for its worker is shed.
    #[serde(serialize_with = "as_duration")]
    pub max_wait: Duration,
    /// Time limit for requests in progress and open connections after SIGTERM.
    #[serde(serialize_with = "as_duration")]
    pub drain_timeout: Duration,
    /// Time between checks of the configuration file, and of the secrets, keys and `.proto` files
    /// that it names. A change causes a reload. Unset = reload only on SIGHUP or `POST /v1/reload`.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub watch_config: Option<Duration>,
    /// Access to rtad's own routes.
    #[serde(skip_serializing_if = "ApiConfig::is_default")]
    pub api: ApiConfig,
}

impl ServerConfig {
    /// Whether a change from `other` takes a restart. All but the credentials of the API does.
    pub fn needs_restart(&self, other: &Self) -> bool {
        let same_api = Self { api: other.api.clone(), ..self.clone() };
        same_api != *other || self.api.listen != other.api.listen
    }
}

const ADDRESS: &str = "an address and port, such as 0.0.0.0:8080 or [::1]:8080";
const COUNT: &str = "a number from 1 to 1000000";
/// A limit that holds a request with one id of each kind.
const MIN_BODY: u64 = 1 << 10;
const MILLISECOND: Duration = Duration::from_millis(1);

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn host_name(text: &str) -> Option<String> {
    let is_name = |text: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        !text.is_empty() && text.bytes().all(is_part)
    };
    is_name(text).then(|| text.to_owned())
}

/// Whether only one of the addresses can be bound: the port is the same, and one address includes
/// the other. `[::]` includes every IPv4 address.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let includes =
        |a: IpAddr, b: IpAddr| a == b || a.is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    a.port() == b.port() && a.port() != 0 && (includes(a.ip(), b.ip()) || includes(b.ip(), a.ip()))
}

pub(super) fn read(d: &mut Document<'_>) -> ServerConfig {
    let mut section = d.section("server");
    let address = |text: &str| text.parse().ok();
    let count = || number(1..=1_000_000);
    let server = ServerConfig {
        listen: section.read(d, "listen", ADDRESS, address).unwrap_or(loopback(8080)),
        admin_listen: section.read(d, "admin_listen", ADDRESS, address).unwrap_or(loopback(9090)),
        admin_hosts: section.read_list(d, "admin_hosts", "a list of host names", host_name),
        workers: section
            .read(d, "workers", "0 (one per CPU) or a number up to 1024", number(0..=1024))
            .unwrap_or(0),
        max_connections: section.read(d, "max_connections", COUNT, count()).unwrap_or(20_000),
        idle_timeout: section
            .read(
                d,
                "idle_timeout",
                "a duration from 1s to 1h, such as 75s",
                duration(SECOND..=HOUR),
            )
            .unwrap_or(Duration::from_secs(75)),
        max_body: section
            .read(d, "max_body", "a size from 1KiB, such as 64KiB", |text| {
                size(text).filter(|bytes| *bytes >= MIN_BODY)
            })
            .unwrap_or(64 << 10),
        max_buffered: section.read(d, "max_buffered", SIZE, size).unwrap_or(64 << 20),
        max_in_flight: section.read(d, "max_in_flight", COUNT, count()).unwrap_or(4096),
        max_wait: section
            .read(
                d,
                "max_wait",
                "a duration from 1ms to 1h, such as 50ms",
                duration(MILLISECOND..=HOUR),
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
        api: api::read(d, &mut section, ADDRESS),
    };
    if server.max_buffered < server.max_body {
        d.mistake(
            None,
            "server.max_buffered",
            "is less than server.max_body",
            "at least server.max_body, as one body may have that size",
        );
    }
    let own = "a port of its own";
    if overlap(server.listen, server.admin_listen) {
        d.mistake(None, "server.admin_listen", "is server.listen as well", own);
    }
    if let Some(api) = server.api.listen {
        if overlap(api, server.listen) {
            d.mistake(None, "server.api.listen", "is server.listen as well", own);
        }
        if overlap(api, server.admin_listen) {
            d.mistake(None, "server.api.listen", "is server.admin_listen as well", own);
        }
    }
    section.finish(d);
    server
}
