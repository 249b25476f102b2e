//! Child processes of the programs under test: commands run to their end, and services that can be
//! signaled and killed.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::wait::wait_until;

/// Exit code and outputs of a program that has ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code; `None` after a signal.
    pub status: Option<i32>,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

impl Outcome {
    /// Asserts success and an empty stderr.
    #[track_caller]
    pub fn succeeds(&self) -> &Self {
        assert_eq!(
            (self.status, self.stderr.as_str()),
            (Some(0), ""),
            "{self:?}"
        );
        self
    }

    /// The only line of stdout, as JSON; asserts success and an empty stderr.
    #[track_caller]
    pub fn json(&self) -> Value {
        self.succeeds();
        assert_eq!(self.stdout.lines().count(), 1, "one JSON object: {self:?}");
        serde_json::from_str(&self.stdout).expect("stdout is JSON")
    }

    /// The only line of stdout, as JSON; asserts success with a warning that contains `text`.
    #[track_caller]
    pub fn json_with_warning(&self, text: &str) -> Value {
        assert_eq!(self.status, Some(0), "{self:?}");
        let is_warning = self.stderr.starts_with("warning: ") && self.stderr.lines().count() == 1;
        assert!(is_warning && self.stderr.contains(text), "{self:?}");
        serde_json::from_str(&self.stdout).expect("stdout is JSON")
    }

    /// Asserts a failure: this exit code, one line on stderr that contains `text`, and a stdout
    /// that is empty or, with `--json`, has the failure.
    #[track_caller]
    pub fn fails(&self, status: i32, text: &str) -> &Self {
        assert_eq!(self.status, Some(status), "{self:?}");
        if !self.stdout.is_empty() {
            let failure: Value = serde_json::from_str(&self.stdout).expect("one JSON object");
            assert_eq!(failure["exit_code"], status, "{self:?}");
        }
        assert!(
            self.stderr.starts_with("error: ") && self.stderr.ends_with('\n'),
            "{self:?}"
        );
        assert_eq!(self.stderr.lines().count(), 1, "one line: {self:?}");
        assert!(
            !self.stderr.trim_end().ends_with('.'),
            "no full stop: {self:?}"
        );
        assert!(self.stderr.contains(text), "{text:?} in {self:?}");
        self
    }
}

/// Starts a command with pipes for stdin, stdout and stderr.
pub fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// Waits for a child to end.
pub fn outcome(child: Child) -> Outcome {
    let output = child.wait_with_output().expect("the program ends");
    Outcome {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

/// Runs a command with this stdin to its end.
pub fn run(command: &mut Command, stdin: &[u8]) -> Outcome {
    let mut child = spawn(command);
    // Fails if the command does not read stdin.
    let _ = child.stdin.take().expect("a piped stdin").write_all(stdin);
    outcome(child)
}

/// Peak memory of a process, in bytes.
pub fn peak_bytes(process: u32) -> u64 {
    status_bytes(&process.to_string(), "VmHWM:")
}

/// Anonymous memory of this process, in bytes: heap and filters.
pub fn anonymous_bytes() -> u64 {
    status_bytes("self", "RssAnon:")
}

fn status_bytes(process: &str, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}

/// Sends a signal by name, such as `TERM`.
pub fn signal(process: u32, name: &str) {
    // The shell's built-in `kill`: Debian's slim images have no other.
    let kill = format!("kill -{name} {process}");
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
}

/// A running service. Its outputs are read line by line. Killed on drop.
pub struct Service {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Service {
    /// Starts a command with an empty stdin.
    pub fn spawn(command: &mut Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
        }
    }

    fn event(&self, message: &str, nth: usize) -> Option<Value> {
        let lines = self.stderr.lines.lock().unwrap();
        let events = lines
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .filter(|event| event["message"] == message)
            .nth(nth - 1)
    }

    /// Waits for the `nth` log line with this message, from 1.
    #[track_caller]
    pub fn log(&self, message: &str, nth: usize) -> Value {
        wait_until(message, || self.event(message, nth))
    }

    /// Waits for a log line with this message; `None` if the process ends first.
    #[track_caller]
    pub fn log_unless_ended(&mut self, message: &str) -> Option<Value> {
        wait_until(message, || match self.event(message, 1) {
            Some(event) => Some(Some(event)),
            None => self.child.try_wait().unwrap().map(|_| None),
        })
    }

    /// Address in a field of the first log line with this message.
    #[track_caller]
    pub fn address(&self, message: &str, field: &str) -> SocketAddr {
        self.log(message, 1)[field]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Waits for a line on stdout; returns all lines until then.
    #[track_caller]
    pub fn stdout_until(&self, line: &str) -> Vec<String> {
        wait_until(line, || {
            let lines = self.stdout.lines.lock().unwrap().clone();
            lines.iter().any(|found| found == line).then_some(lines)
        })
    }

    /// Everything on stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Niceness of its first thread of this name.
    pub fn niceness(&self, thread: &str) -> Option<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let stats =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        // The name is in parentheses; the niceness is the 19th field.
        let niceness = |stat: String| {
            let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
            (name == thread).then(|| fields.split(' ').nth(16)?.parse().ok())?
        };
        stats.filter_map(niceness).next()
    }

    /// Peak memory, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        peak_bytes(self.child.id())
    }

    /// Kills it with `SIGKILL`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        let status = wait_until("the end of the process", || self.child.try_wait().unwrap());
        for lines in [&mut self.stdout, &mut self.stderr] {
            lines.thread.take().unwrap().join().unwrap();
        }
        Outcome {
            status: status.code(),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines of an output, read by a thread.
struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&lines);
        let thread = std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                shared.lock().unwrap().push(line.unwrap());
            }
        });
        Self {
            lines,
            thread: Some(thread),
        }
    }

    fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}
