"""Sandbox: programs of a container on this machine, with the rendered command line, environment,
ConfigMaps and Secrets. Temporary folders replace mounts and the bucket."""

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
from suites.testkit.ports import HOST, free_ports
from suites.testkit.process import ANY_PORTS, Process
from suites.testkit.programs import LOADER, RTAD, WRITER, loader

# Not tmp_path, which the container's user cannot enter.
_work = tempfile.TemporaryDirectory(prefix="rtad-k8s-")
WORK = pathlib.Path(_work.name)
# As the user of the container and without privileges, if possible.
UNPRIVILEGED = 65532
UNPRIVILEGED_BY = f"setpriv --reuid={UNPRIVILEGED} --regid={UNPRIVILEGED} --clear-groups --no-new-privs --bounding-set=-all".split()
UNPRIVILEGED_BY = UNPRIVILEGED_BY if os.getuid() == 0 else []
SECRET = "a-secret-of-this-test"


@functools.cache
def programs():
    """Copies the programs: the container's user may not reach the build folder."""
    folder = WORK / "bin"
    os.chmod(WORK, 0o755)
    folder.mkdir()
    for program in (RTAD, LOADER, WRITER):
        shutil.copy(program, folder)
    return folder


class Sandbox:
    """Sandbox of one overlay."""

    def __init__(self, overlay):
        self.overlay = overlay
        self.root = pathlib.Path(tempfile.mkdtemp(dir=WORK))
        self.store, self.dumps = self.root / "store", self.root / "dumps"
        self.store.mkdir()
        self.dumps.mkdir()

    def close(self):
        shutil.rmtree(self.root)

    def volume_path(self, document, volume):
        """Folder of a volume. A claim is one folder for all mounts; that of the dev overlay is the
        store."""
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim == "rtad-store":
            return self.store
        path = self.root / (claim or f"{document['metadata']['name']}-{volume['name']}")
        path.mkdir(exist_ok=True)
        return path

    def enter(self, document, template, container):
        """Prepares the mounts; returns command, environment, and a function that maps local paths
        to paths of the container."""
        claims = [
            {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-of-pod-0"}}
            for claim in document["spec"].get("volumeClaimTemplates", [])
            for name in [claim["metadata"]["name"]]
        ]
        volumes, mounts = template["spec"].get("volumes", []) + claims, []
        for mount in container.get("volumeMounts", []):
            [volume] = [one for one in volumes if one["name"] == mount["name"]]
            mounts.append((mount["mountPath"], volume, self.volume_path(document, volume)))
        mounts.sort(key=lambda mount: -len(mount[0]))
        variables = self.overlay.environment(container)

        def here(text):
            for path, _, folder in mounts:
                text = re.sub(re.escape(path) + r"(?=[/\"'\s]|$)", str(folder), text)
            if "://" in variables["RTAD_STORE"]:
                text = re.sub(
                    re.escape(variables["RTAD_STORE"]) + r"(?![\w.-])", str(self.store), text
                )
            # Another object of the bucket is an input: a dump.
            return re.sub(r"s3://[^\s\"']*/([^/\s\"']+)", rf"{self.root}/dumps/\1", text)

        for _, volume, folder in mounts:
            if "configMap" in volume:
                for name, text in self.overlay.one("ConfigMap", volume["configMap"]["name"])[
                    "data"
                ].items():
                    put_as_kubelet(folder, name, here(text))
        for path, volume, folder in mounts:
            if "secret" in volume:
                for name in self.secrets(path, container):
                    put_as_kubelet(folder, name, SECRET)
        # Other paths must not be written.
        environment = {"TMPDIR": str(self.root / "no-such-folder")}
        environment |= {name: here(value) for name, value in variables.items()}
        environment["PATH"] = f"{programs()}:/usr/bin:/bin"
        self.change_owner()

        def there(text):
            for path, _, folder in mounts:
                text = text.replace(str(folder), path)
            return text

        return [here(word) for word in self.overlay.command(container)], environment, there

    def secrets(self, path, container):
        """Files in this folder that the config of rtad or the command line names."""
        config = self.overlay.config_map("rtad-config")["data"]["rtad.toml"]
        named = " ".join([config, *self.overlay.command(container)])
        return sorted(set(re.findall(re.escape(path) + r"/([^\"'\s]+)", named)))

    def change_owner(self):
        """Gives all files to the container's user."""
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
        """Runs the first container of the document of this name."""
        [(document, template, container)] = [
            one for one in self.overlay.containers() if name_of(one[0]) == name
        ]
        words, environment, _ = self.enter(document, template, container)
        return self.run(words, environment | variables)

    def publish(self, *md5s):
        (self.dumps / "ids").write_text("".join(f"{md5}\n" for md5 in md5s))
        self.change_owner()
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

    @contextlib.contextmanager
    def owner(self):
        """rtad-writer as started by the StatefulSet, but on free ports: the process, the container,
        and the addresses of both ports."""
        [(document, template, container)] = [
            one for one in self.overlay.containers() if name_of(one[0]) == "StatefulSet/rtad-writer"
        ]
        words, environment, _ = self.enter(document, template, container)
        address, admin = (f"{HOST}:{port}" for port in free_ports(2))
        environment |= {"RTAD_WRITER_LISTEN": address, "RTAD_WRITER_ADMIN_LISTEN": admin}
        command = UNPRIVILEGED_BY + words
        log = self.root / f"owner-{len(list(self.root.glob('owner-*')))}.log"
        process = Process(*command, log=log, env=environment, cwd="/")
        try:
            yield process, container, address, admin
        finally:
            process.kill()

    def server(self):
        [(document, template, container)] = [
            one for one in self.overlay.containers() if name_of(one[0]) == "Deployment/rtad"
        ]
        return container, *self.enter(document, template, container)

    def effective_config(self):
        """Effective config of the container by `rtad check-config`, with the file on stdin
        as in docs/guides/kubernetes.md."""
        _, words, environment, there = self.server()
        file = words[words.index("--config") + 1]
        with open(file) as stdin:
            words = ["rtad", "check-config", "/dev/stdin"]
            checked = self.run(words, environment, stdin=stdin)
        assert checked.returncode == 0, checked.stderr
        return tomllib.loads(there(checked.stdout))

    @contextlib.contextmanager
    def serving(self):
        """rtad as started by the Deployment, but on free ports; and the container."""
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
    """Writes a file of a mounted ConfigMap or Secret: a link into `..data`, a link to a folder,
    which is swapped."""
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
    """The live generation by `rtad-loader list`."""
    return json.loads(loader("inspect", "--store", store, "--audience", audience, "--json"))
