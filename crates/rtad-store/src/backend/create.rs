//! Put-if-absent: the one conditional write that every kind of store has.
//!
//! A directory links an unfinished file, which fails if the name exists. S3 and Azure take
//! `If-None-Match: *`, Google the generation 0.

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use super::Backend;
use super::clock::StoreClock;
use crate::error::StoreError;
use crate::remote::Uncontested;

/// Puts of an object that the server refuses to create although it does not exist: another put of
/// it is under way, and may fail.
const MAX_PUTS: u32 = 4;
/// Pause before the second put; doubled before each further one.
const PAUSE: Duration = Duration::from_millis(50);

/// The object of a create.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// It has our bytes, durably.
    Ours,
    /// It has these bytes of another writer.
    Theirs(Bytes),
}

impl Backend {
    /// Refuses a store that ignores the condition of a create: two writers would both succeed, and
    /// the changes of one would be lost. Costs four requests for a probe, once per client of a
    /// bucket.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conditions`], or a store error.
    pub(crate) async fn check_creates(&self, probe: Path) -> Result<(), StoreError> {
        let Self::Objects {
            url, conditions, ..
        } = self
        else {
            return Ok(());
        };
        let checked = conditions.get_or_try_init(|| async {
            self.create(&probe, Bytes::from_static(b"1")).await?;
            let is_created_twice = self.create(&probe, Bytes::from_static(b"2")).await?;
            let objects = self.objects(&probe).await?;
            let written = objects.head(&probe).await;

            // Without the permission to delete, it stays until the next gc.
            let _ = objects.delete(&probe).await;
            if is_created_twice {
                return Err(StoreError::Conditions { url: url.clone() });
            }
            let written =
                written.map_err(|source| StoreError::backend("look up", &probe, source))?;
            Ok(StoreClock::new(written.last_modified.into()))
        });
        checked.await.map(drop)
    }

    /// Creates an object, as [`Backend::create_or_read`] does.
    ///
    /// True: it exists with these bytes, durably. False: it exists with other bytes.
    ///
    /// # Errors
    ///
    /// Those of [`Backend::create_or_read`].
    pub(crate) async fn create(&self, path: &Path, bytes: Bytes) -> Result<bool, StoreError> {
        Ok(self.create_or_read(path, bytes).await? == Created::Ours)
    }

    /// Creates an object of at most 16 MiB, or reads the one that is there. Never replaces one.
    ///
    /// The answer to a put may be lost, and the client's retry refused. So the bytes decide whose
    /// the object is: *writers that compete put different bytes*, such as a random number.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReadOnly`], or a store error, after which the object may still appear.
    pub(crate) async fn create_or_read(
        &self,
        path: &Path,
        bytes: Bytes,
    ) -> Result<Created, StoreError> {
        self.create_with(path, bytes, new_object()).await
    }

    /// [`Backend::create`] of an object that all writers create with the same bytes, as those of a
    /// mirror do: without the time that some clouds need to find one of several writers.
    ///
    /// # Errors
    ///
    /// Those of [`Backend::create_or_read`].
    pub(crate) async fn create_copy(&self, path: &Path, bytes: Bytes) -> Result<bool, StoreError> {
        let mut options = new_object();
        options.extensions.insert(Uncontested);
        Ok(self.create_with(path, bytes, options).await? == Created::Ours)
    }

    async fn create_with(
        &self,
        path: &Path,
        bytes: Bytes,
        options: PutOptions,
    ) -> Result<Created, StoreError> {
        self.check_writable()?;
        let objects = self.objects(path).await?;

        let mut pause = PAUSE;
        for attempt in 1.. {
            // A success, also of a retry by the client, is durable.
            let payload = PutPayload::from(bytes.clone());
            let Err(refusal) = objects.put_opts(path, payload, options.clone()).await else {
                return Ok(Created::Ours);
            };

            let found = match objects.get(path).await {
                Ok(object) => object.bytes().await,
                Err(error) => Err(error),
            };
            match (found, &refusal) {
                (Ok(found), _) if found == bytes => return Ok(Created::Ours),
                (Ok(found), _) => return Ok(Created::Theirs(found)),
                (Err(Error::NotFound { .. }), Error::AlreadyExists { .. })
                    if attempt < MAX_PUTS =>
                {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                _ => return Err(StoreError::backend("create", path, refusal)),
            }
        }
        unreachable!("the last attempt returns")
    }
}

fn new_object() -> PutOptions {
    PutOptions {
        mode: PutMode::Create,
        ..PutOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use testkit::faulty_store::{FaultyStore, LostAnswer};

    use super::*;

    /// Sixteen writers create the same ten objects at once; returns the number of creators of each.
    async fn creators_of_ten(backend: &Backend) -> Vec<usize> {
        let mut creators = Vec::new();
        for number in 0..10 {
            let path = Path::from(format!("records/{number}"));
            let mut writers = tokio::task::JoinSet::new();
            for writer in 0..16 {
                let (backend, path) = (backend.clone(), path.clone());
                writers.spawn(async move {
                    let bytes = Bytes::from(format!("writer {writer}"));
                    backend.create(&path, bytes).await.unwrap()
                });
            }
            let created = writers.join_all().await;
            creators.push(created.into_iter().filter(|created| *created).count());
        }
        creators
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_of_many_writers_creates_in_every_store() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Backend::open(folder.path().to_str().unwrap()).unwrap();
        assert_eq!(creators_of_ten(&directory).await, [1; 10]);
        let staged = std::fs::read_dir(folder.path().join("records")).unwrap();
        assert_eq!(staged.count(), 10, "no staged files are left");

        let Some(url) = testkit::store::bucket_url("create") else {
            return;
        };
        assert_eq!(
            creators_of_ten(&Backend::open(&url).unwrap()).await,
            [1; 10]
        );
    }

    #[tokio::test]
    async fn object_of_a_lost_answer_is_known_by_its_bytes() {
        for lost in [LostAnswer::Retried, LostAnswer::Broken] {
            let faulty = Arc::new(FaultyStore::default());
            let backend = Backend::over(Arc::clone(&faulty) as _, "s3://bucket");
            let path = Path::from("records/1");
            faulty.lose_answers("records/1", lost);
            assert!(
                backend.create(&path, "ours".into()).await.unwrap(),
                "{lost:?}"
            );
            assert!(!backend.create(&path, "another's".into()).await.unwrap());
            let held = faulty.get(&path).await.unwrap().bytes().await.unwrap();
            assert_eq!(held, "ours");
        }
    }

    #[tokio::test]
    async fn nothing_is_created_over_http_or_in_a_missing_directory() {
        let create = async |url: &str| {
            let backend = Backend::open(url).unwrap();
            backend.create(&Path::from("records/1"), "1".into()).await
        };
        let refused = create("http://127.0.0.1:1/").await;
        assert!(matches!(refused, Err(StoreError::ReadOnly { .. })));
        let refused = create("/nonexistent/store").await;
        assert!(matches!(refused, Err(StoreError::NoDirectory { .. })));
    }
}
