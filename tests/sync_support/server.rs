//! A real rtad in this process, on ports that the kernel gives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rtad::catalog::Catalog;
use rtad::config::Config;
use rtad::serve::{Running, start};
use rtad_core::snapshot::{Chunk, Snapshot};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::Client;

/// rtad, serving. Its threads end with the test's process.
pub(crate) struct Server {
    pub(crate) running: Running,
    /// Of the admin port.
    pub(crate) admin: Client,
    runtime: Runtime,
    /// What a reload reads.
    file: Arc<Mutex<Result<Config, String>>>,
}

/// A configuration by its file's text, listening on ports of the kernel's choice. The store is looked at when a test says
/// so; rtad's own limit of a second for `poll_interval` is for people.
pub(crate) fn config(store: &str, text: &str, poll_interval: Duration) -> Config {
    let flags = vec![
        ("store.url", store.to_owned()),
        ("server.listen", "127.0.0.1:0".to_owned()),
        ("server.admin_listen", "127.0.0.1:0".to_owned()),
        ("server.workers", "2".to_owned()),
    ];
    let mut config = Config::read(Some(("rtad.toml", text)), |_| None, &flags).unwrap();
    config.store.poll_interval = poll_interval;
    config
}

/// Never within a test.
pub(crate) const NEVER: Duration = Duration::from_secs(86_400);

impl Server {
    pub(crate) fn start(config: Config) -> Self {
        let file = Arc::new(Mutex::new(Ok(config.clone())));
        let read = Arc::clone(&file);
        let reread = Box::new(move || read.lock().unwrap().clone());
        // One thread besides the test's, for the acceptor.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = runtime.block_on(start(config, reread)).unwrap();
        let admin = Client::connect(running.admin_address);
        Self { running, admin, runtime, file }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// The decision port.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.running.decision_address
    }

    /// Has it look at the store now.
    pub(crate) fn look(&self) {
        self.runtime.block_on(self.running.poll());
    }

    /// Has it read this configuration, as the file would be.
    pub(crate) fn reload(&self, file: Result<Config, String>) -> Result<(), String> {
        *self.file.lock().unwrap() = file;
        self.runtime.block_on(self.running.reload()).map(drop)
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.running.serving().load_full()
    }

    /// The snapshot being served.
    pub(crate) fn snapshot(&self, audience: &str) -> Option<Arc<Snapshot>> {
        self.catalog().audience(audience)?.snapshot.clone()
    }

    /// Generation being served; 0 = none.
    pub(crate) fn generation(&self, audience: &str) -> u64 {
        self.snapshot(audience).map_or(0, |snapshot| snapshot.manifest().generation())
    }

    /// The audience's part of `/v1/status`; null if it is not served.
    pub(crate) fn status(&mut self, audience: &str) -> Value {
        let status = self.admin.json("/v1/status");
        let all = status["audiences"].as_array().unwrap();
        all.iter().find(|one| one["name"] == audience).cloned().unwrap_or_default()
    }

    /// Result and error of the last look, from `/v1/status`.
    pub(crate) fn last_sync(&mut self, audience: &str) -> (String, String) {
        let last = &self.status(audience)["last_sync"];
        let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
        (text("result"), text("error"))
    }

    pub(crate) fn is_ready(&mut self) -> bool {
        self.admin.get("/readyz").0 == 200
    }

    /// `rtad_sync_total` of the audience and result, as a scraper reads it.
    pub(crate) fn looks(&mut self, audience: &str, result: &str) -> u64 {
        let (audience, result) = (format!("audience=\"{audience}\""), format!("result=\"{result}\""));
        let (_, text) = self.admin.get("/metrics");
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("rtad_sync_total{"));
        let line = lines.find(|line| line.contains(&audience) && line.contains(&result));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// `rtad_sync_total` of the audience, over all results.
    pub(crate) fn all_looks(&mut self, audience: &str) -> u64 {
        let audience = format!("audience=\"{audience}\"");
        let (_, text) = self.admin.get("/metrics");
        let text = String::from_utf8(text).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("rtad_sync_total{"));
        let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        lines.filter(|line| line.contains(&audience)).map(count).sum()
    }
}

/// Where a chunk's filters lie: the same place means the same memory, so it was shared and not read again.
pub(crate) fn places(snapshot: &Snapshot) -> Vec<*const u8> {
    snapshot.chunks().iter().map(|chunk: &Arc<Chunk>| chunk.filters().as_ptr()).collect()
}
