//! `[platform.signature]`: signatures of a custom platform's requests.

use std::time::Duration;

use rtad_config::values::{DAY, SECOND, as_optional_time, named, time};
use rtad_config::{Document, Named, SecretConfig};
use serde::{Deserialize, Deserializer, Serialize};

/// `[platform.signature]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct SignatureConfig {
    /// Handling of a wrong signature: `enforce` rejects the request, `observe` counts it, `off`
    /// checks nothing.
    #[serde(default = "enforce")]
    pub mode: SignatureMode,
    /// Digest of the signed text.
    pub algorithm: Algorithm,
    /// Signed text. Its placeholders are `{secret}`, `{body}`, `{parameters}` of a form (the names
    /// and values of all but the signature, sorted by name), `{header:NAME}`, `{query:NAME}`, and
    /// the path of a field of the body.
    #[serde(deserialize_with = "template")]
    pub template: Named,
    /// Location of the signature in the request: the digest in hex of either case, or in base64.
    #[serde(rename = "in", deserialize_with = "source")]
    pub source: Named,
    /// Text before the signature, such as `sha256=`. Without it a signature is wrong.
    #[serde(default)]
    pub prefix: String,
    /// Location of the time in the request: seconds or milliseconds since 1970, told apart by
    /// their size. Requires `max_skew`.
    #[serde(default, deserialize_with = "source")]
    pub timestamp: Option<Named>,
    /// Largest difference between the time and the clock. Requires `timestamp`.
    #[serde(
        default,
        deserialize_with = "time::<_, _, SECOND, DAY>",
        serialize_with = "as_optional_time"
    )]
    pub max_skew: Option<Duration>,
    /// Accepted secrets: a signature with any of them is valid, see `platform.signature.secrets`.
    pub secrets: Vec<SecretConfig>,
}

/// Handling of a wrong signature, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignatureMode {
    /// The request is rejected.
    Enforce,
    /// The failure is counted, and the request is answered.
    Observe,
    /// Signatures are not checked.
    Off,
}

/// Digest of the signed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// MD5 of the text.
    #[serde(rename = "md5")]
    Md5,
    /// SHA-256 of the text.
    #[serde(rename = "sha256")]
    Sha256,
    /// HMAC-SHA-256 of the text, keyed with the secret.
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
}

const fn enforce() -> SignatureMode {
    SignatureMode::Enforce
}

fn template<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Named, D::Error> {
    named(
        deserializer,
        "a text such as {request_id}{request_time}{secret}",
    )
}

fn source<'de, D: Deserializer<'de>, T: From<Named>>(deserializer: D) -> Result<T, D::Error> {
    named(deserializer, "body:PATH, header:NAME or query:NAME")
}

impl SignatureConfig {
    pub(in crate::config::platform) fn check(&mut self, d: &mut Document<'_>, table: &str) {
        if self.timestamp.is_some() != self.max_skew.is_some() {
            d.mistake(
                table,
                "has one of timestamp and max_skew",
                "both, or neither",
            );
        }

        let key = format!("{table}.secrets");
        if self.secrets.is_empty() {
            let accepted = "at least one of { value = \"…\" } or { value_file = \"…\" }";
            d.mistake(&key, "is empty", accepted);
        }
        for (index, secret) in self.secrets.iter_mut().enumerate() {
            let key = format!("{key}[{index}]");
            secret.secret = d.load_secret(&key, &secret.value, &secret.value_file);
        }
    }
}
