//! A folder of whole files by URL, such as that of a decision log: put, list, delete.

use std::path::PathBuf;
use std::time::SystemTime;

use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};

use crate::backend::Backend;
use crate::error::StoreError;
use crate::url::{Location, UrlError, redacted};

/// Accepted URLs of a folder, for messages.
pub const ACCEPTED_FOLDERS: &str = "a directory, file:///directory, s3://bucket/prefix, \
    gs://bucket/prefix, az://container/prefix, oss://bucket/prefix or cos://bucket/prefix";

/// A folder.
#[derive(Debug, Clone)]
pub struct Folder {
    backend: Backend,
}

/// A file of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderFile {
    /// Its path below the folder.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Time of its last change.
    pub modified: SystemTime,
}

impl Folder {
    /// Checks that [`Folder::open`] accepts a URL. Reads no environment and creates no client.
    ///
    /// # Errors
    ///
    /// [`UrlError`].
    pub fn check_url(url: &str) -> Result<(), UrlError> {
        match Location::parse(url)? {
            Location::Http { .. } => Err(UrlError {
                url: redacted(url).into_owned(),
                reason: "a folder behind an HTTP server cannot be written",
            }),
            Location::Directory(_) | Location::Bucket { .. } => Ok(()),
        }
    }

    /// The directory of a URL; `None` for that of a bucket, or one that is not accepted.
    pub fn directory(url: &str) -> Option<PathBuf> {
        match Location::parse(url) {
            Ok(Location::Directory(path)) => Some(path),
            _ => None,
        }
    }

    /// Opens a folder with credentials from the environment. Sends no request.
    ///
    /// # Errors
    ///
    /// [`StoreError::Url`], or [`StoreError::Open`] if the environment does not fit the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::check_url(url).map_err(StoreError::Url)?;
        Ok(Self {
            backend: Backend::open(url)?,
        })
    }

    /// Writes a file, which replaces one of the same name.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let path = Path::from(path);
        let put = self
            .backend
            .objects(&path)
            .await?
            .put(&path, PutPayload::from(bytes))
            .await;
        put.map(|_| ())
            .map_err(|source| StoreError::backend("write", &path, source))
    }

    /// The files, in no order; none if there is no such folder.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn list(&self) -> Result<Vec<FolderFile>, StoreError> {
        let files = self.backend.list(&Path::default()).await?;
        let mut listed = Vec::with_capacity(files.len());
        for file in files {
            listed.push(FolderFile {
                path: file.location.to_string(),
                bytes: file.size,
                modified: file.last_modified.into(),
            });
        }
        Ok(listed)
    }

    /// Deletes a file; one that is gone already is no error.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn delete(&self, path: &str) -> Result<(), StoreError> {
        let path = Path::from(path);
        match self.backend.objects(&path).await?.delete(&path).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(|source| StoreError::backend("delete", &path, source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_put_listed_and_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path().to_str().unwrap()).unwrap();
        for name in ["day=2026-11-26/a.parquet", "day=2026-11-27/b.parquet"] {
            folder.put(name, b"rows".to_vec()).await.unwrap();
        }
        folder.delete("day=2026-11-26/a.parquet").await.unwrap();
        folder.delete("day=2026-11-26/a.parquet").await.unwrap();
        let files = folder.list().await.unwrap();
        let found: Vec<_> = files.iter().map(|file| (&*file.path, file.bytes)).collect();
        assert_eq!(found, [("day=2026-11-27/b.parquet", 4)]);
        assert!(files[0].modified.elapsed().unwrap().as_secs() < 60);
    }

    #[test]
    fn folders_behind_http_are_refused() {
        Folder::check_url("https://host/log").unwrap_err();
        Folder::check_url("s3://ads/log").unwrap();
        assert_eq!(Folder::directory("/srv/log"), Some("/srv/log".into()));
        assert_eq!(Folder::directory("s3://ads/log"), None);
    }
}
