//! Environment variables of object stores, checked before object_store reads them.
//!
//! With an endpoint that is no URL, or a credential that is no value of an HTTP header,
//! object_store panics at the first request. An endpoint is part of messages, so it must hold no
//! password.

use object_store::aws::AmazonS3ConfigKey as S3;
use object_store::azure::AzureConfigKey as Azure;
use object_store::gcp::GoogleConfigKey as Google;

use crate::url::BucketKind;

/// Accepted content of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    Endpoint,
    /// A credential or a region: no message repeats it.
    Header,
}

/// A refused variable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: expected {accepted}, found {found}")]
pub struct VariableError {
    name: String,
    accepted: &'static str,
    found: String,
}

impl VariableError {
    pub fn new(name: &str, accepted: &'static str, found: &str) -> Self {
        Self {
            name: name.to_owned(),
            accepted,
            found: found.to_owned(),
        }
    }
}

/// Checks the variables that object_store reads for a kind of store.
pub fn check(kind: BucketKind) -> Result<(), VariableError> {
    // object_store ignores variables that are not UTF-8, too.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    for (name, value) in variables {
        if let Some(rule) = rule(kind, &name) {
            check_value(rule, &name, &value)?;
        }
    }
    Ok(())
}

/// The rule of a variable, which has several names.
fn rule(kind: BucketKind, name: &str) -> Option<Rule> {
    let (prefix, key) = (name.split_once('_')?.0, name.to_ascii_lowercase());
    match (kind, prefix) {
        (BucketKind::S3, "AWS") => match key.parse().ok()? {
            S3::Endpoint | S3::S3Endpoint | S3::StsEndpoint | S3::MetadataEndpoint => {
                Some(Rule::Endpoint)
            }
            S3::AccessKeyId | S3::SecretAccessKey | S3::Token | S3::Region | S3::DefaultRegion => {
                Some(Rule::Header)
            }
            _ => None,
        },
        (BucketKind::Azure, "AZURE") => match key.parse().ok()? {
            Azure::Endpoint | Azure::AuthorityHost => Some(Rule::Endpoint),
            Azure::AccountName
            | Azure::AccessKey
            | Azure::SasKey
            | Azure::Token
            | Azure::ClientId
            | Azure::ClientSecret
            | Azure::AuthorityId => Some(Rule::Header),
            _ => None,
        },
        (BucketKind::Google, "GOOGLE") => match key.parse().ok()? {
            Google::BaseUrl => Some(Rule::Endpoint),
            Google::BearerToken => Some(Rule::Header),
            _ => None,
        },
        _ => None,
    }
}

pub fn check_value(rule: Rule, name: &str, value: &str) -> Result<(), VariableError> {
    let refuse = |accepted, found: &str| Err(VariableError::new(name, accepted, found));
    match rule {
        Rule::Header if value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => Ok(()),
        Rule::Header => refuse(
            "printable ASCII characters",
            "another one, such as the newline at the end of a file",
        ),
        Rule::Endpoint => {
            let accepted = "https://host or http://host, with or without a port and a path";
            if value.contains(['@', '?', '#']) {
                return refuse(
                    accepted,
                    "a URL with a user, a password, a query or a fragment",
                );
            }
            let url = url::Url::parse(value).ok();
            let is_url = url.is_some_and(|url| matches!(url.scheme(), "http" | "https"));
            // The parser leaves out blanks and line ends.
            match is_url && value.bytes().all(|byte| byte.is_ascii_graphic()) {
                true => Ok(()),
                false => refuse(accepted, &format!("{value:?}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_without_secrets() {
        for url in [
            "http://minio:9000",
            "https://host",
            "https://host/base/",
            "http://[::1]:1",
        ] {
            check_value(Rule::Endpoint, "AWS_ENDPOINT_URL", url).unwrap();
        }
        for url in [
            "",
            "minio",
            "minio:9000",
            "127.0.0.1:9000",
            "http://",
            "http://host:99999",
            " http://host",
            "http://host\n",
            "ftp://host",
            "foo:1",
        ] {
            let error = check_value(Rule::Endpoint, "AWS_ENDPOINT_URL", url).unwrap_err();
            let expected = "AWS_ENDPOINT_URL: expected https://host or http://host, with or \
                            without a port and a path, found ";
            assert_eq!(error.to_string(), format!("{expected}{url:?}"));
        }
        for url in [
            "http://user:hush@host",
            "hush@host",
            "https://host/?sig=hush",
        ] {
            let error = check_value(Rule::Endpoint, "AZURE_STORAGE_ENDPOINT", url).unwrap_err();
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }

    #[test]
    fn credentials_are_printable_and_in_no_message() {
        check_value(Rule::Header, "AWS_SECRET_ACCESS_KEY", "a/b+c= ~").unwrap();
        for value in ["hush\n", "\nhush", "hu\tsh", "hush\u{e9}", "hush\u{7f}"] {
            let error = check_value(Rule::Header, "AWS_SESSION_TOKEN", value).unwrap_err();
            assert_eq!(
                error.to_string(),
                "AWS_SESSION_TOKEN: expected printable ASCII characters, found another one, such \
                 as the newline at the end of a file"
            );
        }
    }

    #[test]
    fn variables_are_those_of_the_kind() {
        use BucketKind::{Azure, Google, S3};
        for (kind, name, expected) in [
            (S3, "AWS_ENDPOINT_URL_S3", Some(Rule::Endpoint)),
            (S3, "AWS_ENDPOINT", Some(Rule::Endpoint)),
            (S3, "AWS_TOKEN", Some(Rule::Header)),
            (S3, "AWS_ALLOW_HTTP", None),
            (S3, "AWS_OTHER", None),
            (S3, "ENDPOINT", None),
            (S3, "AZURE_STORAGE_ENDPOINT", None),
            (Azure, "AZURE_STORAGE_ENDPOINT", Some(Rule::Endpoint)),
            (Azure, "AZURE_STORAGE_SAS_TOKEN", Some(Rule::Header)),
            (Google, "GOOGLE_BEARER_TOKEN", Some(Rule::Header)),
            (Google, "AWS_REGION", None),
        ] {
            assert_eq!(rule(kind, name), expected, "{name}");
        }
    }
}
