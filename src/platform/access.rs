//! Access by headers: secrets that callers send.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use rtad_http::tokens::bearer_token;
use subtle::Choice;

use crate::config::Secret;

/// Headers of which a request must carry one; an empty list admits every request.
#[derive(Debug, Clone, Default)]
pub struct Access(Vec<(HeaderName, Secret)>);

impl Access {
    /// Admits a request with any of these headers. Two secrets for one name allow rotation.
    pub const fn any_of(headers: Vec<(HeaderName, Secret)>) -> Self {
        Self(headers)
    }

    /// Whether every request is admitted.
    pub const fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the request carries any of these headers, with any value.
    pub fn is_tried(&self, headers: &HeaderMap) -> bool {
        self.0.iter().any(|(name, _)| headers.contains_key(name))
    }

    /// Whether a request with these headers is admitted. Compares every value with every secret, so
    /// the time does not depend on the match.
    #[inline]
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let mut admitted = Choice::from(0);
        for (name, secret) in &self.0 {
            for value in headers.get_all(name) {
                admitted |= secret.is(value.as_bytes());
                if let Some(value) = with_canonical_scheme(name, value) {
                    admitted |= secret.is(&value);
                }
            }
        }
        admitted.into()
    }
}

/// Bearer credentials that are not written as `Bearer TOKEN`.
fn with_canonical_scheme(name: &HeaderName, value: &HeaderValue) -> Option<Vec<u8>> {
    if name != AUTHORIZATION {
        return None;
    }
    let token = bearer_token(value.as_bytes())?;
    let canonical = [b"Bearer ", token].concat();
    (canonical != value.as_bytes()).then_some(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn any_configured_header_admits_a_request() {
        let header = |name, secret: &str| (HeaderName::from_static(name), Secret::new(secret));
        let access = Access::any_of(vec![
            header("x-rta-token", "old"),
            header("x-rta-token", "new"),
            header("x-key", "k"),
        ]);
        for good in [
            &[("x-rta-token", "old")][..],
            &[("x-rta-token", "new")],
            &[("x-key", "k")],
            &[("x-rta-token", "wrong"), ("x-rta-token", "new")],
            &[("x-rta-token", "wrong"), ("x-key", "k")],
        ] {
            assert!(access.admits(&headers(good)), "{good:?}");
        }
        for bad in [
            &[][..],
            &[("x-rta-token", "")],
            &[("x-rta-token", "ol")],
            &[("x-rta-token", "older")],
            &[("x-rta-token", "k")],
            &[("x-key", "old")],
            &[("authorization", "old")],
        ] {
            assert!(!access.admits(&headers(bad)), "{bad:?}");
        }
        assert!(Access::default().admits(&headers(&[])));
        assert!(Access::default().is_open() && !access.is_open());
        assert!(access.is_tried(&headers(&[("x-key", "wrong")])));
        assert!(!access.is_tried(&headers(&[("authorization", "old")])));
    }

    #[test]
    fn bearer_scheme_has_no_case_and_any_spaces() {
        let access = Access::any_of(vec![(AUTHORIZATION, Secret::new("Bearer Token"))]);
        for good in ["Bearer Token", "bearer Token", "BEARER   Token"] {
            assert!(
                access.admits(&headers(&[("authorization", good)])),
                "{good}"
            );
        }
        for bad in ["Bearer token", "bearer", "Basic Token", "BearerToken"] {
            assert!(!access.admits(&headers(&[("authorization", bad)])), "{bad}");
        }
    }

    #[test]
    fn debug_output_hides_secrets() {
        let access = Access::any_of(vec![(
            HeaderName::from_static("x-key"),
            Secret::new("hush"),
        )]);
        assert!(!format!("{access:?}").contains("hush"));
        assert!(!format!("{access:?}").contains(&format!("{:?}", b"hush")));
    }
}
