"""A fresh Debian root with systemd as its first process, in namespaces of its own: no network, its
own processes, mounts and control groups."""

import contextlib
import os
import subprocess
from pathlib import Path

from suites.testkit.process import Process
from suites.testkit.waiting import wait_until

PACKAGES = "curl,systemd"
# $1 is the root, $2 a name for its control group. systemd needs a group of the second hierarchy,
# which machines with the first one do not mount.
PREPARE = """set -e
groups=$(mktemp -d)
mount -t cgroup2 none "$groups"
mkdir -p "$groups/$2"
echo $$ >"$groups/$2/cgroup.procs"
umount "$groups" && rmdir "$groups"
exec unshare --cgroup --fork --ipc --kill-child --mount --net --pid --uts bash -c "$BOOT" - "$1"
"""
BOOT = """set -e
ip link set lo up
cd "$1"
mount --bind . . && cd "$1"
mount -t proc proc proc
# The kernel's variables are those of the machine.
mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
# Not chroot: user namespaces need the root of the mount namespace.
pivot_root . mnt && cd / && umount --lazy /mnt
# Mounts of credentials come from a namespace of their own.
mount --make-rshared /
exec env -i container=test /lib/systemd/systemd --unit=multi-user.target
"""


class FreshRoot:
    """The root in `folder`. As a context manager it is booted, and ended at last."""

    def __init__(self, folder):
        self.path, self.group = folder / "root", f"rtad-packages-{os.getpid()}"
        self.log = folder / "boot.log"
        command = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={PACKAGES}", "bookworm"]
        subprocess.run([*command, self.path], check=True)

    def __enter__(self):
        command = ["bash", "-c", PREPARE, "-", self.path, self.group]
        self.process = Process(*command, log=self.log, env=os.environ | {"BOOT": BOOT})
        self.process.until("booted", self.is_booted)
        return self

    def __exit__(self, *_):
        # Its first process takes all others with it.
        with contextlib.suppress(StopIteration):
            os.kill(self.first_process(), 9)
        self.process.kill()
        groups = self.path.parent / "groups"
        groups.mkdir(exist_ok=True)
        remove = 'mount -t cgroup2 none "$1" && find "$1/$2" -depth -type d -delete 2>/dev/null'
        command = ["unshare", "--mount", "bash", "-c", remove, "-", groups, self.group]
        # After the last of its processes.
        wait_until("no control group", lambda: subprocess.run(command).returncode == 0)

    def first_process(self):
        """The child of `unshare`, as numbered outside."""
        pid = self.process.pid
        return int(next(iter(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())))

    def is_booted(self):
        # Without a first process, or before it listens.
        with contextlib.suppress(StopIteration, AssertionError):
            state = self.run("systemctl is-system-running || true").strip()
            return state in ("running", "degraded")

    def run(self, command):
        """Runs a command of bash as root inside; returns its output. Asserts success."""
        enter = ["nsenter", "--all", f"--target={self.first_process()}", "--root", "--wdns=/root"]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"]
        done = subprocess.run(
            [*enter, *clean, "bash", "-c", command], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, (
            f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
        return done.stdout
