//! Secrets, in the config or in a file. No message and no printed config shows one.

use std::fmt;

use serde::Serialize;
use subtle::{Choice, ConstantTimeEq as _};

use super::reader::{Document, Section};

/// A secret from the config. Never printed; compared in constant time.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps the secret's bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The secret's bytes, for signing.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether `other` is equal, in a time that depends on the length alone.
    pub fn is(&self, other: &[u8]) -> Choice {
        self.0.ct_eq(other)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// A secret as configured. Printed as its file's name, or redacted.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct SecretConfig {
    /// The secret. Either this or `value_file` is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'static str>,
    /// File that holds the secret alone. Trailing line ends are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_file: Option<String>,
    /// The secret itself.
    #[serde(skip)]
    pub secret: Secret,
}

/// Printed instead of a secret.
const REDACTED: &str = "<redacted>";

/// Reads `value` or `value_file`.
pub(super) fn read(d: &mut Document<'_>, section: &mut Section) -> Option<SecretConfig> {
    const ACCEPTED: &str = "value, or value_file with the path of a file";
    let (line, path) = (section.line(), section.path().to_owned());
    let (secret, file) = read_either(d, section, ["value", "value_file"], ACCEPTED)?;
    if secret.is_empty() || !secret.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        d.mistake(
            line,
            &path,
            "has a secret that is empty or not printable ASCII",
            "printable ASCII",
        );
        return None;
    }
    let value = file.is_none().then_some(REDACTED);
    Some(SecretConfig { value, value_file: file, secret: Secret::new(secret) })
}

/// Reads a text from the first key, or from the file that the second one names, and the file's
/// name.
pub(super) fn read_either(
    d: &mut Document<'_>,
    section: &mut Section,
    [value, value_file]: [&'static str; 2],
    accepted: &str,
) -> Option<(Vec<u8>, Option<String>)> {
    let (line, path) = (section.line(), section.path().to_owned());
    let text = section.read(d, value, accepted, |text| Some(text.to_owned()));
    let file = section.read(d, value_file, accepted, |text| Some(text.to_owned()));
    let secret = match (text, &file) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(file)) => {
            let beside = d.beside(file);
            match std::fs::read(&beside) {
                Ok(text) => {
                    d.saw(&text);
                    text.trim_ascii_end().to_vec()
                }
                Err(error) => {
                    let found = format!("is {:?}: {error}", beside.display().to_string());
                    d.mistake(
                        line,
                        &format!("{path}.{value_file}"),
                        &found,
                        "a file that can be read",
                    );
                    return None;
                }
            }
        }
        (None, None) if section.had(value) || section.had(value_file) => return None,
        _ => {
            let found = format!("needs exactly one of {value} and {value_file}");
            d.mistake(line, &path, &found, accepted);
            return None;
        }
    };
    if secret == REDACTED.as_bytes() {
        d.mistake(line, &path, "is redacted, as check-config prints it", "the secret itself");
        return None;
    }
    Some((secret, file))
}
