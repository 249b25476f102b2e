//! Remote objects by URL or below a prefix, such as dumps: read whole or by ranges.
//!
//! Clients, credentials, redirects, stall detection and resuming are those of the store.

mod prefix;

use std::ops::Range;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};

use crate::download::{ResumingReader, STALL_TIMEOUT, within};
use crate::error::StoreError;
use crate::remote;
use crate::url::{Location, UrlError, redacted};

pub use prefix::{ListedObject, Prefix};

/// An object that is being read, in order or range by range. Not for concurrent use.
pub struct Object {
    reader: ResumingReader,
    version: Option<String>,
}

impl std::fmt::Debug for Object {
    /// Leaves out the client, which may hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("size_bytes", &self.size_bytes())
            .finish_non_exhaustive()
    }
}

impl Object {
    /// Checks that [`Object::open`] accepts a URL. Reads no environment and creates no client.
    ///
    /// # Errors
    ///
    /// [`UrlError`].
    pub fn check_url(url: &str) -> Result<(), UrlError> {
        locate(url).map(|_| ())
    }

    /// Opens an object with credentials from the environment, and reads its size.
    ///
    /// # Errors
    ///
    /// [`StoreError::Url`] if the URL names no object, [`StoreError::Open`] if the environment does
    /// not fit it, or a store error.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let failed = |source: object_store::Error| StoreError::Open {
            url: url.to_owned(),
            source: source.into(),
        };

        let (objects, path) = match locate(url).map_err(StoreError::Url)? {
            (Location::Bucket { kind, name, .. }, path) => (
                remote::bucket(kind, &name, &Path::default()).map_err(failed)?,
                path,
            ),
            (Location::Http { mut url }, path) => {
                url.set_path("");
                (remote::http(&url).map_err(failed)?, path)
            }
            (Location::Directory(_), _) => unreachable!("locate refuses directories"),
        };

        let found = within(STALL_TIMEOUT, &path, objects.head(&path))
            .await?
            .map_err(|source| StoreError::backend("look up", &path, source))?;
        Ok(Self {
            version: version_of(&found),
            reader: ResumingReader::new(objects, path, found.size, STALL_TIMEOUT),
        })
    }

    /// Size of the object.
    pub const fn size_bytes(&self) -> u64 {
        self.reader.size()
    }

    /// Its version or entity tag, without quotes.
    pub fn version(&self) -> Option<String> {
        self.version.clone()
    }

    /// The next bytes, about 1 MiB; empty at the end.
    ///
    /// # Errors
    ///
    /// A store error, after the last retry.
    pub async fn next(&mut self) -> Result<Bytes, StoreError> {
        Ok(self.reader.next_block().await?.unwrap_or_default())
    }

    /// A range of the object, which must be in bounds. [`Object::next`] returns no bytes after it.
    ///
    /// # Errors
    ///
    /// A store error, also if the server does not support ranges.
    pub async fn range(&mut self, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.reader.seek(range);
        let mut bytes = Vec::new();
        loop {
            let block = self.next().await?;
            if block.is_empty() {
                return Ok(bytes);
            }
            bytes.extend_from_slice(&block);
        }
    }
}

fn version_of(meta: &ObjectMeta) -> Option<String> {
    let tag = meta.e_tag.as_ref().map(|tag| tag.trim_matches('"'));
    let version = meta.version.as_deref().or(tag);
    version.map(str::to_owned)
}

fn locate(url: &str) -> Result<(Location, Path), UrlError> {
    let refuse = |reason| {
        Err(UrlError {
            url: redacted(url).into_owned(),
            reason,
        })
    };
    let location = Location::parse(url)?;
    let path = match &location {
        Location::Directory(_) => return refuse("it is not the URL of an object"),
        Location::Bucket { prefix, .. } => prefix.clone(),
        // A parsed URL has no empty parts; parsing the path decodes them.
        Location::Http { url } => Path::from_url_path(url.path()).unwrap_or_default(),
    };
    match path.parts_count() {
        0 => refuse("it names no object"),
        _ if Prefix::is_prefix(url) => refuse("it is a prefix, as it ends in a slash"),
        _ => Ok((location, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_with_an_object_name_are_accepted() {
        for url in [
            "s3://ads/dump.gz",
            "gs://ads/a/b",
            "az://ads/a%20b",
            "http://host:8000/a",
            "https://host/a%20b/c",
        ] {
            Object::check_url(url).unwrap();
        }
        assert_eq!(locate("https://host/a%20b/c").unwrap().1.as_ref(), "a b/c");
        for (url, reason) in [
            ("s3://ads", "it names no object"),
            ("https://host/", "it names no object"),
            ("https://host/day/", "it is a prefix, as it ends in a slash"),
            ("/srv/dump", "it is not the URL of an object"),
            ("file:///srv/dump", "it is not the URL of an object"),
            ("https://host/dump?sig=abc", "it has a query or a fragment"),
        ] {
            let Err(UrlError { reason: found, .. }) = Object::check_url(url) else {
                panic!("{url}")
            };
            assert_eq!(found, reason, "{url}");
        }
    }
}
