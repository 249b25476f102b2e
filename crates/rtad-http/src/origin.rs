//! Cross-site requests and DNS rebinding: detection of requests that a browser sends for another
//! site's page.
//!
//! A page of another site cannot reach a port of the internal network, but the operator's browser
//! can, and it sends requests for that page. The page cannot read the answer to a `GET`, as no
//! route allows other origins. A `POST` must not cause a change either. Browsers state the origin
//! of such a request; other clients do not.
//!
//! A page that uses DNS rebinding has a name of its own that resolves to this port, so origin and
//! host are equal, and it can read answers. On plain HTTP a browser's `GET` has no header that
//! another client's has not. Every request must therefore name a host that no public name server
//! can resolve for others: an address, a name without dots or of a private domain, or a name of
//! the config. Requests without `Host` are not of browsers.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;

use crate::request_error::RequestError;

/// Domains that public name servers do not resolve: of RFC 6761, 6762 and 8375, of ICANN
/// (`internal`) and of Kubernetes.
const PRIVATE_DOMAINS: [&str; 5] = [".localhost", ".local", ".internal", ".home.arpa", ".svc"];

/// Public host names of a port.
#[derive(Debug)]
pub struct OwnHosts {
    names: Vec<String>,
    /// Where they are configured, for the error.
    setting: &'static str,
}

impl OwnHosts {
    /// The names of a setting.
    pub const fn new(setting: &'static str, names: Vec<String>) -> Self {
        Self { names, setting }
    }

    /// Refuses a cross-site request.
    ///
    /// # Errors
    ///
    /// [`RequestError::CrossSite`].
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), RequestError> {
        if is_cross_site(method, headers, &self.names) {
            return Err(RequestError::CrossSite(self.setting));
        }
        Ok(())
    }
}

/// Middleware that refuses cross-site requests.
///
/// # Errors
///
/// [`RequestError::CrossSite`].
pub async fn guard(
    State(hosts): State<Arc<OwnHosts>>,
    request: Request,
    next: Next,
) -> Result<Response, RequestError> {
    hosts.check(request.method(), request.headers())?;
    Ok(next.run(request).await)
}

/// Whether a request names a public host that is not in `hosts`, or a browser sent it with an
/// unsafe method for a page of another origin.
///
/// `Sec-Fetch-Site` decides if present, as it is right even behind a proxy that changes `Host`.
/// Older browsers, and plain HTTP to another machine, send `Origin` alone.
fn is_cross_site(method: &Method, headers: &HeaderMap, hosts: &[String]) -> bool {
    let text = |value: &HeaderValue| value.to_str().map(str::to_ascii_lowercase).ok();
    let host = headers.get(HOST).and_then(text);
    if host.as_deref().is_some_and(|host| !is_own(host, hosts)) {
        return true;
    }
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    if let Some(site) = headers.get("sec-fetch-site") {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let of_origin = text(origin).and_then(|origin| Some(origin.split_once("://")?.1.to_owned()));
    of_origin.is_none() || of_origin != host
}

/// Whether a `Host` cannot be the name of a foreign page.
fn is_own(host: &str, hosts: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_end_matches('.');
    let is_address = name
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
        .is_ok();
    is_address
        || !name.contains('.')
        || PRIVATE_DOMAINS.iter().any(|domain| name.ends_with(domain))
        || hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_site_requests_are_detected() {
        let own = ["console.example".to_owned()];
        let cases: [(&str, &str, &str, bool); 24] = [
            ("", "", "", false),
            ("", "", "rtad:9090", false),
            ("same-origin", "http://rtad:9090", "rtad:9090", false),
            // The proxy in front has another name.
            ("same-origin", "https://console.example", "rtad:9090", false),
            ("none", "", "rtad:9090", false),
            ("same-site", "http://rtad:3000", "rtad:9090", true),
            ("cross-site", "http://evil.example", "rtad:9090", true),
            ("cross-site", "", "rtad:9090", true),
            ("", "http://RTAD:9090", "rtad:9090", false),
            ("", "http://rtad:9091", "rtad:9090", true),
            ("", "http://evil.example", "rtad:9090", true),
            ("", "null", "rtad:9090", true),
            ("", "null", "null", true),
            ("", "http://rtad:9090", "", true),
            // DNS rebinding: the page's own name resolves to this port.
            (
                "same-origin",
                "http://evil.example:9090",
                "evil.example:9090",
                true,
            ),
            ("", "http://evil.example:9090", "evil.example:9090", true),
            ("", "http://evil.example.", "evil.example.", true),
            ("", "", "evil.example:9090", true),
            ("", "http://127.0.0.1:9090", "127.0.0.1:9090", false),
            ("same-origin", "http://[::1]:9090", "[::1]:9090", false),
            (
                "",
                "http://rtad-admin.rtad.svc:9090",
                "rtad-admin.rtad.svc:9090",
                false,
            ),
            (
                "",
                "http://pod.rtad.svc.cluster.local",
                "pod.rtad.svc.cluster.local",
                false,
            ),
            (
                "same-origin",
                "https://Console.Example",
                "Console.Example",
                false,
            ),
            (
                "",
                "http://console.example.evil.example",
                "console.example.evil.example",
                true,
            ),
        ];
        for (site, origin, host, is_refused) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in [("sec-fetch-site", site), ("origin", origin), ("host", host)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            assert_eq!(
                is_cross_site(&Method::POST, &headers, &own),
                is_refused,
                "{headers:?}"
            );
            // Other sites cannot read the answer to a GET; rebound names can.
            let is_refused = host.contains("evil");
            assert_eq!(
                is_cross_site(&Method::GET, &headers, &own),
                is_refused,
                "{headers:?}"
            );
        }
    }
}
