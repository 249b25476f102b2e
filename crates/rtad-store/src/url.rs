//! URLs of stores and of remote objects: parsing, and the accepted kinds. No I/O.
//!
//! URLs with a user, a password or a query are refused, because URLs end in logs, process lists and
//! error messages. Credentials come from the environment. A refused URL is shown [`redacted`].

use std::borrow::Cow;
use std::path::PathBuf;

use object_store::path::Path;

/// Accepted values of `--store` and `store.url`, for messages.
pub const ACCEPTED_URLS: &str = "a directory, file:///directory, s3://bucket/prefix, \
    gs://bucket/prefix, az://container/prefix, oss://bucket/prefix, cos://bucket/prefix, \
    https://host/path or http://host/path";

/// A URL that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("store {url:?}: {reason}; accepted: {ACCEPTED_URLS}")]
pub struct UrlError {
    /// The URL, without secrets.
    pub url: String,
    /// The fault.
    pub reason: &'static str,
}

/// The location of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Directory(PathBuf),
    Bucket {
        kind: BucketKind,
        name: String,
        prefix: Path,
    },
    Http {
        url: url::Url,
    },
}

/// The API of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketKind {
    S3,
    Google,
    Azure,
    /// Alibaba Cloud.
    Oss,
    /// Tencent Cloud.
    Cos,
}

impl Location {
    /// # Errors
    ///
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        parse(url).map_err(|reason| UrlError {
            url: redacted(url).into_owned(),
            reason,
        })
    }
}

fn parse(url: &str) -> Result<Location, &'static str> {
    if url.is_empty() {
        return Err("it is empty");
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Ok(Location::Directory(url.into()));
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let kind = match scheme {
        "file" if rest.starts_with('/') => return Ok(Location::Directory(rest.into())),
        "file" => return Err("a file URL needs an absolute path"),
        "s3" => Some(BucketKind::S3),
        "gs" => Some(BucketKind::Google),
        "az" => Some(BucketKind::Azure),
        "oss" => Some(BucketKind::Oss),
        "cos" => Some(BucketKind::Cos),
        "http" | "https" => None,
        _ => return Err("it has an unknown scheme"),
    };

    if host.contains('@') {
        return Err("credentials come from the environment, not from the URL");
    }
    if rest.contains(['?', '#']) {
        return Err("it has a query or a fragment");
    }
    if host.is_empty() {
        return Err(if kind.is_some() {
            "it names no bucket"
        } else {
            "it names no host"
        });
    }

    // Decodes %20 and the like, and refuses parts that could leave the prefix.
    let bad_path = "its path has an empty, a `.` or a `..` part, or is not UTF-8";
    let prefix = Path::from_url_path(path).map_err(|_| bad_path)?;
    let Some(kind) = kind else {
        let mut url: url::Url = url.parse().map_err(|_| "it is not a URL")?;
        // Rebuilt from its parts: a trailing slash would be doubled in every request.
        url.set_path("");
        url.path_segments_mut()
            .expect("an http URL has a path")
            .extend(prefix.parts().map(|part| part.as_ref().to_owned()));
        return Ok(Location::Http { url });
    };

    let mut bytes = host.bytes();
    if !bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return Err(
            "its bucket's name has a character other than letters, digits, `-`, `.` and `_`",
        );
    }

    Ok(Location::Bucket {
        kind,
        name: host.to_owned(),
        prefix,
    })
}

/// A URL without user, password, query and fragment. Other text is unchanged.
pub fn redacted(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Cow::Borrowed(url);
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    // The user name ends at the last `@`: a password may contain an unencoded slash.
    let user = rest[..end].rfind('@');
    if user.is_none() && end == rest.len() {
        return Cow::Borrowed(url);
    }
    let user = user.map_or(("", 0), |at| ("…", at));
    let query = if end < rest.len() { "?…" } else { "" };
    Cow::Owned(format!(
        "{scheme}://{}{}{query}",
        user.0,
        &rest[user.1..end]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(kind: BucketKind, name: &str, prefix: &str) -> Location {
        Location::Bucket {
            kind,
            name: name.to_owned(),
            prefix: Path::parse(prefix).unwrap(),
        }
    }

    #[test]
    fn each_kind_of_url_is_parsed() {
        let http = |text: &str| Location::Http {
            url: text.parse().unwrap(),
        };
        for (url, expected) in [
            ("/srv/rtad", Location::Directory("/srv/rtad".into())),
            ("srv/rtad", Location::Directory("srv/rtad".into())),
            (".", Location::Directory(".".into())),
            ("file:///srv/rtad", Location::Directory("/srv/rtad".into())),
            ("s3://ads", bucket(BucketKind::S3, "ads", "")),
            ("s3://ads/", bucket(BucketKind::S3, "ads", "")),
            (
                "s3://Ads_1.x/rt%61d/eu%20west/",
                bucket(BucketKind::S3, "Ads_1.x", "rtad/eu west"),
            ),
            ("gs://ads/rtad", bucket(BucketKind::Google, "ads", "rtad")),
            ("az://ads/rtad", bucket(BucketKind::Azure, "ads", "rtad")),
            ("oss://ads/rtad", bucket(BucketKind::Oss, "ads", "rtad")),
            ("cos://ads-125/", bucket(BucketKind::Cos, "ads-125", "")),
            ("https://host", http("https://host/")),
            ("http://host:8000/a/b/", http("http://host:8000/a/b")),
            ("https://host/a%20b", http("https://host/a%20b")),
        ] {
            assert_eq!(parse(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn refused_urls_give_a_reason_and_no_secret() {
        let bad_path = "its path has an empty, a `.` or a `..` part, or is not UTF-8";
        let credentials = "credentials come from the environment, not from the URL";
        for (url, shown, reason) in [
            ("", "", "it is empty"),
            ("ftp://x", "ftp://x", "it has an unknown scheme"),
            ("S3://x", "S3://x", "it has an unknown scheme"),
            ("file://", "file://", "a file URL needs an absolute path"),
            (
                "file://host/x",
                "file://host/x",
                "a file URL needs an absolute path",
            ),
            ("s3://", "s3://", "it names no bucket"),
            ("s3:///prefix", "s3:///prefix", "it names no bucket"),
            ("https://", "https://", "it names no host"),
            ("https:///x", "https:///x", "it names no host"),
            ("http://ho st/x", "http://ho st/x", "it is not a URL"),
            (
                "s3://a:9/x",
                "s3://a:9/x",
                "its bucket's name has a character other than letters, digits, `-`, `.` and `_`",
            ),
            ("s3://a/../b", "s3://a/../b", bad_path),
            ("s3://a/%2e%2e/b", "s3://a/%2e%2e/b", bad_path),
            ("https://host/a//b", "https://host/a//b", bad_path),
            ("gs://a/%ff", "gs://a/%ff", bad_path),
            ("https://me:pw@host/x", "https://…@host/x", credentials),
            ("s3://key:se@cret@bucket/x", "s3://…@bucket/x", credentials),
            (
                "https://host/x?sig=abc",
                "https://host/x?…",
                "it has a query or a fragment",
            ),
            (
                "https://me@host/x?sig=a@b",
                "https://…@host/x?…",
                credentials,
            ),
        ] {
            let error = Location::parse(url).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("store {shown:?}: {reason}; accepted: {ACCEPTED_URLS}")
            );
        }
    }
}
