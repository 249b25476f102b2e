//! Memory headroom: bytes left under the container's limit, checked before a large allocation.
//!
//! A load that does not fit is refused, instead of the kernel killing the process. Both versions of
//! cgroups are read, for every group from the process's own up to the root: the tightest limit
//! kills. The page cache counts as free, because the kernel reclaims it first. A process without a
//! limit or a cgroup refuses nothing.

use std::path::{Path, PathBuf};

/// Files of a cgroup: limit, use and statistics.
struct Version {
    /// The path below the root of the file system.
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Fields of `memory.stat` with reclaimable bytes.
    reclaimable: [&'static str; 2],
}

const V2: Version = Version {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};
const V1: Version = Version {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};

/// Larger limits mean "unlimited": version 1 writes a number near 2⁶³.
const NO_LIMIT: u64 = 1 << 60;

/// Reader of the memory limits.
#[derive(Debug, Clone)]
pub struct Headroom {
    root: PathBuf,
}

impl Default for Headroom {
    /// The limits of this process.
    fn default() -> Self {
        Self::below("/")
    }
}

impl Headroom {
    /// Limits below another file system root, for tests.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Bytes that may still be allocated; `None` without a limit. Reads a few small files.
    pub fn available_bytes(&self) -> Option<u64> {
        let groups = std::fs::read_to_string(self.root.join("proc/self/cgroup")).ok()?;
        let limits = groups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
            let version = match controllers {
                "" => &V2,
                _ if controllers
                    .split(',')
                    .any(|controller| controller == "memory") =>
                {
                    &V1
                }
                _ => return None,
            };
            self.tightest(version, group)
        });
        limits.min()
    }

    /// The least headroom of the group and its ancestors. The group's path may be the host's in a
    /// container, and then it is not mounted: the root of the mount is the container's own group.
    fn tightest(&self, version: &Version, group: &str) -> Option<u64> {
        let mount = self.root.join(version.mount);
        let own = mount.join(group.trim_start_matches('/'));
        let groups = own
            .ancestors()
            .take_while(|folder| folder.starts_with(&mount));
        groups
            .filter_map(|folder| group_headroom(version, folder))
            .min()
    }
}

fn group_headroom(version: &Version, folder: &Path) -> Option<u64> {
    // `max` does not parse: no limit.
    let limit = number_in(&folder.join(version.limit))?;
    if limit >= NO_LIMIT {
        return None;
    }
    let used = number_in(&folder.join(version.used))?;

    let statistics = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let mut reclaimable = 0_u64;
    for line in statistics.lines() {
        if let Some((field, bytes)) = line.split_once(' ')
            && version.reclaimable.contains(&field)
        {
            reclaimable += bytes.trim().parse::<u64>().unwrap_or(0);
        }
    }
    Some(limit.saturating_sub(used.saturating_sub(reclaimable)))
}

fn number_in(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with these files in it.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn available(files: &[(&str, &str)]) -> Option<u64> {
        Headroom::below(root(files).path()).available_bytes()
    }

    #[test]
    fn headroom_is_the_limit_minus_unreclaimable_use() {
        let v2 = |limit, used, stat| {
            available(&[
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", limit),
                ("sys/fs/cgroup/memory.current", used),
                ("sys/fs/cgroup/memory.stat", stat),
            ])
        };
        assert_eq!(v2("1000\n", "600\n", "anon 100\n"), Some(400));
        assert_eq!(
            v2(
                "1000\n",
                "600\n",
                "anon 300\ninactive_file 100\nactive_file 50\n"
            ),
            Some(550)
        );
        assert_eq!(v2("1000\n", "1200\n", ""), Some(0));
        assert_eq!(v2("max\n", "600\n", ""), None);
        assert_eq!(v2("1000\n", "?", ""), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let group = |folder: &str, limit| {
            let files = [("memory.max", limit), ("memory.current", "100")];
            files.map(|(file, text)| (format!("sys/fs/cgroup/{folder}{file}"), text))
        };
        let files = [
            group("", "max"),
            group("a/", "300"),
            group("a/b/", "900"),
            group("a/b/c/", "max"),
        ];
        let mut files: Vec<_> = files
            .iter()
            .flatten()
            .map(|(path, text)| (path.as_str(), *text))
            .collect();
        files.push(("proc/self/cgroup", "0::/a/b/c\n"));
        assert_eq!(available(&files), Some(200));
    }

    #[test]
    fn version_1_is_read_from_its_group_or_the_mount_root() {
        let v1 = |folder: &str, limit, used| {
            let path = |file| format!("sys/fs/cgroup/memory/{folder}{file}");
            available(&[
                (
                    "proc/self/cgroup",
                    "5:cpu,cpuacct:/pod\n4:memory:/pod/x\n0::/\n",
                ),
                (&path("memory.limit_in_bytes"), limit),
                (&path("memory.usage_in_bytes"), used),
                (
                    &path("memory.stat"),
                    "inactive_file 7\ntotal_inactive_file 10\ntotal_active_file 5\n",
                ),
            ])
        };
        assert_eq!(v1("pod/x/", "1000", "400"), Some(615));
        assert_eq!(v1("", "1000", "400"), Some(615));
        assert_eq!(v1("", "9223372036854771712", "400"), None);
    }

    #[test]
    fn without_cgroups_there_is_no_limit() {
        assert_eq!(available(&[]), None);
        assert_eq!(available(&[("proc/self/cgroup", "garbage\n0::/\n")]), None);
    }
}
