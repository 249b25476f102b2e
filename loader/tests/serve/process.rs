//! The binary as a child that does not outlive its test, and what its store holds.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, ChunkEntry, Current, Overlay, Snapshot};
use rtad_store::Store;
use serde_json::{Value, json};

use super::client::{Answer, Client, wait_until};
use super::support::{Sandbox, command};

pub(crate) const TOKEN: &str = "a-token-of-the-tests-0123456789";
pub(crate) const AUDIENCE: &str = "/v1/audiences/a";
pub(crate) const DEVICES: &str = "/v1/audiences/a/devices";

/// A running `rtad-loader serve`.
pub(crate) struct Serve {
    child: Child,
    stderr: Arc<Mutex<Vec<String>>>,
}

impl Serve {
    /// Over `s` in the sandbox.
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        Self::over(sandbox, "{}/s", "--every 5ms")
    }

    pub(crate) fn over(sandbox: &Sandbox, store: &str, more: &str) -> Self {
        sandbox.file("tokens", format!("{TOKEN}\nanother-token-0123456789\n"));
        let arguments = format!(
            "serve --store {store} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file {{}}/tokens {more}"
        );
        Self::spawn(&mut command(sandbox.path(), &arguments))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let (pipe, lines) = (child.stderr.take().unwrap(), Arc::clone(&stderr));
        std::thread::spawn(move || {
            BufReader::new(pipe).lines().for_each(|line| lines.lock().unwrap().push(line.unwrap()));
        });
        let serve = Self { child, stderr };
        serve.log("listening for writes");
        serve
    }

    /// The first log line with this message, once it is there.
    pub(crate) fn log(&self, message: &str) -> Value {
        wait_until(|| {
            let lines = self.stderr.lock().unwrap();
            let mut events = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.find(|event| event["message"] == message)
        })
    }

    /// All that it wrote.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().join("\n")
    }

    fn address(&self, field: &str) -> SocketAddr {
        self.log("listening for writes")[field].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn connect(&self) -> Api {
        Api(Client::connect(self.address("address")))
    }

    pub(crate) fn admin(&self) -> Client {
        Client::connect(self.address("admin_address"))
    }

    pub(crate) fn metrics(&self) -> String {
        self.admin().get("/metrics").text()
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        wait_until(|| self.child.try_wait().unwrap())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that shows the token.
pub(crate) struct Api(pub(crate) Client);

impl Api {
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.0.request(method, path, &format!("Authorization: Bearer {TOKEN}\r\n"), body)
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, body.to_string())
    }

    pub(crate) fn binary(&mut self, path: &str, keys: &[DeviceKey]) -> Answer {
        let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/octet-stream\r\n");
        let body: Vec<u8> = keys.iter().flat_map(DeviceKey::as_bytes).copied().collect();
        self.0.request("POST", path, &headers, body)
    }

    /// Creates audience `a`.
    pub(crate) fn create(&mut self) {
        let answer = self.ask("PUT", AUDIENCE, "");
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// Has ids written to audience `a`.
    #[track_caller]
    pub(crate) fn write(&mut self, op: &str, ids: &[String]) -> Value {
        self.post(DEVICES, &json!({ "op": op, "ids": ids })).ok()
    }

    /// The same, but the process may be killed meanwhile: `None` if it was not acknowledged.
    pub(crate) fn try_write(&mut self, op: &str, ids: &[String]) -> Option<Value> {
        self.send_write(op, ids);
        let answer = self.0.next()?;
        (answer.status == 200).then(|| answer.json())
    }

    /// The same, without waiting for the answer.
    pub(crate) fn send_write(&mut self, op: &str, ids: &[String]) {
        let body = json!({ "op": op, "ids": ids }).to_string();
        let head = format!(
            "POST {DEVICES} HTTP/1.1\r\nHost: rtad\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.send(head + &body);
    }
}

fn read<T>(work: impl AsyncFnOnce() -> T) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work())
}

/// What audience `a` is now, every file of it verified.
pub(crate) fn snapshot(store: &str) -> Snapshot {
    let audience: AudienceName = "a".parse().unwrap();
    read(async || {
        let store = Store::open(store).unwrap();
        let live = store.live(&audience).await.unwrap().expect("it was published");
        let manifest = store.manifest(&audience, &live.current).await.unwrap();
        let mut chunks = BTreeMap::new();
        let arrived = |entry: &ChunkEntry, chunk| drop(chunks.insert(entry.first_shard, Arc::new(chunk)));
        store.chunks(&audience, &manifest, manifest.chunks(), 2, arrived).await.unwrap();
        let overlay = store.overlay(&audience, &live.current, &Overlay::default()).await.unwrap();
        Snapshot::assemble(manifest, chunks.into_values().collect()).with_overlay(overlay)
    })
}

/// Of the sandbox's store.
pub(crate) fn stored(sandbox: &Sandbox) -> Snapshot {
    snapshot(&path(sandbox))
}

pub(crate) fn current(sandbox: &Sandbox) -> Current {
    let store = Store::open(&path(sandbox)).unwrap();
    read(async || store.live(&"a".parse().unwrap()).await.unwrap().expect("it was published").current)
}

fn path(sandbox: &Sandbox) -> String {
    let path: &Path = sandbox.path();
    path.join("s").display().to_string()
}

/// How many of the ids, md5s in hex, are members.
pub(crate) fn count(snapshot: &Snapshot, ids: &[String]) -> usize {
    ids.iter().filter(|id| snapshot.contains(&key(id))).count()
}

pub(crate) fn key(id: &str) -> DeviceKey {
    DeviceKey::from_hex(id.as_bytes()).unwrap()
}
