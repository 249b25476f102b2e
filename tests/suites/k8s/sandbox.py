"""A container's programs, run on this machine: its command line, environment, ConfigMaps and
Secrets as they are rendered, with folders of a temporary directory in place of what is mounted, and
a store there in place of the bucket."""

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import tomllib

from suites.k8s.rendered import name_of
from suites.testkit.process import ANY_PORTS, Process
from suites.testkit.programs import LOADER, RTAD, loader

# Not pytest's, which the container's user may not enter.
_work = tempfile.TemporaryDirectory(prefix="rtad-k8s-")
WORK = pathlib.Path(_work.name)
# As the container's user and without any privilege, where that may be had.
UNPRIVILEGED = 65532
UNPRIVILEGED_BY = f"setpriv --reuid={UNPRIVILEGED} --regid={UNPRIVILEGED} --clear-groups --no-new-privs --bounding-set=-all".split()
UNPRIVILEGED_BY = UNPRIVILEGED_BY if os.getuid() == 0 else []
SECRET = "a-secret-of-this-test"


@functools.cache
def programs():
    """Copies: the container's user may not be let into the folder that they were built in."""
    folder = WORK / "bin"
    os.chmod(WORK, 0o755)
    folder.mkdir()
    for program, name in ((RTAD, "rtad"), (LOADER, "rtad-loader")):
        shutil.copy(program, folder / name)
    return folder


class Sandbox:
    """One overlay's."""

    def __init__(self, overlay):
        self.overlay = overlay
        self.root = pathlib.Path(tempfile.mkdtemp(dir=WORK))
        self.store, self.dumps = self.root / "store", self.root / "dumps"
        self.store.mkdir()
        self.dumps.mkdir()

    def close(self):
        shutil.rmtree(self.root)

    def place(self, document, volume):
        """Where a volume's files are. Claims are one folder for all who mount them; the dev
        overlay's is the store."""
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim == "rtad-store":
            return self.store
        place = self.root / (claim or f"{document['metadata']['name']}-{volume['name']}")
        place.mkdir(exist_ok=True)
        return place

    def enter(self, document, template, container):
        """Makes what the container finds; gives its command and environment, and what turns paths
        of here into the container's."""
        spec, mounts = template["spec"], []
        for mount in container.get("volumeMounts", []):
            [volume] = [one for one in spec["volumes"] if one["name"] == mount["name"]]
            mounts.append((mount["mountPath"], volume, self.place(document, volume)))
        mounts.sort(key=lambda mount: -len(mount[0]))
        variables = self.overlay.environment(container)

        def here(text):
            for path, _, folder in mounts:
                text = re.sub(re.escape(path) + r"(?=[/\"'\s]|$)", str(folder), text)
            if "://" in variables["RTAD_STORE"]:
                text = re.sub(
                    re.escape(variables["RTAD_STORE"]) + r"(?![\w.-])", str(self.store), text
                )
            # What is left in a bucket is to be read: a dump.
            return re.sub(r"s3://[^\s\"']*/([^/\s\"']+)", rf"{self.root}/dumps/\1", text)

        for _, volume, folder in mounts:
            if "configMap" in volume:
                for name, text in self.overlay.one("ConfigMap", volume["configMap"]["name"])[
                    "data"
                ].items():
                    put_as_kubelet(folder, name, here(text))
        for path, volume, folder in mounts:
            if "secret" in volume:
                for name in self.secrets(path):
                    put_as_kubelet(folder, name, SECRET)
        environment = {name: here(value) for name, value in variables.items()}
        # Nothing is to be written but where it was told to.
        environment |= {
            "PATH": f"{programs()}:/usr/bin:/bin",
            "TMPDIR": str(self.root / "no-such-folder"),
        }
        self.hand_over()

        def there(text):
            for path, _, folder in mounts:
                text = text.replace(str(folder), path)
            return text

        return [here(word) for word in self.overlay.command(container)], environment, there

    def secrets(self, path):
        config = self.overlay.config_map("rtad-config")["data"]["rtad.toml"]
        return re.findall(re.escape(path) + r"/([^\"'\s]+)", config)

    def hand_over(self):
        """What this process has made is the container's user's from now on."""
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", f"{UNPRIVILEGED}:{UNPRIVILEGED}", self.root], check=True)

    def start(self, words, environment, **more):
        return subprocess.Popen(
            UNPRIVILEGED_BY + words, env=environment, cwd="/", text=True, **more
        )

    def run(self, words, environment, **more):
        with self.start(
            words, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
        ) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def run_container(self, name, **variables):
        """Runs the first container of the document of this name to its end."""
        [(document, template, container)] = [
            one for one in self.overlay.containers() if name_of(one[0]) == name
        ]
        words, environment, _ = self.enter(document, template, container)
        return self.run(words, environment | variables)

    def publish(self, *md5s):
        (self.dumps / "ids").write_text("".join(f"{md5}\n" for md5 in md5s))
        self.hand_over()
        words = [
            "rtad-loader",
            "build",
            "--store",
            str(self.store),
            "--audience",
            "old_users",
            str(self.dumps / "ids"),
        ]
        built = self.run(words, {"PATH": f"{programs()}:/usr/bin:/bin"})
        assert built.returncode == 0, built.stderr

    def server(self):
        [(document, template, container)] = [
            one for one in self.overlay.containers() if name_of(one[0]) == "Deployment/rtad"
        ]
        return container, *self.enter(document, template, container)

    def effective_config(self):
        """What `rtad check-config` says is in effect in the container. The file is read from stdin,
        as docs/guides/kubernetes.md has it."""
        _, words, environment, there = self.server()
        file = words[words.index("--config") + 1]
        with open(file) as stdin:
            checked = self.run(["rtad", "check-config", "/dev/stdin"], environment, stdin=stdin)
        assert checked.returncode == 0, checked.stderr
        return tomllib.loads(there(checked.stdout))

    @contextlib.contextmanager
    def serving(self):
        """rtad as the Deployment starts it, but on free ports; and the container."""
        container, words, environment, _ = self.server()
        environment |= ANY_PORTS
        command = UNPRIVILEGED_BY + words
        rtad = Process(*command, log=self.root / "log", env=environment, cwd="/")
        try:
            yield rtad, container
            assert rtad.end() == 0, rtad.text()
        finally:
            rtad.kill()


def put_as_kubelet(folder, name, text):
    """A file of a mounted ConfigMap or Secret: a link into `..data`, itself a link to a folder,
    which is what is swapped."""
    version = folder / f"..{time.monotonic_ns()}"
    version.mkdir()
    old = folder / "..data"
    if old.exists():
        for file in old.iterdir():
            shutil.copy(file, version)
    (version / name).write_text(text)
    (folder / "..data_tmp").symlink_to(version.name)
    (folder / "..data_tmp").rename(old)
    if not (folder / name).is_symlink():
        (folder / name).symlink_to(f"..data/{name}")


def live(store, audience="old_users"):
    """What the store says is live."""
    return json.loads(loader("inspect", "--store", store, "--audience", audience, "--json"))
