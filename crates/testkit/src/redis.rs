//! A Redis server, with or without persistence.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::port::free_port;
use crate::wait_until;

/// A Redis server, ended on drop.
#[derive(Debug)]
pub struct Redis {
    process: Child,
    port: u16,
    folder: TempDir,
    is_durable: bool,
}

impl Redis {
    /// Starts a server without persistence on a free port.
    pub fn start() -> Self {
        Self::start_on_free_port(false)
    }

    /// Starts a server that keeps what it has answered.
    pub fn start_durable() -> Self {
        Self::start_on_free_port(true)
    }

    fn start_on_free_port(is_durable: bool) -> Self {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        Self { process: spawn(port, &folder, is_durable), port, folder, is_durable }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it. Its data are lost unless it is durable.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it on the same port.
    pub fn start_again(&mut self) {
        self.process = spawn(self.port, &self.folder, self.is_durable);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(port: u16, folder: &TempDir, is_durable: bool) -> Child {
    let log = if is_durable { "yes" } else { "no" };
    let process = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--save", "", "--appendonly", log])
        .args(["--appendfsync", "always", "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed: apt-get install redis-server");
    wait_until("redis accepts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    process
}
