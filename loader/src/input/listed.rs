//! Objects below a prefix of a bucket.

use std::fmt;
use std::sync::Arc;

use rtad_store::StoreError;
use rtad_store::object::{ListedObject, Prefix};
use tokio::runtime::{Builder, Runtime};

use super::error::InputError;
use super::pattern::is_of_program;
use super::remote::Remote;
use super::table_folders::{TableFormat, refused_table};

/// Names in a folder of a table's log that are looked at: those of one request.
const MAX_LOG_NAMES: usize = 1000;

/// An object below a prefix, as the list showed it.
#[derive(Clone)]
pub struct Listed {
    object: ListedObject,
    /// Of all objects of the prefix, as they share connections.
    runtime: Arc<Runtime>,
}

impl Listed {
    /// Lists a prefix, by name.
    ///
    /// # Errors
    ///
    /// The prefix cannot be listed, has no object, or belongs to a table.
    pub fn list(url: &str) -> Result<Vec<Self>, InputError> {
        let failed = |source: StoreError| match source {
            StoreError::Url(error) => InputError::Url {
                input: error.url,
                reason: error.reason,
            },
            source => InputError::List {
                input: url.to_owned(),
                source: Box::new(source),
            },
        };
        let prefix = Prefix::open(url).map_err(failed)?;
        // Its thread drives the connections, whichever reader waits for them.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|source| InputError::Open {
                input: url.to_owned(),
                source,
            })?;
        let objects = runtime.block_on(prefix.list()).map_err(failed)?;

        let names: Vec<&str> = objects.iter().map(ListedObject::name).collect();
        let outside = runtime.block_on(table_outside(&prefix)).map_err(failed)?;
        if let Some((folder, format)) = outside.or_else(|| TableFormat::among(&names)) {
            return Err(refused_table(url, &folder, &format));
        }

        let runtime = Arc::new(runtime);
        let mut listed = Vec::with_capacity(objects.len());
        let found = objects.len();
        for object in objects {
            let name = object.name()[prefix.name().len()..].trim_start_matches('/');
            if !name.split('/').any(is_of_program) {
                let runtime = Arc::clone(&runtime);
                listed.push(Self { object, runtime });
            }
        }
        if listed.is_empty() {
            return Err(InputError::NoFile {
                input: url.to_owned(),
                found,
            });
        }
        Ok(listed)
    }

    pub fn url(&self) -> &str {
        self.object.url()
    }

    pub const fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    pub fn version(&self) -> Option<String> {
        self.object.version()
    }

    /// Opens the object. Sends no request.
    pub fn open(&self) -> Remote {
        Remote::of(self.object.open(), Arc::clone(&self.runtime))
    }
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.url() == other.url()
    }
}

impl Eq for Listed {}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listed").field(&self.url()).finish()
    }
}

/// The table in one of the folders around a prefix.
async fn table_outside(prefix: &Prefix) -> Result<Option<(String, TableFormat)>, StoreError> {
    let mut folder = prefix.name();
    while !folder.is_empty() {
        folder = folder.rsplit_once('/').map_or("", |(outside, _)| outside);
        for part in TableFormat::FOLDERS {
            let path = format!("{folder}/{part}");
            let path = path.trim_start_matches('/');
            let listed = prefix.first_names(path, MAX_LOG_NAMES).await?;

            let names: Vec<&str> = listed.iter().map(String::as_str).collect();
            if let Some(table) = TableFormat::among(&names) {
                return Ok(Some(table));
            }
        }
    }
    Ok(None)
}
