//! `rtad` as a child process.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use testkit::client::Client;
use testkit::process::{self, Outcome, Service};
use testkit::sandbox::make_old;
use testkit::wait_until;

/// The program under test.
pub const RTAD: &str = env!("CARGO_BIN_EXE_rtad");

/// `rtad` with these arguments and only `variables` in its environment.
pub fn command(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(RTAD);
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied());
    command
}

/// Runs `rtad` to its end.
pub fn run(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Outcome {
    process::run(&mut command(arguments, variables), b"")
}

/// A running `rtad`.
pub struct Rtad(Service);

impl Rtad {
    pub fn start(command: &mut Command) -> Self {
        Self(Service::spawn(command))
    }

    pub fn spawn(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Self {
        Self::start(&mut command(arguments, variables))
    }

    /// Starts `rtad serve --config FILE` and waits until it serves. The file is made old: the start
    /// reads a young one twice.
    pub fn serve(file: &Path, variables: &[(&str, &str)]) -> Self {
        make_old(file);
        let rtad = Self::spawn(
            &[
                OsStr::new("serve"),
                OsStr::new("--config"),
                file.as_os_str(),
            ],
            variables,
        );
        rtad.log("decision port listens", 1);
        rtad
    }

    /// Waits until it serves; returns the log if it ends before.
    pub fn serving(mut self) -> Result<Self, String> {
        match self.0.log_unless_ended("decision port listens") {
            Some(_) => Ok(self),
            None => Err(self.wait().stderr),
        }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address("decision port listens", "decision_address"))
    }

    pub fn admin_address(&self) -> SocketAddr {
        self.address(
            "admin port listens; loading the first snapshots",
            "admin_address",
        )
    }

    pub fn connect_admin(&self) -> Client {
        Client::connect(self.admin_address())
    }

    /// Waits until readiness fails because of SIGTERM.
    pub fn is_draining(&self) {
        let mut admin = self.connect_admin();
        wait_until("it drains", || admin.get("/readyz").status == 503);
    }

    /// Waits for the end.
    pub fn wait(self) -> Outcome {
        self.0.wait()
    }
}

impl Deref for Rtad {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.0
    }
}
