//! Access by headers: secrets that callers send.

use http::{HeaderMap, HeaderName};
use subtle::Choice;

use crate::config::Secret;

/// Headers of which one must be there; none at all lets everybody in.
#[derive(Debug, Clone, Default)]
pub struct Access(Vec<(HeaderName, Secret)>);

impl Access {
    /// Lets in whoever sends any of these: a value that is about to change stands beside its successor.
    pub const fn any_of(headers: Vec<(HeaderName, Secret)>) -> Self {
        Self(headers)
    }

    /// Whether everybody is let in.
    pub const fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of the headers that could let a caller in is there, with whatever value.
    pub fn is_tried(&self, headers: &HeaderMap) -> bool {
        self.0.iter().any(|(name, _)| headers.contains_key(name))
    }

    /// Whether a request with these headers is let in. Every value is compared with every secret, so
    /// that the time tells neither which one matched nor how much of it.
    #[inline]
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let mut admitted = Choice::from(0);
        for (name, secret) in &self.0 {
            for value in headers.get_all(name) {
                admitted |= secret.is(value.as_bytes());
            }
        }
        admitted.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn any_one_of_the_headers_lets_in_and_nothing_else_does() {
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
    fn a_secret_is_not_printed() {
        let access = Access::any_of(vec![(HeaderName::from_static("x-key"), Secret::new("hush"))]);
        assert!(!format!("{access:?}").contains("hush"));
        assert!(!format!("{access:?}").contains(&format!("{:?}", b"hush")));
    }
}
