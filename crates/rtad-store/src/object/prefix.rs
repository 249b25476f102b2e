//! The objects below a prefix of a bucket, such as the parts of a nightly export.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::Object;
use crate::download::{ResumingReader, STALL_TIMEOUT};
use crate::error::StoreError;
use crate::remote;
use crate::url::{Location, UrlError, redacted};

/// A prefix. Its objects share a client, and so its connections.
#[derive(Clone)]
pub struct Prefix {
    objects: Arc<dyn ObjectStore>,
    path: Path,
    /// Scheme and bucket of the URLs of its objects.
    bucket_url: String,
}

/// An object as the list showed it.
#[derive(Clone)]
pub struct ListedObject {
    objects: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    url: String,
}

impl Prefix {
    /// Whether a URL is that of a prefix: it ends in `/`.
    pub fn is_prefix(url: &str) -> bool {
        url.ends_with('/')
    }

    /// Checks that [`Prefix::open`] accepts a URL. Reads no environment and creates no client.
    ///
    /// # Errors
    ///
    /// [`UrlError`].
    pub fn check_url(url: &str) -> Result<(), UrlError> {
        match Location::parse(url)? {
            Location::Bucket { .. } => Ok(()),
            Location::Directory(_) | Location::Http { .. } => Err(UrlError {
                url: redacted(url).into_owned(),
                reason: "only buckets list what is below a prefix",
            }),
        }
    }

    /// Opens a prefix with credentials from the environment. Sends no request.
    ///
    /// # Errors
    ///
    /// [`StoreError::Url`] if the URL is not of a bucket, [`StoreError::Open`] if the environment
    /// does not fit it.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::check_url(url).map_err(StoreError::Url)?;
        let Ok(Location::Bucket { kind, name, prefix }) = Location::parse(url) else {
            unreachable!("it was checked")
        };

        let objects = remote::bucket(kind, &name, &Path::default());
        let (scheme, _) = url.split_once("://").expect("a bucket's URL has a scheme");
        Ok(Self {
            objects: objects.map_err(|source| StoreError::Open {
                url: url.to_owned(),
                source: source.into(),
            })?,
            path: prefix,
            bucket_url: format!("{scheme}://{name}"),
        })
    }

    /// Name of the prefix in its bucket, without slashes around it; empty for the whole bucket.
    pub fn name(&self) -> &str {
        self.path.as_ref()
    }

    /// The objects below the prefix, by name. Empty objects that stand for folders are left out.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn list(&self) -> Result<Vec<ListedObject>, StoreError> {
        let listed = self.objects.list(Some(&self.path)).try_collect::<Vec<_>>();
        let mut found = listed
            .await
            .map_err(|source| StoreError::backend("list", &self.path, source))?;
        found.sort_unstable_by(|one, other| one.location.cmp(&other.location));

        let mut objects = Vec::with_capacity(found.len());
        for (index, meta) in found.iter().enumerate() {
            if meta.size > 0 || !self.is_folder(meta, &found[index + 1..]) {
                objects.push(ListedObject {
                    objects: Arc::clone(&self.objects),
                    url: format!("{}/{}", self.bucket_url, meta.location),
                    meta: meta.clone(),
                });
            }
        }
        Ok(objects)
    }

    /// Whether an empty object has the name of a folder, as consoles create them.
    fn is_folder(&self, empty: &ObjectMeta, later: &[ObjectMeta]) -> bool {
        let inside = format!("{}/", empty.location);
        let first = later.partition_point(|meta| meta.location.as_ref() < inside.as_str());
        let has_objects = later
            .get(first)
            .is_some_and(|meta| meta.location.as_ref().starts_with(&inside));
        empty.location == self.path || has_objects
    }

    /// Names of the first `limit` objects below a folder of the bucket, by its name in the bucket.
    /// None if its keys may not list them, as those of one folder alone.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn first_names(&self, folder: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        // `Path::from` would encode some characters.
        let Ok(folder) = Path::parse(folder) else {
            return Ok(Vec::new());
        };
        let listed = self.objects.list(Some(&folder)).take(limit);
        let found = match listed.try_collect::<Vec<_>>().await {
            Err(object_store::Error::PermissionDenied { .. }) => return Ok(Vec::new()),
            found => found.map_err(|source| StoreError::backend("list", &folder, source))?,
        };
        Ok(found.into_iter().map(|meta| meta.location.into()).collect())
    }
}

impl ListedObject {
    /// Its URL, with the object's name as it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name in the bucket.
    pub fn name(&self) -> &str {
        self.meta.location.as_ref()
    }

    /// Its size.
    pub const fn size_bytes(&self) -> u64 {
        self.meta.size
    }

    /// Its version or entity tag, without quotes.
    pub fn version(&self) -> Option<String> {
        super::version_of(&self.meta)
    }

    /// Opens the object that was listed. Sends no request.
    pub fn open(&self) -> Object {
        let objects = Arc::clone(&self.objects);
        let path = self.meta.location.clone();
        let reader = ResumingReader::new(objects, path, self.meta.size, STALL_TIMEOUT);
        Object {
            reader: reader.with_listed_tag(self.meta.e_tag.as_deref()),
            version: self.version(),
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt as _;
    use object_store::memory::InMemory;

    use super::*;

    async fn prefix(names: &[(&str, &'static str)]) -> Prefix {
        let objects = Arc::new(InMemory::new());
        for (name, content) in names {
            objects
                .put(&Path::from(*name), (*content).into())
                .await
                .unwrap();
        }
        Prefix {
            objects,
            path: Path::from("day"),
            bucket_url: "s3://ads".to_owned(),
        }
    }

    #[tokio::test]
    async fn objects_are_listed_by_name_without_those_of_folders() {
        let prefix = prefix(&[
            ("day", ""),
            ("day/b", "1"),
            ("day/a/2", "2"),
            ("day/a", ""),
            ("day/a-b", "3"),
            ("day/empty", ""),
            ("day2/c", "4"),
        ])
        .await;
        let listed = prefix.list().await.unwrap();
        let urls: Vec<_> = listed.iter().map(ListedObject::url).collect();
        let expected = ["day/a-b", "day/a/2", "day/b", "day/empty"];
        assert_eq!(urls, expected.map(|name| format!("s3://ads/{name}")));
        assert_eq!(prefix.first_names("day/a", 5).await.unwrap(), ["day/a/2"]);
    }

    #[tokio::test]
    async fn object_replaced_after_the_list_is_refused() {
        let prefix = prefix(&[("day/part", "1")]).await;
        let listed = prefix.list().await.unwrap();
        assert_eq!(listed[0].open().next().await.unwrap(), "1");
        for content in ["2", "longer"] {
            prefix
                .objects
                .put(&Path::from("day/part"), content.into())
                .await
                .unwrap();
            let refused = listed[0].open().next().await.unwrap_err();
            assert!(
                matches!(refused, StoreError::Replaced { .. }),
                "{refused:?}"
            );
        }
    }
}
