//! Runs the real binary, and compares whole stores.
//!
//! Included by each test file, none of which uses all of it.
#![allow(dead_code, reason = "each test binary has its own copy of this module, and none uses all of it")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rtad_core::device::IdKind;
use rtad_core::synth::Synth;
use serde_json::Value;
use tempfile::TempDir;

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The only thing on stdout, as JSON; success and a silent stderr with it.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        assert_eq!(self.stdout.lines().count(), 1, "one JSON object: {self:?}");
        serde_json::from_str(&self.stdout).expect("stdout is JSON")
    }

    /// A failure: that exit code, one line on stderr that holds `text`, nothing on stdout.
    #[track_caller]
    pub(crate) fn fails(&self, status: i32, text: &str) -> &Self {
        assert_eq!((self.status, self.stdout.as_str()), (Some(status), ""), "{self:?}");
        assert!(self.stderr.starts_with("error: ") && self.stderr.ends_with('\n'), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "one line: {self:?}");
        assert!(!self.stderr.trim_end().ends_with('.'), "no full stop: {self:?}");
        assert!(self.stderr.contains(text), "{text:?} in {self:?}");
        self
    }
}

/// The binary with arguments separated by spaces, `{}` standing for the folder.
pub(crate) fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rtad-loader"));
    let folder = folder.to_str().expect("a UTF-8 temporary folder");
    command.args(arguments.split_whitespace().map(|argument| argument.replace("{}", folder)));
    command
}

/// A folder with a store in it, removed in the end.
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
        let mut child = spawn(&mut command(self.path(), arguments));
        let mut pipe = child.stdin.take().expect("a piped stdin");
        // A command that does not read stdin closes it: no fault.
        let _ = pipe.write_all(stdin);
        drop(pipe);
        outcome(child)
    }

    /// Builds audience `a` in store `s` from the arguments, and returns the JSON.
    #[track_caller]
    pub(crate) fn build(&self, arguments: &str) -> Value {
        self.run(&format!("build --store {{}}/s --audience a --json {arguments}")).json()
    }

    /// All files of the store with their bytes, lock files left out.
    pub(crate) fn store(&self) -> BTreeMap<String, Vec<u8>> {
        files(&self.path().join("s"))
    }
}

pub(crate) fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

pub(crate) fn outcome(child: Child) -> Outcome {
    let output = child.wait_with_output().expect("the binary ends");
    Outcome {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

/// All files under a folder with their bytes, lock files left out.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&current) else { continue };
        for entry in entries {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|kind| kind != "LOCK") && !path.ends_with("LOCK") {
                let name = path.strip_prefix(folder).expect("inside").display().to_string();
                found.insert(name, std::fs::read(&path).expect("a readable file"));
            }
        }
    }
    found
}

/// The chunks of a store, by name: the name is the digest of the content.
pub(crate) fn chunks(store: &BTreeMap<String, Vec<u8>>) -> Vec<&String> {
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

/// With a checksum, as `zstd` writes it.
pub(crate) fn zst(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("level 1 exists");
    encoder.include_checksum(true).expect("the frame has not begun");
    encoder.write_all(bytes).expect("a Vec takes what is written");
    encoder.finish().expect("a Vec takes what is written")
}
