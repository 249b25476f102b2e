//! A Redis or Valkey server with its data in a temporary directory.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::port::free_port;
use crate::process;
use crate::wait_until;

/// A server, killed on drop.
#[derive(Debug)]
pub struct Redis {
    program: PathBuf,
    arguments: Vec<String>,
    /// Its port.
    pub port: u16,
    folder: TempDir,
    child: Child,
}

impl Redis {
    /// Starts a server without persistence on a free port.
    pub fn start() -> Self {
        Self::start_with("redis-server".as_ref(), free_port(), &[])
    }

    /// Starts a server that keeps what it has answered.
    pub fn start_durable() -> Self {
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        Self::start_with("redis-server".as_ref(), free_port(), &durable)
    }

    /// Starts this program on this port, with more arguments.
    pub fn start_with(program: &Path, port: u16, more: &[&str]) -> Self {
        let number = port.to_string();
        let mut arguments = vec![
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--port",
            &number,
        ];
        arguments.extend(more);
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let folder = tempfile::tempdir().unwrap();
        let child = spawn(program, &arguments, folder.path());
        let mut redis = Self {
            program: program.to_owned(),
            arguments,
            port,
            folder,
            child,
        };
        redis.wait();
        redis
    }

    fn wait(&mut self) {
        wait_until("redis answers", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
                panic!("server ended: {status}: {log}");
            }
            let mut answer = [0; 5];
            let asked = TcpStream::connect(("127.0.0.1", self.port)).and_then(|mut stream| {
                stream.write_all(b"PING\r\n")?;
                stream.read_exact(&mut answer)
            });
            asked.is_ok() && [b"+PONG", b"-NOAU"].contains(&&answer)
        });
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends a signal by name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        process::signal(self.child.id(), name);
    }

    /// Kills it. Its data are lost unless it is durable.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it on the same port.
    pub fn start_again(&mut self) {
        self.child = spawn(&self.program, &self.arguments, self.folder.path());
        self.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(program: &Path, arguments: &[String], folder: &Path) -> Child {
    let log = fs::File::create(folder.join("log")).unwrap();
    Command::new(program)
        .args(arguments)
        .args(["--dir".as_ref(), folder.as_os_str()])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "{}: {error}: apt-get install redis-server",
                program.display()
            )
        })
}
