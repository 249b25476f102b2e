//! Fixture: the store, rules and platforms of most tests.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rtad::serve::Assembly;
use rtad_core::clock::now_unix_seconds;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::shards_per_chunk;
use testkit::store::{Depot, Spec};

use crate::server::Server;

/// A member of `old_users` of each kind, in canonical form.
pub const OLD_USERS: [(&str, &str); 9] = [
    ("md5", "5f93f983524def3dca464469d2cf9f3e"),
    ("idfa", "1E2DFA89-496A-47FD-9941-DF1FC4E6484A"),
    ("imei", "a0000049395012"),
    ("oaid", "1fE9a970-efbb-29e0-0bdd-f5dbbf751ab5"),
    ("android_id", "8a3b5c7d9e0f1122"),
    ("mac", "3C:5A:B4:01:e2:f3"),
    ("caid", "d5a3f8e9b2c14f67A8E0c1d2b3f4a5e6"),
    ("gaid", "38400a60-8cf0-11bd-b23e-10b96e40000d"),
    ("openid", "oUser_4711@wx/+20"),
];

/// An old user and a VIP.
pub const OLD_VIP: &str = "0b7d2c4e-91aa-4d5c-8f21-6a5b4c3d2e1f";
/// A VIP only.
pub const NEW_VIP: &str = "77c1e0d2-5b3f-4f6a-9b1d-2e4f6a8b0c1d";
/// A member of no audience.
pub const NON_MEMBER: &str = "c0ffee00-1234-4abc-8def-0123456789ab";

/// The audiences and strategies of [`FixtureServer::with_everything`].
pub const RULES: &str = r#"
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
when = "vip"
no_device = "bid"
[[strategy]]
name = "new-vip"
exclude = ["old_users"]
when = "vip"
[[strategy]]
name = "needs-missing"
exclude = ["missing"]
unavailable = "bid"
[[strategy]]
name = "needs-fresh"
exclude = ["too_old"]
"#;

/// Platforms over [`RULES`]: Tencent Ads with a token header, and Ocean Engine.
pub const PLATFORMS: &str = r#"
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

/// The key of an id of `OLD_USERS`, computed independently of the code under test.
pub fn key(kind: &str, canonical: &str) -> DeviceKey {
    match kind {
        "md5" => DeviceKey::from_bytes(const_hex::decode_to_array(canonical).unwrap()),
        _ => DeviceKey::of_canonical(canonical.as_bytes()),
    }
}

/// A store in a temporary directory.
pub struct TestStore(tempfile::TempDir);

impl TestStore {
    pub fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A store with all audiences of [`RULES`] except the missing one.
    pub fn with_everything() -> Self {
        let store = Self::empty();
        let old_users: Vec<_> = OLD_USERS.iter().map(|(kind, id)| key(kind, id)).collect();
        store.publish(
            "old_users",
            &[&old_users[..], &[key("oaid", OLD_VIP)]].concat(),
        );
        store.publish("vip", &[key("oaid", OLD_VIP), key("oaid", NEW_VIP)]);
        store.publish_at("too_old", &old_users, now_unix_seconds() - 49 * 3600);
        store
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A config with this store and free ports. `server` has more lines for `[server]`.
    pub fn config(&self, server: &str, rules: &str) -> String {
        let ports = "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nworkers = 1";
        format!(
            "[server]\n{ports}\n{server}\n[store]\nurl = {:?}\npoll_interval = \"1h\"\n\
             {rules}",
            self.path()
        )
    }

    /// The same config in a file beside the audiences.
    pub fn config_file(&self, server: &str, rules: &str) -> PathBuf {
        let file = self.path().join("rtad.toml");
        std::fs::write(&file, self.config(server, rules)).unwrap();
        file
    }

    pub fn publish(&self, audience: &str, keys: &[DeviceKey]) {
        self.publish_at(audience, keys, now_unix_seconds());
    }

    pub fn publish_at(&self, audience: &str, keys: &[DeviceKey], created_unix_seconds: u64) {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        let target_fpr = 1e-6;
        let filter = FilterSpec::for_fpr(FilterKind::Block512, target_fpr).unwrap();
        let shards_per_chunk = shards_per_chunk(&filter, keys.len() as u64);
        let spec = Spec {
            filter,
            target_fpr,
            shards_per_chunk,
            created_unix_seconds,
            ..Spec::small()
        };
        Depot::at(self.path().into()).publish(audience, &keys, &spec);
    }
}

/// The service in this process with a [`TestStore`] and one worker.
pub struct FixtureServer {
    pub(crate) store: TestStore,
    server: Server,
}

fn read(text: &str) -> Result<Assembly, String> {
    Assembly::read(Some(("rtad.toml", text)), |_| None, &Vec::new())
        .map_err(|error| error.to_string())
}

impl FixtureServer {
    /// Serves [`TestStore::with_everything`] with [`RULES`].
    pub fn with_everything(server: &str) -> Self {
        Self::start(TestStore::with_everything(), server, RULES)
    }

    pub fn start(store: TestStore, server: &str, rules: &str) -> Self {
        let server = Server::start(read(&store.config(server, rules)).unwrap());
        Self { store, server }
    }

    /// Changes the config of the next reload.
    pub fn write_config(&self, server: &str, rules: &str) {
        self.server
            .write_config(read(&self.store.config(server, rules)));
    }

    /// Starts a drain; the thread ends with it.
    pub fn drain(self) -> (JoinHandle<()>, TestStore) {
        (self.server.drain(), self.store)
    }
}

impl Deref for FixtureServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
