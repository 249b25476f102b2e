//! Cross-site request forgery: detection of requests that a browser sends for another site's page.
//!
//! The admin port has no login. A page of another site cannot reach it, but the operator's browser
//! can and sends requests for that page. The page cannot read the answer to a `GET`, as no route
//! allows other origins. It must not cause a change either. Browsers state the origin of such a
//! request; other clients do not.
//!
//! DNS rebinding is not detected: the browser sends the rebound name as origin and as host. A port
//! that browsers can reach needs a proxy in front that accepts its own host name only.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method};

/// Whether a browser sent this request with an unsafe method for a page of another origin.
///
/// `Sec-Fetch-Site` decides if present, as it is right even behind a proxy that changes `Host`.
/// Older browsers, and plain HTTP to another machine, send `Origin` alone.
pub(super) fn is_cross_site(method: &Method, headers: &HeaderMap) -> bool {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    if let Some(site) = headers.get("sec-fetch-site") {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let text = |value: &HeaderValue| value.to_str().map(str::to_ascii_lowercase).ok();
    let host = headers.get(HOST).and_then(text);
    let of_origin = text(origin).and_then(|origin| Some(origin.split_once("://")?.1.to_owned()));
    of_origin.is_none() || of_origin != host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_site_requests_are_detected() {
        let cases: [(&str, &str, &str, bool); 14] = [
            ("", "", "", false),
            ("", "", "rtad:9090", false),
            ("same-origin", "http://rtad:9090", "rtad:9090", false),
            // Behind a proxy with another name.
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
        ];
        for (site, origin, host, is_refused) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in [("sec-fetch-site", site), ("origin", origin), ("host", host)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            assert_eq!(is_cross_site(&Method::POST, &headers), is_refused, "{headers:?}");
            assert!(!is_cross_site(&Method::GET, &headers), "{headers:?}");
        }
    }
}
