//! Whether a request to the admin port comes from a web page of somebody else.
//!
//! The port has no log-in: whoever reaches it may use it. A page that an operator happens to read elsewhere does not reach it, but the
//! operator's browser does, and sends what the page bids it send. Such a page cannot read the answer to a `GET`, as no route allows it
//! to; what it must not do is make the port do something. A browser says where a request comes from, and other clients say nothing.
//!
//! A page whose own name is made to point at this port (DNS rebinding) is of the same origin for the browser and for this: whoever lets
//! browsers reach the port puts a proxy before it that answers to its own name alone.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method};

/// Whether the request is one that does something, sent by a browser for a page of another origin. `Sec-Fetch-Site` decides where it is
/// there, as it holds behind a proxy that changes `Host` too; older browsers, and plain HTTP to a host that is not this machine, have
/// `Origin` alone.
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
    fn what_a_page_of_another_origin_has_a_browser_do_is_told_apart() {
        let cases: [(&str, &str, &str, bool); 14] = [
            ("", "", "", false),
            ("", "", "rtad:9090", false),
            ("same-origin", "http://rtad:9090", "rtad:9090", false),
            // A proxy in front has another name.
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
