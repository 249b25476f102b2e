//! Sandbox folder with a store, runs of the writer and of the loader, and synthetic ids.

use std::path::{Path, PathBuf};
use std::process::Command;

use rtad_core::device::IdKind;
use rtad_core::synth::Synth;
use serde_json::Value;
use tempfile::TempDir;
use testkit::process::{Outcome, run};
use testkit::store::{Files, bucket_url, files};

/// The program under test.
const WRITER: &str = env!("CARGO_BIN_EXE_rtad-writer");

/// The writer with arguments separated by spaces; `{}` stands for the folder.
pub(crate) fn command(folder: &Path, arguments: &str) -> Command {
    with_arguments(Command::new(WRITER), folder, arguments)
}

/// The loader, which `cargo test --workspace` builds beside the writer.
pub(crate) fn loader(folder: &Path, arguments: &str) -> Command {
    let program = Path::new(WRITER).with_file_name("rtad-loader");
    assert!(program.exists(), "no {}: run `cargo build --workspace`", program.display());
    with_arguments(Command::new(program), folder, arguments)
}

fn with_arguments(mut command: Command, folder: &Path, arguments: &str) -> Command {
    let folder = folder.to_str().expect("a UTF-8 temporary folder");
    command.args(arguments.split_whitespace().map(|argument| argument.replace("{}", folder)));
    command
}

/// A folder with a store, removed on drop.
pub(crate) struct Sandbox(TempDir);

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).expect("a writable folder");
        path
    }

    pub(crate) fn run(&self, arguments: &str) -> Outcome {
        run(&mut command(self.path(), arguments), b"")
    }

    /// All files of the store with their bytes, except lock files.
    pub(crate) fn store(&self) -> Files {
        files(&self.path().join("s"))
    }

    /// Builds audience `a` in store `s` from the arguments, and returns the JSON.
    #[track_caller]
    pub(crate) fn build(&self, arguments: &str) -> Value {
        let build = format!("build --store {{}}/s --audience a --json {arguments}");
        run(&mut loader(self.path(), &build), b"").json()
    }
}

/// Stores to try the service on, each with a folder for inputs: a directory, and a bucket if there
/// is a server.
pub(crate) fn stores(part: &str) -> impl Iterator<Item = (Sandbox, String)> + use<> {
    let sandbox = Sandbox::new();
    let store = format!("{}/s", sandbox.path().display());
    let remote = bucket_url(part).map(|store| (Sandbox::new(), store));
    std::iter::once((sandbox, store)).chain(remote)
}

/// Synthetic ids of seed 1.
pub(crate) fn ids(kind: IdKind, range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|index| Synth::new(kind, 1).id(index)).collect()
}

/// One per line.
pub(crate) fn lines(ids: &[String]) -> String {
    ids.iter().flat_map(|id| [id.as_str(), "\n"]).collect()
}
