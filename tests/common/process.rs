//! The real `rtad` binary as a child: its two outputs are read as they come, and it does not outlive its test.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

use super::client::{Client, wait_until};

/// `rtad` with these arguments and no environment but `variables`.
pub(crate) fn command(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rtad"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Output {
    command(arguments, variables).output().unwrap()
}

/// A running `rtad`.
pub(crate) struct Rtad {
    child: Child,
    stdout: Reader,
    stderr: Reader,
}

/// Lines that a thread reads.
struct Reader {
    lines: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn of(output: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let thread = std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                kept.lock().unwrap().push(line.unwrap());
            }
        });
        Self { lines, thread: Some(thread) }
    }

    fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}

impl Rtad {
    pub(crate) fn spawn(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Self {
        let mut child =
            command(arguments, variables).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Reader::of(child.stdout.take().unwrap());
        let stderr = Reader::of(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// `rtad serve --config FILE`, once it serves.
    pub(crate) fn serve(file: &std::path::Path, variables: &[(&str, &str)]) -> Self {
        let rtad = Self::spawn(&[OsStr::new("serve"), OsStr::new("--config"), file.as_os_str()], variables);
        rtad.log("decision port listens", 1);
        rtad
    }

    /// The `nth` log line with this message, once it is there.
    pub(crate) fn log(&self, message: &str, nth: usize) -> Value {
        wait_until(|| {
            let lines = self.stderr.lines.lock().unwrap();
            let events = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.filter(|event| event["message"] == message).nth(nth - 1)
        })
    }

    fn address(&self, message: &str, field: &str) -> SocketAddr {
        self.log(message, 1)[field].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address("decision port listens", "decision_address"))
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.address("admin port listens; loading the first snapshots", "admin_address")
    }

    pub(crate) fn connect_admin(&self) -> Client {
        Client::connect(self.admin_address())
    }

    /// Waits for a line on stdout; returns all until then.
    pub(crate) fn stdout_until(&self, line: &str) -> Vec<String> {
        wait_until(|| {
            let lines = self.stdout.lines.lock().unwrap().clone();
            lines.iter().any(|found| found == line).then_some(lines)
        })
    }

    /// Sends a signal by name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        // The shell's own: Debian's smallest images have no other.
        assert!(Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap().success());
    }

    /// Waits until readiness has fallen because of SIGTERM.
    pub(crate) fn is_draining(&self) {
        let mut admin = self.connect_admin();
        wait_until(|| (admin.get("/readyz").status == 503).then_some(()));
    }

    /// Waits for the end; returns how it ended and all that it wrote to stderr.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = wait_until(|| self.child.try_wait().unwrap());
        for reader in [&mut self.stdout, &mut self.stderr] {
            reader.thread.take().unwrap().join().unwrap();
        }
        (status, self.stderr.text())
    }
}

impl Drop for Rtad {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
