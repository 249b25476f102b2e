//! rtad as a process of its own: it can be killed, starved of disk, and its memory is its own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::Client;

const RULES: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";

/// A metric's value, summed over all series whose line begins so.
pub(crate) fn sum(metrics: &str, beginning: &str) -> u64 {
    let values = metrics.lines().filter(|line| line.starts_with(beginning));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

pub(crate) struct Pod {
    child: Child,
    pub(crate) client: Client,
    pub(crate) admin: Client,
}

impl Pod {
    /// Over a store, with `lines` for the config's `[store]`, once it serves. `before` is what a shell does first.
    pub(crate) fn start(store: &str, folder: &std::path::Path, lines: &str, before: &str) -> Self {
        Self::start_with(store, folder, &format!("{lines}\n{RULES}"), before).unwrap()
    }

    /// The same without rules, or with others at the end of `lines`; what it logged, if it ends instead of serving.
    pub(crate) fn start_with(
        store: &str,
        folder: &std::path::Path,
        lines: &str,
        before: &str,
    ) -> Result<Self, String> {
        let file = folder.join("rtad.toml");
        let ports = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nworkers = 1\n";
        let store = format!("[store]\nurl = {store:?}\npoll_interval = \"100ms\"\n{lines}\n");
        std::fs::write(&file, format!("{ports}{store}")).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &format!("{before} exec \"$0\" serve --config \"$1\"")])
            .args([env!("CARGO_BIN_EXE_rtad").as_ref(), file.as_os_str()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut decision, mut admin) = (None, None);
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        while decision.is_none() || admin.is_none() {
            let Some(line) = log.next() else {
                child.wait().unwrap();
                return Err(said);
            };
            let line = line.unwrap();
            said.push_str(&line);
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            let address = |field: &str| event[field].as_str().map(|text| text.parse::<SocketAddr>().unwrap());
            decision = decision.or(address("decision_address"));
            admin = admin.or(address("admin_address"));
        }
        // Read on, or the pipe fills up.
        std::thread::spawn(move || log.for_each(drop));
        let [client, admin] = [decision, admin].map(|address| Client::connect(address.unwrap()));
        Ok(Self { child, client, admin })
    }

    pub(crate) fn generation(&mut self) -> u64 {
        self.admin.json("/v1/status")["audiences"][0]["snapshot"]["generation"].as_u64().unwrap_or(0)
    }

    pub(crate) fn last_sync(&mut self) -> (String, String) {
        let last = &self.admin.json("/v1/status")["audiences"][0]["last_sync"];
        let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
        (text("result"), text("error"))
    }

    pub(crate) fn metric(&mut self, name: &str) -> u64 {
        let (_, text) = self.admin.get("/metrics");
        sum(&String::from_utf8(text).unwrap(), name)
    }

    /// The most memory that it ever had.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }
}

impl Drop for Pod {
    /// Without a word, as the kernel kills.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
