//! A Redis server without persistence.

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
}

impl Redis {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        let port = free_port();
        let folder = tempfile::tempdir().unwrap();
        Self { process: spawn(port, &folder), port, folder }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it. Its data are lost.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it on the same port, empty.
    pub fn start_again(&mut self) {
        self.process = spawn(self.port, &self.folder);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(port: u16, folder: &TempDir) -> Child {
    let process = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed: apt-get install redis-server");
    wait_until("redis accepts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    process
}
