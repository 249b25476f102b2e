//! The real service, started in this process over a store in a temporary directory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rtad::config::Config;
use rtad::serve::{Running, start};
use rtad::sync::now_unix_seconds;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuildReport, BuiltChunk, ManifestBuilder, chunk_runs, shards_per_chunk,
};
use rtad_store::write::StoreWriter;
use tokio::runtime::Runtime;
use tokio::sync::mpsc as tokio_mpsc;

use super::client::Client;

/// A member of `old_users` of each kind, in canonical form.
pub(crate) const OLD_USERS: [(&str, &str); 9] = [
    ("md5", "5f93f983524def3dca464469d2cf9f3e"),
    ("idfa", "1E2DFA89-496A-47FD-9941-DF1FC4E6484A"),
    ("imei", "a0000049395012"),
    ("oaid", "1fE9a970-efbb-29e0-0bdd-f5dbbf751ab5"),
    ("android_id", "8a3b5c7d9e0f1122"),
    ("mac", "3C:5A:B4:01:e2:f3"),
    ("caid", "d5a3f8e9b2c14f67A8E0c1d2b3f4a5e6"),
    ("gaid", "38400a60-8cf0-11bd-b23e-10b96e40000d"),
    ("openid", "oUser_4711@wx/%20"),
];

/// Also an old user, and a VIP.
pub(crate) const OLD_VIP: &str = "0b7d2c4e-91aa-4d5c-8f21-6a5b4c3d2e1f";
/// A VIP who is no old user.
pub(crate) const NEW_VIP: &str = "77c1e0d2-5b3f-4f6a-9b1d-2e4f6a8b0c1d";
/// In no audience.
pub(crate) const STRANGER: &str = "c0ffee00-1234-4abc-8def-0123456789ab";

/// The audiences and strategies of [`Server::with_everything`].
pub(crate) const RULES: &str = r#"
[[audience]]
name = "old_users"
[[audience]]
name = "vip"
[[audience]]
name = "missing"
required = false
[[audience]]
name = "too_old"
required = false
max_age = "48h"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
[[strategy]]
name = "vip-only"
include = ["vip"]
no_device = "bid"
[[strategy]]
name = "new-vip"
exclude = ["old_users"]
include = ["vip"]
[[strategy]]
name = "needs-missing"
exclude = ["missing"]
unavailable = "bid"
[[strategy]]
name = "needs-fresh"
exclude = ["too_old"]
"#;

/// Platforms over [`RULES`]: Tencent Ads, which shows a token, and Ocean Engine.
pub(crate) const PLATFORMS: &str = r#"
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { "T1001" = "new-users", "T1002" = "needs-missing" }
no_bid_cache = "24h"
headers = [{ name = "X-Rta-Token", value = "hush-hush" }]
[[platform]]
kind = "ocean"
name = "ocean"
path = "/rta/ocean"
strategies = { "10003" = "new-users" }
"#;

/// A request of Tencent Ads: id `Jo825w_uEe2xLlJUAFwvSQ`, two hashed ids. Made with protoc.
pub(crate) const TENCENT_REQUEST: &str = "0a164a6f383235775f75456532784c6c4a55414677765351\
    2a4808021a203864336562643336353466623436613238333232393636363963663162353336\
    32203833653931353861346662353463306531656630623233383633396132336165\
    50034a0408808002";
/// One of Ocean Engine that asks about 10003 and 10004, with the same two ids, of which the OAID is raw. Made with protoc.
pub(crate) const OCEAN_REQUEST: &str = "08011220386433656264333635346662343661323833323239363636396366316235333648\
    01620e32303234303631366162636465666a056c6f63616c7204934e944e78018a01480a20\
    386433656264333635346662343661323833323239363636396366316235333\
    61a2431666539613937302d656662622d323965302d306264642d663564626266373531616235";
/// The md5 of the IMEI in both.
pub(crate) const ASKED_IMEI_MD5: &str = "8d3ebd3654fb46a2832296669cf1b536";

/// The key of an id as `OLD_USERS` has it: worked out here, not by the code under test.
pub(crate) fn key(kind: &str, canonical: &str) -> DeviceKey {
    match kind {
        "md5" => DeviceKey::from_bytes(const_hex::decode_to_array(canonical).unwrap()),
        _ => DeviceKey::of_canonical(canonical.as_bytes()),
    }
}

pub(crate) fn hex(key: DeviceKey) -> String {
    const_hex::encode(key.as_bytes())
}

/// A store in a directory of its own, which goes when it is dropped.
pub(crate) struct TestStore(tempfile::TempDir);

