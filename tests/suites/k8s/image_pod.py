"""Programs of the image, run as in a pod: as its user, with a read-only root.

unshare --mount python3 -m suites.k8s.image_pod ROOT USER    # in a mount namespace of its own
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

from suites.testkit import programs
from suites.testkit.process import ANY_PORTS, Process

# As in the image.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def main():
    root, user = sys.argv[1:]
    mount("--bind", root, root)
    mount("-t", "proc", "proc", f"{root}/proc")
    mount("--rbind", "/dev", f"{root}/dev")
    mount("-o", "remount,bind,ro", root)
    mount("-t", "tmpfs", "-o", "mode=777", "none", f"{root}/mnt")
    # Outside, as its user cannot write inside.
    with contextlib.suppress(OSError):
        pathlib.Path(root, "opt/x").touch()
        sys.exit("the root can be written")
    config = programs.ROOT / "tests/suites/k8s/image_rtad.toml"
    shutil.copy(config, f"{root}/mnt/rtad.toml")

    inside = ["chroot", f"--userspec={user}", root]

    def run(*words):
        subprocess.run([*inside, *words], check=True, env={"PATH": PATH})

    for audience in ("old_users", "vip", "example"):
        run("bash", "-c", "rtad-loader synth --count 1000 >/mnt/ids")
        to = ["--store", "/mnt/store", "--audience", audience]
        run("rtad-loader", "build", "--quiet", *to, "/mnt/ids")
    run("rtad-loader", "list", "--store", "/mnt/store")
    serve(inside, root, "/mnt/store")
    serve(inside, root, "https://127.0.0.1:1/none")


def serve(inside, root, store):
    env = {"PATH": PATH, "RTAD_STORE": store} | ANY_PORTS
    log = pathlib.Path(root, "mnt", f"log-{os.urandom(4).hex()}")
    rtad = Process(*inside, "rtad", "serve", "--config", "/mnt/rtad.toml", log=log, env=env)
    try:
        rtad.wait_for('"decision port listens"')
        assert rtad.end() == 0, rtad.text()
    finally:
        rtad.kill()
        print(rtad.text())


if __name__ == "__main__":
    main()
