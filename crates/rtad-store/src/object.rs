//! One object by a URL of its own, such as a dump that an audience is built from: the whole of it, or parts.
//!
//! Clients, credentials, redirects, standstills and resumption are the store's. What differs: an object may be a hundred gigabytes, so
//! the number of resumes is bounded between two pieces and not for the whole, and more is asked for at once.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};

use super::read::piece::Reading;
use super::read::{MAX_RESUMES, RESUME_DELAY};
use super::url::Location;
use super::{STALL_TIMEOUT, StoreError, remote};

/// Asked for at once: a request costs a round trip, and its answer is handed on as it comes.
const REQUEST_BYTES: u64 = 64 << 20;

/// An object that is being read. Not for many threads at once.
pub struct Object {
    objects: Arc<dyn ObjectStore>,
    path: Path,
    size_bytes: u64,
    version: String,
    /// What is read from its first byte to its last.
    whole: Reading,
    /// Of what was read first: all parts are of one file.
    e_tag: Option<String>,
}

impl std::fmt::Debug for Object {
    /// What a client holds besides may be credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

impl Object {
    /// Whether it is the URL of one object that [`Object::open`] can read. Reads no environment and makes no client.
    ///
    /// # Errors
    ///
    /// [`StoreError::Url`].
    pub fn check_url(url: &str) -> Result<(), StoreError> {
        locate(url).map(|_| ())
    }

    /// Looks it up. The client is made here, with the credentials that the environment holds.
    ///
    /// # Errors
    ///
    /// [`StoreError::Url`] if it names no object, [`StoreError::Open`] if the environment does not fit it, or the store's own.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let failed =
            |source: object_store::Error| StoreError::Open { url: url.to_owned(), source: source.into() };
        let (objects, path) = match locate(url)? {
            (Location::Bucket { kind, name, .. }, path) => {
                (remote::bucket(kind, &name, &Path::default()).map_err(failed)?, path)
            }
            (Location::Http { mut url }, path) => {
                url.set_path("");
                (remote::http(&url).map_err(failed)?, path)
            }
            (Location::Directory(_), _) => unreachable!("a directory is no URL of an object"),
        };
        let found = tokio::time::timeout(STALL_TIMEOUT, objects.head(&path)).await;
        let found = found.map_err(|_| StoreError::Stalled {
            path: path.to_string(),
            bytes: 1,
            timeout: STALL_TIMEOUT,
        })?;
        let found = found.map_err(|source| StoreError::backend("look up", &path, source))?;
        let size_bytes = found.size;
        let version = found.e_tag.unwrap_or_else(|| found.last_modified.to_rfc3339());
        let whole = Reading::new(Arc::clone(&objects), path.clone(), size_bytes, STALL_TIMEOUT)
            .part(0..size_bytes, REQUEST_BYTES);
        Ok(Self { objects, path, size_bytes, version, whole, e_tag: None })
    }

    /// How long it is.
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Another one if it is replaced: its entity tag, or when it was written, if its store has no tags.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its next bytes, about a MiB of them; none at its end.
    ///
    /// # Errors
    ///
    /// The store's own, if going on after a failure did not help.
    pub async fn next(&mut self) -> Result<Bytes, StoreError> {
        next(&mut self.whole, self.size_bytes).await
    }

    /// A part of it, which must lie within.
    ///
    /// # Errors
    ///
    /// The store's own; a server that does not know ranges is one.
    pub async fn range(&mut self, part: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let reading =
            Reading::new(Arc::clone(&self.objects), self.path.clone(), self.size_bytes, STALL_TIMEOUT);
        let mut reading = reading.part(part.clone(), REQUEST_BYTES);
        reading.e_tag = self.e_tag.take();
        let mut bytes = Vec::new();
        while reading.offset < part.end {
            bytes.extend_from_slice(&next(&mut reading, part.end).await?);
        }
        self.e_tag = reading.e_tag;
        Ok(bytes)
    }
}

/// The next bytes up to `end`. Of a part the store must know ranges: else it would send the whole for each.
async fn next(reading: &mut Reading, end: u64) -> Result<Bytes, StoreError> {
    let mut resumes = 0;
    while reading.offset < end {
        let (bytes, failed) = reading.piece().await;
        if !reading.knows_ranges && end < reading.size() {
            return Err(reading.ranges_ignored());
        }
        match failed {
            Some(failure) if !failure.passes || resumes == MAX_RESUMES => return Err(failure.error),
            Some(_) if bytes.is_empty() => {
                tokio::time::sleep(RESUME_DELAY * 2_u32.pow(resumes)).await;
                resumes += 1;
            }
            // Also what came before a failure: the next request is for what is missing still.
            _ if !bytes.is_empty() => return Ok(bytes),
            _ => {}
        }
    }
    Ok(Bytes::new())
}

fn locate(url: &str) -> Result<(Location, Path), StoreError> {
    let refuse = |reason| Err(StoreError::Url { url: super::redacted(url).into_owned(), reason });
    let location = Location::parse(url)?;
    let path = match &location {
        Location::Directory(_) => return refuse("it is no URL of an object"),
        Location::Bucket { prefix, .. } => prefix.clone(),
        // What was parsed has no empty parts, and its parts are decoded by the parsing of a path.
        Location::Http { url } => Path::from_url_path(url.path()).unwrap_or_default(),
    };
    match path.parts_count() {
        0 => refuse("it names no object"),
        _ => Ok((location, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_a_name() {
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
            ("/srv/dump", "it is no URL of an object"),
            ("file:///srv/dump", "it is no URL of an object"),
            ("https://host/dump?sig=abc", "it has a query or a fragment"),
        ] {
            let Err(StoreError::Url { reason: found, .. }) = Object::check_url(url) else { panic!("{url}") };
            assert_eq!(found, reason, "{url}");
        }
    }
}
