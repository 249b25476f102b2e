//! Pod: `rtad` as a child process with a store, to kill it, limit its disk and measure its memory.

use std::path::Path;
use std::process::Command;

use testkit::client::{Client, metric_sum};
use testkit::sandbox::make_old;

use crate::rtad_process::{RTAD, Rtad};

const RULES: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";

/// A running pod. Killed on drop.
pub struct Pod {
    rtad: Rtad,
    pub(crate) admin: Client,
}

impl Pod {
    /// Starts a pod with `lines` in the config's `[store]` and waits until it serves. A shell runs
    /// `before` first.
    pub fn start(store: &str, folder: &Path, lines: &str, before: &str) -> Self {
        let file = folder.join("rtad.toml");
        let ports =
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nworkers = 1\n";
        let often = "poll_interval = \"100ms\"";
        let store = format!("[store]\nurl = {store:?}\n{often}\n{lines}\n{RULES}");
        std::fs::write(&file, format!("{ports}{store}")).unwrap();
        make_old(&file);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before} exec \"$0\" serve --config \"$1\"")]);
        shell.args([RTAD.as_ref(), file.as_os_str()]);
        let rtad = Rtad::start(&mut shell).serving().unwrap();
        let admin = rtad.connect_admin();
        Self { rtad, admin }
    }

    /// A new connection: the pod closes one that is idle for a minute, as during a slow load.
    pub fn connect(&self) -> Client {
        self.rtad.connect()
    }

    pub fn generation(&mut self) -> u64 {
        self.admin.get("/v1/status").ok()["audiences"][0]["snapshot"]["generation"]
            .as_u64()
            .unwrap_or(0)
    }

    pub fn last_sync(&mut self) -> (String, String) {
        let last = &self.admin.get("/v1/status").ok()["audiences"][0]["last_sync"];
        let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
        (text("result"), text("error"))
    }

    /// Sum over all series whose lines start with `prefix`.
    pub fn metric(&mut self, prefix: &str) -> u64 {
        metric_sum(&self.admin.get("/metrics").text(), prefix)
    }

    pub fn peak_bytes(&self) -> u64 {
        self.rtad.peak_bytes()
    }
}
