//! Signature check of requests: a digest with a configured secret, and a recent timestamp.
//!
//! [`super::template`] defines the signed text. The comparison takes constant time and covers every
//! secret, even after a match. Texts are signed as in the body, numbers as decimal digits, and
//! absent fields as an empty string.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::{Digest, Md5};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq as _};

use super::plan::Planner;
use super::reading::Reading;
use super::template::{self, Part, Source};
use crate::config::{Algorithm, Secret, SignatureConfig, SignatureMode};
use crate::platform::adapter::RequestHead;
use crate::platform::read::{Failure, integer_of};

/// Times below it are in seconds, others in milliseconds: until the year 5138, and since 1973.
const LEAST_MILLISECONDS: i128 = 100_000_000_000;

/// A compiled signature check.
#[derive(Debug)]
pub struct Signature {
    pub is_observed: bool,
    algorithm: Algorithm,
    template: Vec<Part>,
    source: Source,
    /// Text before the signature.
    prefix: String,
    timestamp: Option<Timestamp>,
    secrets: Vec<Secret>,
}

/// The check of a request's time.
#[derive(Debug)]
struct Timestamp {
    source: Source,
    max_skew: Duration,
}

impl Signature {
    /// Compiles a check, and adds its fields to the planner. `None` if signatures are off.
    pub fn compile(
        planner: &mut Planner<'_>,
        config: &SignatureConfig,
        is_form: bool,
    ) -> Option<Self> {
        if config.mode == SignatureMode::Off {
            return None;
        }

        let template = template::compile(planner, &config.template, is_form);
        if let Some(parts) = &template
            && config.algorithm != Algorithm::HmacSha256
            && !template::has_secret(parts)
        {
            planner.mistake(template::without_secret(&config.template));
        }

        let source = Source::compile(planner, &config.source);
        if let (Some(parts), Some(source)) = (&template, &source)
            && let Some(why) = template::signs_itself(parts, source)
        {
            planner.mistake(
                config
                    .source
                    .mistake(why, "a source that the template does not sign"),
            );
        }

        let timestamp = config.timestamp.as_ref().and_then(|named| {
            Some(Timestamp {
                source: Source::compile(planner, named)?,
                max_skew: config.max_skew?,
            })
        });
        if let (Some(parts), Some(Timestamp { source, .. }), Some(named)) =
            (&template, &timestamp, &config.timestamp)
            && !template::signs(parts, source)
        {
            let why = "it is not signed: any sender could change it";
            planner.mistake(named.mistake(why, "a location that the template contains"));
        }

        Some(Self {
            is_observed: config.mode == SignatureMode::Observe,
            algorithm: config.algorithm,
            template: template?,
            source: source?,
            prefix: config.prefix.clone(),
            timestamp,
            secrets: config
                .secrets
                .iter()
                .map(|config| config.secret.clone())
                .collect(),
        })
    }

    /// Whether these headers and this query are enough to check the signature.
    pub fn is_in(&self, head: &RequestHead<'_>) -> bool {
        let signed = self.template.iter().filter_map(|part| match part {
            Part::Value(source) => Some(source),
            _ => None,
        });
        signed
            .chain([&self.source])
            .all(|source| source.is_in(head))
    }

    /// Checks the signature, and that the time is near `now`, which is called only for a timestamp.
    pub fn check(
        &self,
        reading: &Reading<'_, '_>,
        head: &RequestHead<'_>,
        body: &[u8],
        now: impl FnOnce() -> Duration,
    ) -> Result<(), Failure> {
        let is_right = self.source.with(reading, head, |text| {
            let Some(signature) = text.strip_prefix(self.prefix.as_bytes()) else {
                return false;
            };
            let mut is_right = Choice::from(0);
            // All secrets, also after the right one: the time does not tell which it is.
            for secret in &self.secrets {
                is_right |= self.is_of(secret, signature, reading, head, body);
            }
            bool::from(is_right)
        });
        if !is_right {
            return Err(Failure::BadSignature);
        }

        let Some(timestamp) = &self.timestamp else {
            return Ok(());
        };
        let time = timestamp
            .source
            .with(reading, head, integer_of)
            .ok_or(Failure::BadTimestamp)?;

        let (now, time) = if time < LEAST_MILLISECONDS {
            (i128::from(now().as_secs()) * 1000, time * 1000)
        } else {
            (as_signed(now().as_millis()), time)
        };
        if (now - time).abs() <= as_signed(timestamp.max_skew.as_millis()) {
            Ok(())
        } else {
            Err(Failure::BadTimestamp)
        }
    }

    fn is_of(
        &self,
        secret: &Secret,
        signature: &[u8],
        reading: &Reading<'_, '_>,
        head: &RequestHead<'_>,
        body: &[u8],
    ) -> Choice {
        let feed = |update: &mut dyn FnMut(&[u8])| {
            for part in &self.template {
                match part {
                    Part::Literal(text) => update(text.as_bytes()),
                    Part::Secret => update(secret.expose()),
                    Part::Body => update(body),
                    Part::Parameters => {
                        template::feed_parameters(&self.source, head, body, update);
                    }
                    Part::Value(source) => source.with(reading, head, &mut *update),
                }
            }
        };

        match self.algorithm {
            Algorithm::Md5 => is_text_of(&digest::<Md5>(feed), signature),
            Algorithm::Sha256 => is_text_of(&digest::<Sha256>(feed), signature),
            Algorithm::HmacSha256 => {
                let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose())
                    .expect("keys of any length are valid");
                feed(&mut |bytes| mac.update(bytes));
                is_text_of(&mac.finalize().into_bytes(), signature)
            }
        }
    }
}

/// Whether the signature is the digest as text. Its length tells hex from base64.
fn is_text_of(digest: &[u8], signature: &[u8]) -> Choice {
    if signature.len() == 2 * digest.len() {
        is_hex_of(digest, signature)
    } else {
        is_base64_of(digest, signature)
    }
}

/// Whether the signature is the digest in base64, of either alphabet, with its padding or without.
fn is_base64_of(digest: &[u8], signature: &[u8]) -> Choice {
    let mut expected = [0; 44];
    let length = STANDARD
        .encode_slice(digest, &mut expected)
        .expect("the buffer holds the longest digest");

    let mut found = [b'='; 44];
    if signature.len() > length {
        return Choice::from(0);
    }

    for (found, sent) in found.iter_mut().zip(signature) {
        *found = match sent {
            b'-' => b'+',
            b'_' => b'/',
            sent => *sent,
        };
    }

    expected[..length].ct_eq(&found[..length])
}

/// Whether the signature is the digest in hex, of either case.
fn is_hex_of(digest: &[u8], signature: &[u8]) -> Choice {
    let mut expected_digits = [0; 64];
    let expected = &mut expected_digits[..2 * digest.len()];
    const_hex::encode_to_slice(digest, expected).expect("the buffer holds two digits per byte");

    let mut found_digits = [0; 64];
    let found = &mut found_digits[..expected.len()];
    if signature.len() != found.len() {
        return Choice::from(0);
    }
    found.copy_from_slice(signature);
    found.make_ascii_lowercase();
    (*expected).ct_eq(found)
}

fn digest<D: Digest>(
    feed: impl FnOnce(&mut dyn FnMut(&[u8])),
) -> impl std::ops::Deref<Target = [u8]> {
    let mut digest = D::new();
    feed(&mut |bytes| digest.update(bytes));
    digest.finalize()
}

fn as_signed(number: u128) -> i128 {
    i128::try_from(number).unwrap_or(i128::MAX)
}
