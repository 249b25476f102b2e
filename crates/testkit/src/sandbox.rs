//! Folder with inputs and a store, runs of the program under test and of the loader, and synthetic
//! ids.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rtad_core::device::IdKind;
use rtad_core::synth::Synth;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Outcome, run};
use crate::store::{Files, bucket_url, files};

/// The program of the package under test with arguments separated by spaces; `{}` stands for the
/// folder.
pub fn command(folder: &Path, arguments: &str) -> Command {
    command_of(&std::env::var("CARGO_PKG_NAME").unwrap(), folder, arguments)
}

/// The loader, with arguments as in [`command`].
pub fn loader(folder: &Path, arguments: &str) -> Command {
    command_of("rtad-loader", folder, arguments)
}

/// A program that cargo has built beside the tests.
fn command_of(program: &str, folder: &Path, arguments: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join(program);
    assert!(
        program.exists(),
        "no {}: run `cargo build --workspace`",
        program.display()
    );
    let folder = folder.to_str().expect("a UTF-8 temporary folder");
    let mut command = Command::new(program);
    command.args(
        arguments
            .split_whitespace()
            .map(|argument| argument.replace("{}", folder)),
    );
    command
}

/// Makes a file look as if it was last changed ten seconds ago.
pub fn make_old(file: &Path) {
    let changed = SystemTime::now() - Duration::from_secs(10);
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_modified(changed).unwrap();
}

/// A folder with a store, removed on drop.
pub struct Sandbox(TempDir);

impl Sandbox {
    /// An empty folder.
    #[allow(clippy::new_without_default, reason = "it creates a directory")]
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A folder with an empty store, `s`.
    ///
    /// # Panics
    ///
    /// If it cannot be created.
    pub fn with_store() -> Self {
        let sandbox = Self::new();
        std::fs::create_dir(sandbox.path().join("s")).unwrap();
        sandbox
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs [`command`] to its end.
    pub fn run(&self, arguments: &str) -> Outcome {
        self.run_with(arguments, b"")
    }

    /// Runs [`command`] with this stdin.
    pub fn run_with(&self, arguments: &str, stdin: &[u8]) -> Outcome {
        run(&mut command(self.path(), arguments), stdin)
    }

    /// Builds audience `a` in store `s` from the arguments, and returns the JSON.
    #[track_caller]
    pub fn build(&self, arguments: &str) -> Value {
        let build = format!("build --store {{}}/s --audience a --json {arguments}");
        run(&mut loader(self.path(), &build), b"").json()
    }

    /// Path of the store.
    pub fn store_path(&self) -> String {
        format!("{}/s", self.path().display())
    }

    /// All files of the store with their bytes.
    pub fn store(&self) -> Files {
        files(&self.path().join("s"))
    }
}

/// A folder for inputs, and a store: in the bucket if there is a server, or else a directory. For
/// tests that end in `_in_every_store`, which the `stores` suite runs.
pub fn directory_or_bucket(part: &str) -> (Sandbox, String) {
    let sandbox = Sandbox::with_store();
    let store = bucket_url(part).unwrap_or_else(|| sandbox.store_path());
    (sandbox, store)
}

/// Synthetic ids of seed 1.
pub fn ids(kind: IdKind, range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|index| Synth::new(kind, 1).id(index)).collect()
}

/// One per line.
pub fn lines(ids: &[String]) -> String {
    ids.iter().flat_map(|id| [id.as_str(), "\n"]).collect()
}
