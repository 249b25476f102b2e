//! `[server]`: ports and limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rtad_config::Document;
use rtad_config::values::{
    HOUR, SECOND, address, as_optional_time, as_size, as_time, number, size, time,
};
use serde::{Deserialize, Serialize};

use super::api::ApiConfig;

/// Ports and limits. Changing any of them but `api` takes a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address of the decision port.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Address of the admin port. It has no authentication: keep it inside the network.
    #[serde(deserialize_with = "address")]
    pub admin_listen: SocketAddr,
    /// Address of a port for `/metrics`, `/livez` and `/readyz` alone, for scrapers and probes that
    /// must not reach the admin port. Unset = none.
    #[serde(deserialize_with = "address")]
    pub metrics_listen: Option<SocketAddr>,
    /// Public host names under which clients reach the admin port, as through a proxy. Requests
    /// under other public names are refused, against DNS rebinding, but for `/livez` and `/readyz`.
    /// Addresses, names without dots and private domains are accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admin_hosts: Vec<String>,
    /// Threads that answer decisions; 0 = one per CPU of the cgroup quota.
    #[serde(deserialize_with = "number::<_, _, 0, 1024>")]
    pub workers: usize,
    /// Open connections of the decision port. A further connection gets 503 and is closed.
    #[serde(deserialize_with = "number::<_, _, 1, 1_000_000>")]
    pub max_connections: usize,
    /// Idle timeout of a connection; closing takes up to 25 % longer. It also limits the time of a
    /// request head, and of a body if it is under 5 s.
    #[serde(
        deserialize_with = "time::<_, _, SECOND, HOUR>",
        serialize_with = "as_time"
    )]
    pub idle_timeout: Duration,
    /// Largest request body. A larger one gets 413. The limit of a batch check is at least 2 MiB.
    #[serde(deserialize_with = "size::<_, 1024>", serialize_with = "as_size")]
    pub max_body: u64,
    /// Bytes of request bodies that did not arrive with their heads. Each counts with its declared
    /// length, without one with the largest allowed. At least `max_body`; batch checks may have
    /// half of it. A request over the limit gets 503, or the platform's unavailable answer.
    /// Complete requests are always answered.
    #[serde(deserialize_with = "size::<_, 1>", serialize_with = "as_size")]
    pub max_buffered: u64,
    /// Time limit for requests in progress and open connections after SIGTERM.
    #[serde(deserialize_with = "time::<_, _, 0, HOUR>", serialize_with = "as_time")]
    pub drain_timeout: Duration,
    /// Time between checks of the configuration file, and of the secrets, keys and `.proto` files
    /// that it names. A change causes a reload. Unset = reload only on SIGHUP or `POST /v1/reload`.
    #[serde(
        deserialize_with = "time::<_, _, 100, HOUR>",
        serialize_with = "as_optional_time"
    )]
    pub watch_config: Option<Duration>,
    /// Access to rtad's own routes.
    #[serde(skip_serializing_if = "ApiConfig::is_default")]
    pub api: ApiConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: loopback(8080),
            admin_listen: loopback(9090),
            metrics_listen: None,
            admin_hosts: Vec::new(),
            workers: 0,
            max_connections: 20_000,
            idle_timeout: Duration::from_secs(75),
            max_body: 64 << 10,
            max_buffered: 64 << 20,
            drain_timeout: Duration::from_secs(20),
            watch_config: None,
            api: ApiConfig::default(),
        }
    }
}

impl ServerConfig {
    /// Whether a change from `other` takes a restart. All but the credentials of the API does.
    pub fn needs_restart(&self, other: &Self) -> bool {
        let same_api = Self {
            api: other.api.clone(),
            ..self.clone()
        };
        same_api != *other
    }

    pub(super) fn check(&mut self, d: &mut Document<'_>) {
        for (index, host) in self.admin_hosts.iter().enumerate() {
            let is_name = host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
            if host.is_empty() || !is_name {
                d.reject(&format!("server.admin_hosts[{index}]"), "a host name");
            }
        }

        if self.max_buffered < self.max_body {
            let accepted = "at least server.max_body, as one body may have that size";
            d.mistake(
                "server.max_buffered",
                "is less than server.max_body",
                accepted,
            );
        }

        let mut ports = vec![
            ("server.listen", self.listen),
            ("server.admin_listen", self.admin_listen),
        ];
        if let Some(address) = self.metrics_listen {
            ports.push(("server.metrics_listen", address));
        }
        for (index, (key, address)) in ports.iter().enumerate() {
            for (other, other_address) in &ports[..index] {
                if overlap(*address, *other_address) && !d.has_mistake(other) {
                    d.mistake(key, &format!("is {other} as well"), "a port of its own");
                }
            }
        }

        self.api.check(d);
    }
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Whether only one of the addresses can be bound: the port is the same, and one address includes
/// the other. `[::]` includes every IPv4 address.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let includes =
        |a: IpAddr, b: IpAddr| a == b || a.is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    a.port() == b.port() && a.port() != 0 && (includes(a.ip(), b.ip()) || includes(b.ip(), a.ip()))
}
