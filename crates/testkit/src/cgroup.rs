//! Files of a cgroup with a memory limit.

use rtad_core::headroom::Headroom;
use tempfile::TempDir;

/// A root directory with the files of a cgroup.
pub struct Cgroup(TempDir);

impl Cgroup {
    /// A group of which nothing is used.
    pub fn with_limit(bytes: u64) -> Self {
        let group = Self(tempfile::tempdir().unwrap());
        group.put("proc/self/cgroup", "0::/");
        group.set_limit(&bytes.to_string());
        group.set_used(0);
        group
    }

    /// The memory left below the limit.
    pub fn headroom(&self) -> Headroom {
        Headroom::below(self.0.path())
    }

    /// Sets the limit: bytes, or `max`.
    pub fn set_limit(&self, limit: &str) {
        self.put("sys/fs/cgroup/memory.max", limit);
    }

    /// Sets the memory in use.
    pub fn set_used(&self, bytes: u64) {
        self.put("sys/fs/cgroup/memory.current", &bytes.to_string());
    }

    fn put(&self, path: &str, line: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{line}\n")).unwrap();
    }
}
