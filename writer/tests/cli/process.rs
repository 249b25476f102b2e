//! Child process of `rtad-writer`, killed with its test, and access to its store.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{Current, Snapshot};
use serde_json::{Value, json};
use testkit::client::{Answer, Client};
use testkit::process::{Outcome, Service};
use testkit::sandbox::{Sandbox, command, make_old};
use testkit::store::Depot;
use testkit::wait_until;

/// Log message with the addresses.
const LISTENING: &str = "listening for writes";
pub const TOKEN: &str = "a-token-of-the-tests-0123456789";
pub const AUDIENCE: &str = "/v1/audiences/a";
pub const DEVICES: &str = "/v1/audiences/a/devices";

/// A running `rtad-writer`, killed on drop.
pub struct Serve(Service);

impl Serve {
    /// Starts with store `s` of the sandbox.
    pub fn start(sandbox: &Sandbox) -> Self {
        Self::over(sandbox, "{}/s", "--every 5ms")
    }

    pub fn over(sandbox: &Sandbox, store: &str, more: &str) -> Self {
        let tokens = sandbox.file("tokens", format!("{TOKEN}\nanother-token-0123456789\n"));
        // The start reads young files twice.
        make_old(&tokens);
        let config = sandbox.path().join("writer.toml");
        if config.exists() {
            make_old(&config);
        }
        let arguments = format!(
            "--store {store} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file \
             {{}}/tokens {more}"
        );
        Self::spawn(&mut command(sandbox.path(), &arguments))
    }

    pub fn spawn(command: &mut Command) -> Self {
        let serve = Self(Service::spawn(command));
        serve.log(LISTENING, 1);
        serve
    }

    pub fn address(&self, field: &str) -> SocketAddr {
        self.0.address(LISTENING, field)
    }

    /// Waits until this process owns its windows.
    pub fn until_owner(self) -> Self {
        wait_until("the windows are owned", || self.is_ready());
        self
    }

    /// Whether this process owns its windows.
    pub fn is_ready(&self) -> bool {
        self.admin().get("/readyz").status == 200
    }

    /// Stops it cleanly.
    pub fn stop(self) {
        self.signal("TERM");
        let outcome = self.wait();
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
    }

    pub fn connect(&self) -> Api {
        Api(Client::connect(self.address("address")))
    }

    pub fn admin(&self) -> Client {
        Client::connect(self.address("admin_address"))
    }

    pub fn metrics(&self) -> String {
        self.admin().get("/metrics").text()
    }

    pub fn kill(self) {
        self.0.kill();
    }

    pub fn wait(self) -> Outcome {
        self.0.wait()
    }
}

impl Deref for Serve {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.0
    }
}

/// A connection with the token.
pub struct Api(pub Client);

impl Api {
    pub fn ask(&mut self, method: &str, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.0.request(
            method,
            path,
            &format!("Authorization: Bearer {TOKEN}\r\n"),
            body,
        )
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, body.to_string())
    }

    pub fn binary(&mut self, path: &str, keys: &[DeviceKey]) -> Answer {
        self.binary_with("", path, keys)
    }

    /// With additional header lines.
    pub fn binary_with(&mut self, more: &str, path: &str, keys: &[DeviceKey]) -> Answer {
        let headers = format!(
            "Authorization: Bearer {TOKEN}\r\nContent-Type: application/octet-stream\r\n{more}"
        );
        let body: Vec<u8> = keys.iter().flat_map(DeviceKey::as_bytes).copied().collect();
        self.0.request("POST", path, &headers, body)
    }

    /// Sends a binary request, without waiting for the answer.
    pub fn send_binary(&mut self, path: &str, keys: &[DeviceKey]) {
        let body: Vec<u8> = keys.iter().flat_map(DeviceKey::as_bytes).copied().collect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: rtad\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: \
             application/octet-stream\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.send([head.as_bytes(), &body].concat());
    }

    /// Creates audience `a`.
    pub fn create(&mut self) {
        let answer = self.ask("PUT", AUDIENCE, "");
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// Writes ids to audience `a`.
    #[track_caller]
    pub fn write(&mut self, op: &str, ids: &[String]) -> Value {
        self.post(DEVICES, &json!({ "op": op, "ids": ids })).ok()
    }

    /// [`Self::write`], but `None` if the process was killed before acknowledging.
    pub fn try_write(&mut self, op: &str, ids: &[String]) -> Option<Value> {
        self.send_write(op, ids);
        let answer = self.0.next()?;
        (answer.status == 200).then(|| answer.json())
    }

    /// [`Self::write`], without waiting for the answer.
    pub fn send_write(&mut self, op: &str, ids: &[String]) {
        let body = json!({ "op": op, "ids": ids }).to_string();
        let head = format!(
            "POST {DEVICES} HTTP/1.1\r\nHost: rtad\r\nAuthorization: Bearer \
             {TOKEN}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.send(head + &body);
    }
}

/// The live snapshot of audience `a`, with all files verified.
pub fn snapshot(store: &str) -> Snapshot {
    Depot::over(store).read("a").unwrap()
}

/// The live snapshot in the sandbox's store.
pub fn stored(sandbox: &Sandbox) -> Snapshot {
    snapshot(&path(sandbox))
}

pub fn current(sandbox: &Sandbox) -> Current {
    Depot::over(&path(sandbox))
        .current("a")
        .expect("it was published")
}

fn path(sandbox: &Sandbox) -> String {
    let path: &Path = sandbox.path();
    path.join("s").display().to_string()
}

/// Number of members among the ids, which are md5 digests in hex.
pub fn count(snapshot: &Snapshot, ids: &[String]) -> usize {
    ids.iter().filter(|id| snapshot.contains(&key(id))).count()
}

pub fn key(id: &str) -> DeviceKey {
    DeviceKey::from_hex(id.as_bytes()).unwrap()
}
