//! Environment variables of object stores, checked before object_store reads them: it panics at an
//! endpoint that is no URL, and at control characters in a header.

use crate::url::BucketKind;

/// Variables of endpoints.
const ENDPOINTS: [&str; 10] = [
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
    "AZURE_AUTHORITY_HOST",
    "AZURE_ENDPOINT",
    "AZURE_STORAGE_AUTHORITY_HOST",
    "AZURE_STORAGE_ENDPOINT",
    "GOOGLE_BASE_URL",
];

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

/// Checks the variables of a kind of bucket. OSS and COS check theirs.
pub fn check(kind: BucketKind) -> Result<(), VariableError> {
    let prefix = match kind {
        BucketKind::S3 => "AWS_",
        BucketKind::Azure => "AZURE_",
        BucketKind::Google => "GOOGLE_",
        BucketKind::Oss | BucketKind::Cos => return Ok(()),
    };
    for (name, value) in std::env::vars_os() {
        // object_store ignores variables that are not UTF-8, too.
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
            continue;
        };
        if ENDPOINTS.contains(&name) && name.starts_with(prefix) {
            check_endpoint(name, value)?;
        } else if name.starts_with(prefix) {
            check_text(name, value)?;
        }
    }
    Ok(())
}

/// Refuses an endpoint that is no URL, or holds a secret: messages repeat it.
pub fn check_endpoint(name: &str, value: &str) -> Result<(), VariableError> {
    let accepted = "https://host or http://host, with or without a port and a path";
    if value.contains(['@', '?', '#']) {
        let found = "a URL with a user, a password, a query or a fragment";
        return Err(VariableError::new(name, accepted, found));
    }

    let url = url::Url::parse(value).ok();
    let is_url = url.is_some_and(|url| matches!(url.scheme(), "http" | "https"));
    // The parser leaves out blanks and line ends.
    if is_url && value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(VariableError::new(name, accepted, &format!("{value:?}")))
}

/// Refuses control characters, but not those of JSON, which is never sent in a header. The message
/// does not repeat the value.
pub fn check_text(name: &str, value: &str) -> Result<(), VariableError> {
    if value.starts_with('{') || !value.contains(char::is_control) {
        return Ok(());
    }
    let found = "one, such as the newline at the end of a file";
    Err(VariableError::new(name, "no control character", found))
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
            check_endpoint("AWS_ENDPOINT_URL", url).unwrap();
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
            let error = check_endpoint("AWS_ENDPOINT_URL", url).unwrap_err();
            let expected = "AWS_ENDPOINT_URL: expected https://host or http://host, with or \
                            without a port and a path, found ";
            assert_eq!(error.to_string(), format!("{expected}{url:?}"));
        }
        for url in [
            "http://user:hush@host",
            "hush@host",
            "https://host/?sig=hush",
        ] {
            let error = check_endpoint("AZURE_STORAGE_ENDPOINT", url).unwrap_err();
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }

    #[test]
    fn control_characters_are_refused_and_in_no_message() {
        for value in [
            "a/b+c= ~",
            "hush\u{e9}",
            "{\n\"type\": \"service_account\"\n}",
        ] {
            check_text("GOOGLE_SERVICE_ACCOUNT_KEY", value).unwrap();
        }
        for value in ["hush\n", "\nhush", "hu\tsh", "hush\u{7f}"] {
            let error = check_text("AWS_SESSION_TOKEN", value).unwrap_err();
            assert_eq!(
                error.to_string(),
                "AWS_SESSION_TOKEN: expected no control character, found one, such as the newline \
                 at the end of a file"
            );
        }
    }
}