impl TestStore {
    pub(crate) fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With all that [`RULES`] name, but what they say is missing.
    pub(crate) fn with_everything() -> Self {
        let store = Self::empty();
        let old_users: Vec<_> = OLD_USERS.iter().map(|(kind, id)| key(kind, id)).collect();
        store.publish("old_users", &[&old_users[..], &[key("oaid", OLD_VIP)]].concat());
        store.publish("vip", &[key("oaid", OLD_VIP), key("oaid", NEW_VIP)]);
        store.publish_at("too_old", &old_users, now_unix_seconds() - 49 * 3600);
        store
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A config over this store on free ports. `server` are more lines of `[server]`.
    pub(crate) fn config(&self, server: &str, rules: &str) -> String {
        let ports = "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nworkers = 1";
        // A busy machine may stop a worker for longer than the default; whoever tests that has its own.
        let patient = if server.contains("max_wait") { "" } else { "max_wait = \"1h\"\n" };
        format!(
            "[server]\n{ports}\n{patient}{server}\n[store]\nurl = {:?}\npoll_interval = \"1h\"\n{rules}",
            self.path()
        )
    }

    /// A config in a file beside the audiences.
    pub(crate) fn config_file(&self, server: &str, rules: &str) -> PathBuf {
        let file = self.path().join("rtad.toml");
        std::fs::write(&file, self.config(server, rules)).unwrap();
        file
    }

    pub(crate) fn publish(&self, audience: &str, keys: &[DeviceKey]) {
        self.publish_at(audience, keys, now_unix_seconds());
    }

    pub(crate) fn publish_at(&self, audience: &str, keys: &[DeviceKey], created_unix_seconds: u64) {
        Runtime::new().unwrap().block_on(self.publish_snapshot(audience, keys, created_unix_seconds));
    }

    async fn publish_snapshot(&self, audience: &str, keys: &[DeviceKey], created_unix_seconds: u64) {
        let writer = StoreWriter::open(self.path().to_str().unwrap()).unwrap();
        let name: AudienceName = audience.parse().unwrap();
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        let fpr = 1e-6;
        let spec = FilterSpec::for_fpr(FilterKind::Block512, fpr).unwrap();
        let publication = writer.publish(writer.base(&name).await.unwrap()).await.unwrap();
        let mut builder = ManifestBuilder::new(spec, fpr);
        for run in chunk_runs(&keys, shards_per_chunk(&spec, keys.len() as u64)) {
            let chunk = BuiltChunk::build(&spec, run);
            builder.add(&chunk);
            publication.put_chunk(chunk).await.unwrap();
        }
        let generation = publication.generation();
        let manifest = builder.finish(name, generation, created_unix_seconds, BuildReport::default());
        publication.commit(&manifest).await.unwrap();
    }
}

enum Order {
    Look(mpsc::Sender<()>),
    Drain,
}

/// rtad on free ports, on a thread and a runtime of its own.
pub(crate) struct Server {
    pub(crate) decision_address: SocketAddr,
    pub(crate) admin_address: SocketAddr,
    pub(crate) store: TestStore,
    /// What a reload reads.
    config: Arc<Mutex<String>>,
    orders: tokio_mpsc::UnboundedSender<Order>,
    thread: JoinHandle<()>,
}

fn read(text: &str) -> Result<Config, String> {
    Config::read(Some(("rtad.toml", text)), |_| None, &Vec::new()).map_err(|error| error.to_string())
}

impl Server {
    /// Serves [`TestStore::with_everything`] under [`RULES`].
    pub(crate) fn with_everything(server: &str) -> Self {
        Self::start(TestStore::with_everything(), server, RULES)
    }

    pub(crate) fn start(store: TestStore, server: &str, rules: &str) -> Self {
        let text = store.config(server, rules);
        let config = Arc::new(Mutex::new(text.clone()));
        let (orders, given) = tokio_mpsc::unbounded_channel();
        let (started, addresses) = mpsc::channel();
        let reread = Arc::clone(&config);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let reread = Box::new(move || read(&reread.lock().unwrap()));
                let running = start(read(&text).unwrap(), reread).await.unwrap();
                started.send((running.decision_address, running.admin_address)).unwrap();
                obey(running, given).await;
            });
        });
        let (decision_address, admin_address) = addresses.recv().expect("the service starts");
        Self { decision_address, admin_address, store, config, orders, thread }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.decision_address)
    }

    pub(crate) fn connect_admin(&self) -> Client {
        Client::connect(self.admin_address)
    }

    pub(crate) fn metrics(&self) -> String {
        self.connect_admin().get("/metrics").text()
    }

    /// Looks at the store now.
    pub(crate) fn look(&self) {
        let (done, looked): (_, Receiver<()>) = mpsc::channel();
        self.orders.send(Order::Look(done)).unwrap();
        looked.recv().unwrap();
    }

    /// Changes what a reload reads.
    pub(crate) fn write_config(&self, server: &str, rules: &str) {
        *self.config.lock().unwrap() = self.store.config(server, rules);
    }

    /// Begins to drain; what is returned ends when the drain has.
    pub(crate) fn drain(self) -> (JoinHandle<()>, TestStore) {
        self.orders.send(Order::Drain).unwrap();
        (self.thread, self.store)
    }
}

async fn obey(running: Running, mut orders: tokio_mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        match order {
            Order::Look(done) => {
                running.poll().await;
                done.send(()).unwrap();
            }
            Order::Drain => return running.drain().await,
        }
    }
}
