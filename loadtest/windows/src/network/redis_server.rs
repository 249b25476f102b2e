//! Redis server: a process on a Unix socket in a temporary folder, without persistence. It ends
//! with its handle.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use redis::{Client, Connection, FromRedisValue, Pipeline, cmd};
use tempfile::TempDir;

use crate::engine::{Outcome, Server};

const START: Duration = Duration::from_secs(10);
/// One per thread of the race test.
const CONNECTIONS: usize = 2;

/// Running server with open connections.
pub(super) struct RedisServer {
    process: Child,
    connections: Vec<Mutex<Connection>>,
    /// Memory of an empty server.
    empty_bytes: u64,
    /// Removed after the server has ended.
    _folder: TempDir,
}

impl RedisServer {
    /// Starts a server, with a module if given, and waits until it answers.
    ///
    /// # Errors
    ///
    /// `redis-server` is missing, or it does not answer within ten seconds.
    pub(super) fn start(module: Option<&Path>) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(folder.path()).arg("--unixsocket").arg(&socket);
        if let Some(module) = module {
            command.arg("--loadmodule").arg(module);
        }
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server: {error}"))?;
        match connect(&socket, &mut process) {
            Ok(connections) => {
                let mut server = Self { process, connections, empty_bytes: 0, _folder: folder };
                server.empty_bytes = server.used_memory()?;
                Ok(server)
            }
            Err(error) => {
                end(&mut process);
                Err(error)
            }
        }
    }

    /// Sends a pipeline over a free connection, and returns its answers.
    pub(super) fn run<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Outcome<T> {
        Ok(pipeline.query(&mut *self.connection())?)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        for connection in &self.connections {
            match connection.try_lock() {
                Ok(free) => return free,
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.connections[0].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used_memory(&self) -> Outcome<u64> {
        let info: String = cmd("INFO").arg("memory").query(&mut *self.connection())?;
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(used.ok_or("INFO: no used_memory")?.trim().parse()?)
    }
}

impl Server for RedisServer {
    fn cpu_seconds(&self) -> Outcome<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The second field is the name in parentheses; user and system time are the 14th and 15th.
        let fields = stat.rsplit_once(')').ok_or("stat: no name")?.1.split_whitespace();
        let ticks: Vec<u64> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        Ok(ticks.iter().sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    fn memory_bytes(&self) -> Outcome<u64> {
        Ok(self.used_memory()?.saturating_sub(self.empty_bytes))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// Kills a server without waiting for its data to be freed.
fn end(process: &mut Child) {
    // Fails only if the process has ended already.
    let _ = process.kill();
    let _ = process.wait();
}

fn connect(socket: &Path, process: &mut Child) -> Outcome<Vec<Mutex<Connection>>> {
    let client = Client::open(format!("unix://{}", socket.display()))?;
    let began = Instant::now();
    loop {
        let connections: Result<Vec<_>, _> =
            (0..CONNECTIONS).map(|_| client.get_connection().map(Mutex::new)).collect();
        match connections {
            Ok(connections) => return Ok(connections),
            Err(error) if began.elapsed() > START => {
                return Err(format!("redis-server: no answer in {START:?}: {error}").into());
            }
            Err(_) => {}
        }
        if let Some(status) = process.try_wait()? {
            return Err(format!("redis-server: ended before it answered: {status}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
