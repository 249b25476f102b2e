//! Secrets, in the configuration or in a file. No message and no printed configuration shows one.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::{Choice, ConstantTimeEq as _};

use crate::document::Document;
use crate::values::hidden;

/// Printed instead of a secret.
const REDACTED: &str = "<redacted>";

/// A secret. Never printed; compared in constant time.
#[derive(Clone, Default, PartialEq, Eq)]
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

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        hidden(deserializer, "a string", |text| Some(Self::new(text)))
    }
}

/// A secret as configured. Printed as its file's name, or redacted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "documented", derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct SecretConfig {
    /// The secret. Either this or `value_file` is required.
    pub value: Option<Secret>,
    /// File that holds the secret alone. Trailing line ends are ignored.
    pub value_file: Option<String>,
    /// The secret itself, after [`Document::load_secret`].
    #[serde(skip)]
    pub secret: Secret,
}

impl Document<'_> {
    /// The secret of the table at `key`, or of its file; of use only without a mistake.
    pub fn load_secret(
        &mut self,
        key: &str,
        value: &Option<Secret>,
        file: &Option<String>,
    ) -> Secret {
        let value = value.as_ref().map(Secret::expose);
        let secret = self.either(key, ["value", "value_file"], value, file);
        let Some(secret) = secret else {
            return Secret::default();
        };
        let is_printable = secret
            .iter()
            .all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        if secret.is_empty() || !is_printable {
            let found = "has a secret that is empty or not printable ASCII";
            self.mistake(key, found, "printable ASCII");
        }

        Secret(secret)
    }

    /// The text of the first key of a table, or of the file that the second one names; `None` after
    /// a mistake, and for a missing file that is ignored.
    pub fn either(
        &mut self,
        table: &str,
        [value, value_file]: [&str; 2],
        text: Option<&[u8]>,
        file: &Option<impl AsRef<Path>>,
    ) -> Option<Vec<u8>> {
        let secret = match (text, file) {
            (Some(text), None) => text.to_vec(),
            (None, Some(file)) => {
                let contents = self.read_file(&format!("{table}.{value_file}"), file)?;
                contents.trim_ascii_end().to_vec()
            }
            _ => {
                let found = format!("needs exactly one of {value} and {value_file}");
                let accepted = format!("{value}, or {value_file} with the path of a file");
                self.mistake(table, &found, &accepted);
                return None;
            }
        };

        let is_redacted = secret
            .windows(REDACTED.len())
            .any(|window| window == REDACTED.as_bytes());
        if is_redacted {
            let found = "is redacted, as check-config prints it";
            self.mistake(table, found, "the secret itself");
            return None;
        }

        Some(secret)
    }
}
