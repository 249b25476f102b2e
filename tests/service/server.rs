//! The service in this process, on free ports.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rtad::catalog::Catalog;
use rtad::config::Config;
use rtad::serve::{Assembly, Running, start};
use rtad::sync::Shared;
use rtad_core::snapshot::{Chunk, Snapshot};
use serde_json::Value;
use testkit::client::{Client, metric_sum};
use tokio::runtime::Runtime;

/// A running service. Its threads end when it is dropped.
pub struct Server {
    running: Running,
    /// Connection to the admin port.
    pub(crate) admin: Client,
    runtime: Runtime,
    /// Result of the next read of the config.
    file: Arc<Mutex<Result<Assembly, String>>>,
}

/// A config from its text, on free ports. `poll_interval` may be shorter than a file allows.
pub fn config(store: &str, text: &str, poll_interval: Duration) -> Config {
    let flags = vec![
        ("store.url", store.to_owned()),
        ("server.listen", "127.0.0.1:0".to_owned()),
        ("server.admin_listen", "127.0.0.1:0".to_owned()),
        ("server.workers", "2".to_owned()),
    ];
    let mut config = Assembly::read(Some(("rtad.toml", text)), |_| None, &flags)
        .unwrap()
        .config;
    config.store.poll_interval = poll_interval;
    // A busy machine may delay sync for longer than the default.
    config.store.stall_timeout = Duration::from_secs(3600);
    config
}

/// A config, with or without platforms.
pub struct Served(pub Assembly);

impl From<Assembly> for Served {
    fn from(assembly: Assembly) -> Self {
        Self(assembly)
    }
}

impl From<Config> for Served {
    fn from(config: Config) -> Self {
        assert!(config.platforms.is_empty(), "their platforms must be built");
        Self(Assembly {
            config,
            platforms: Vec::new(),
        })
    }
}

/// A poll interval longer than any test.
pub const NEVER: Duration = Duration::from_secs(86_400);

impl Server {
    pub fn start(served: impl Into<Served>) -> Self {
        let Served(assembly) = served.into();
        let file = Arc::new(Mutex::new(Ok(assembly.clone())));
        let read = Arc::clone(&file);
        let reread = Box::new(move || read.lock().unwrap().clone());
        // One thread besides the test's, for the acceptor.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let running = runtime.block_on(start(assembly, reread)).unwrap();
        let admin = Client::connect(running.admin_address);
        Self {
            running,
            admin,
            runtime,
            file,
        }
    }

    /// Connects to the decision port.
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    pub fn connect_admin(&self) -> Client {
        Client::connect(self.running.admin_address)
    }

    /// Address of the decision port.
    pub const fn address(&self) -> SocketAddr {
        self.running.decision_address
    }

    pub const fn admin_address(&self) -> SocketAddr {
        self.running.admin_address
    }

    pub fn shared(&self) -> Shared {
        self.running.shared().clone()
    }

    pub fn metrics(&self) -> String {
        self.connect_admin().get("/metrics").text()
    }

    /// Polls the store now.
    pub fn poll(&self) {
        self.runtime.block_on(self.running.poll());
    }

    /// Changes the result of the next reading of the config.
    pub fn write_config(&self, file: Result<impl Into<Served>, String>) {
        *self.file.lock().unwrap() = file.map(|served| served.into().0);
    }

    /// Changes and reloads the config.
    pub fn reload(&self, file: Result<impl Into<Served>, String>) -> Result<(), String> {
        self.write_config(file);
        self.runtime.block_on(self.running.reload()).map(drop)
    }

    /// Starts a drain; the thread ends with it.
    pub fn drain(self) -> JoinHandle<()> {
        let Self {
            running, runtime, ..
        } = self;
        std::thread::spawn(move || runtime.block_on(running.drain()))
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.running.serving().load_full()
    }

    /// The snapshot being served.
    pub fn snapshot(&self, audience: &str) -> Option<Arc<Snapshot>> {
        self.catalog().audience(audience)?.snapshot.clone()
    }

    /// Generation being served; 0 = none.
    pub fn generation(&self, audience: &str) -> u64 {
        self.snapshot(audience)
            .map_or(0, |snapshot| snapshot.manifest().generation())
    }

    /// The audience's part of `/v1/status`; null if it is not served.
    pub fn status(&mut self, audience: &str) -> Value {
        let status = self.connect_admin().get("/v1/status").ok();
        let all = status["audiences"].as_array().unwrap();
        all.iter()
            .find(|one| one["name"] == audience)
            .cloned()
            .unwrap_or_default()
    }

    /// Result and error of the last poll, from `/v1/status`.
    pub fn last_sync(&mut self, audience: &str) -> (String, String) {
        let last = &self.status(audience)["last_sync"];
        let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
        (text("result"), text("error"))
    }

    pub fn is_ready(&mut self) -> bool {
        self.admin.get("/readyz").status == 200
    }

    /// Sum over all series whose lines start with `prefix`.
    pub fn metric(&mut self, prefix: &str) -> u64 {
        metric_sum(&self.admin.get("/metrics").text(), prefix)
    }

    /// `rtad_sync_total` of the audience and result, as a scraper reads it.
    pub fn sync_count(&mut self, audience: &str, result: &str) -> u64 {
        self.metric(&format!(
            "rtad_sync_total{{audience=\"{audience}\",result=\"{result}\"}}"
        ))
    }
}

/// Addresses of the chunks' filters; equal addresses mean shared chunks.
pub fn filter_addresses(snapshot: &Snapshot) -> Vec<*const u8> {
    snapshot
        .chunks()
        .iter()
        .map(|chunk: &Arc<Chunk>| chunk.filters().as_ptr())
        .collect()
}
