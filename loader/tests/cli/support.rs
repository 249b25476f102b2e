//! Sandbox folder with a store, runs of the loader, and input files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use rtad_core::device::IdKind;
use rtad_core::synth::Synth;
use serde_json::Value;
use tempfile::TempDir;
use testkit::process::{Outcome, run};
use testkit::store::{Files, bucket_url, files};

/// The program under test.
pub(crate) const LOADER: &str = env!("CARGO_BIN_EXE_rtad-loader");

/// The binary with arguments separated by spaces; `{}` stands for the folder.
pub(crate) fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(LOADER);
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
        self.run_with(arguments, b"")
    }

    pub(crate) fn run_with(&self, arguments: &str, stdin: &[u8]) -> Outcome {
        run(&mut command(self.path(), arguments), stdin)
    }

    /// Builds audience `a` in store `s` from the arguments, and returns the JSON.
    #[track_caller]
    pub(crate) fn build(&self, arguments: &str) -> Value {
        self.run(&format!("build --store {{}}/s --audience a --json {arguments}")).json()
    }

    /// All files of the store with their bytes, except lock files.
    pub(crate) fn store(&self) -> Files {
        files(&self.path().join("s"))
    }
}

/// Stores to try commands on, each with a folder for inputs: a directory, and a bucket if there
/// is a server.
pub(crate) fn stores(part: &str) -> impl Iterator<Item = (Sandbox, String)> + use<> {
    let sandbox = Sandbox::new();
    let store = format!("{}/s", sandbox.path().display());
    let remote = bucket_url(part).map(|store| (Sandbox::new(), store));
    std::iter::once((sandbox, store)).chain(remote)
}

/// The chunks of a store, by name: the name is the digest of the content.
pub(crate) fn chunks(store: &Files) -> Vec<&String> {
    store.keys().filter(|name| name.ends_with(".chunk")).collect()
}

/// Synthetic ids of seed 1.
pub(crate) fn ids(kind: IdKind, range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|index| Synth::new(kind, 1).id(index)).collect()
}

/// One per line.
pub(crate) fn lines(ids: &[String]) -> String {
    ids.iter().flat_map(|id| [id.as_str(), "\n"]).collect()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("a Vec takes what is written");
    encoder.finish().expect("a Vec takes what is written")
}

/// The frame has a checksum, as `zstd` writes it.
pub(crate) fn zst(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("level 1 exists");
    encoder.include_checksum(true).expect("the frame has not begun");
    encoder.write_all(bytes).expect("a Vec takes what is written");
    encoder.finish().expect("a Vec takes what is written")
}
