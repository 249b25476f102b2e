//! rtad as a process of its own over a store: it can be killed, starved of disk, and its memory is
//! its own.

use std::path::Path;
use std::process::Command;

use testkit::client::{Client, metric_sum};

use crate::rtad_process::{RTAD, Rtad};

const RULES: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";

/// A running pod. It is killed when dropped.
pub(crate) struct Pod {
    rtad: Rtad,
    pub(crate) client: Client,
    pub(crate) admin: Client,
}

impl Pod {
    /// Over a store, with `lines` for the config's `[store]`, once it serves. A shell runs
    /// `before` first.
    pub(crate) fn start(store: &str, folder: &Path, lines: &str, before: &str) -> Self {
        Self::start_with(store, folder, &format!("{lines}\n{RULES}"), before).unwrap()
    }

    /// The same without rules, or with others at the end of `lines`; its log, if it ends instead
    /// of serving.
    pub(crate) fn start_with(
        store: &str,
        folder: &Path,
        lines: &str,
        before: &str,
    ) -> Result<Self, String> {
        let file = folder.join("rtad.toml");
        let ports =
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nworkers = 1\n";
        let store = format!("[store]\nurl = {store:?}\npoll_interval = \"100ms\"\n{lines}\n");
        std::fs::write(&file, format!("{ports}{store}")).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before} exec \"$0\" serve --config \"$1\"")]);
        shell.args([RTAD.as_ref(), file.as_os_str()]);
        let rtad = Rtad::start(&mut shell).serving()?;
        let (client, admin) = (rtad.connect(), rtad.connect_admin());
        Ok(Self { rtad, client, admin })
    }

    pub(crate) fn generation(&mut self) -> u64 {
        self.admin.get("/v1/status").ok()["audiences"][0]["snapshot"]["generation"]
            .as_u64()
            .unwrap_or(0)
    }

    pub(crate) fn last_sync(&mut self) -> (String, String) {
        let last = &self.admin.get("/v1/status").ok()["audiences"][0]["last_sync"];
        let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
        (text("result"), text("error"))
    }

    /// Sum over all series whose lines begin so.
    pub(crate) fn metric(&mut self, beginning: &str) -> u64 {
        metric_sum(&self.admin.get("/metrics").text(), beginning)
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.rtad.peak_bytes()
    }
}
