//! Folders of a directory store: created for a first publish or claim, and swept by a gc.

use std::io::{self, ErrorKind};
use std::path::Path as FilePath;
use std::time::SystemTime;

use object_store::path::Path;

use super::writer::StoreWriter;
use crate::backend::{Backend, Directory};
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::is_unfinished_name;
use rtad_core::files::sync_dir;

/// Creates the folder of an audience or a window, and the store's directory if the writer may. Does
/// nothing in a bucket.
///
/// # Errors
///
/// [`StoreError::NoDirectory`] without a store: it may be behind a mount that is lost.
pub async fn prepare_folder(writer: &StoreWriter, folder: &Path) -> Result<(), StoreError> {
    let Backend::Directory(Directory { root, .. }) = writer.backend() else {
        return Ok(());
    };
    let (root, folder) = (root.clone(), root.join(folder.as_ref()));
    let creates_store = writer.creates_store();
    blocking(move || {
        if !creates_store && !root.is_dir() {
            return Err(StoreError::NoDirectory { root });
        }
        make_folder(&folder).map_err(|source| StoreError::Backend {
            action: "create",
            path: folder.display().to_string(),
            source: source.into(),
        })
    })
    .await
}

fn make_folder(folder: &FilePath) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    // object_store syncs what it creates below this folder, but not the folder itself.
    for parent in folder.ancestors().skip(1).take(2) {
        if !parent.as_os_str().is_empty() {
            sync_dir(parent)?;
        }
    }
    Ok(())
}

/// Removes the half-written files that killed writers left before `since` in these folders of a
/// directory. Does nothing in a bucket.
pub async fn sweep_unfinished(
    backend: &Backend,
    folders: Vec<Path>,
    since: SystemTime,
) -> Result<(), StoreError> {
    let Backend::Directory(Directory { root, .. }) = backend else {
        return Ok(());
    };
    let root = root.clone();
    blocking(move || {
        for folder in folders {
            let swept = sweep(&root.join(folder.as_ref()), since);
            swept.map_err(|source| StoreError::Backend {
                action: "remove half-written files of",
                path: folder.to_string(),
                source: source.into(),
            })?;
        }
        Ok(())
    })
    .await
}

fn sweep(folder: &FilePath, since: SystemTime) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };

    for entry in entries {
        let entry = entry?;
        let is_ours = entry.file_name().to_str().is_some_and(is_unfinished_name);
        if !is_ours {
            continue;
        }
        match entry.metadata().and_then(|file| file.modified()) {
            Ok(modified) if modified < since => {}
            Ok(_) => continue,
            // Its writer is alive, and has just renamed it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        match std::fs::remove_file(entry.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }

    Ok(())
}
