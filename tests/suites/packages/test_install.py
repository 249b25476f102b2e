"""The commands of docs/guides/install.md, as they stand there: the package in a fresh Debian root
with systemd, the tarball, the image, the wheel, and the build from source."""

import json
import os
import shutil
import sys
import time

import pytest

from suites.packages.clone import FAST, run
from suites.packages.fresh_root import FreshRoot
from suites.packages.units import SERVICES
from suites.python import guide
from suites.testkit.pages import blocks
from suites.testkit.ports import HOST, free_port
from suites.testkit.process import Process

pytestmark = pytest.mark.long

PAGE = "docs/guides/install.md"
INSTALL, FIRST, NIGHTLY, WRITER, COMMAND = blocks(PAGE, "## Debian package")
[TARBALL] = blocks(PAGE, "## Tarball")
[IMAGE] = blocks(PAGE, "## Image")
[PYTHON] = blocks(PAGE, "## Python package")
[SOURCE] = blocks(PAGE, "## From source")


@pytest.fixture(scope="module")
def root(dist, tmp_path_factory):
    """A booted root with the package beside it, in /root."""
    folder = tmp_path_factory.mktemp("fresh")
    fresh = FreshRoot(folder)
    [package] = dist.glob("*.deb")
    shutil.copy(package, fresh.path / "root")
    with fresh:
        yield fresh
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def installed(root):
    """The root with the package installed and rtad serving; the seconds of both."""
    began = time.monotonic()
    root.run(INSTALL)
    done = time.monotonic()
    # Nothing starts by itself.
    active = root.run("systemctl is-active rtad rtad-writer rtad-loader.timer || true")
    assert active.split() == ["inactive"] * 3
    *commands, asked = FIRST.splitlines()
    request, _, expected = asked.rpartition(" # ")
    began_first = time.monotonic()
    root.run("\n".join(commands))
    assert root.run(request).strip() == expected
    seconds = time.monotonic() - began_first
    print(f"installed in {done - began:.1f} s, first decision after {seconds:.1f} s")
    return root


def test_package_answers_a_first_decision(installed):
    assert installed.run("systemctl is-active rtad").strip() == "active"
    log = installed.run("journalctl --unit rtad --output cat")
    assert '"decision port listens"' in log and '"level":"ERROR"' not in log, log
    # Not root, without a capability, and behind the filter of system calls.
    pid = installed.run("systemctl show --property MainPID --value rtad").strip()
    status = dict(
        line.split(":\t", 1) for line in installed.run(f"cat /proc/{pid}/status").splitlines()
    )
    assert status["Uid"].split()[0] != "0" and int(status["CapBnd"], 16) == 0
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"


def test_configuration_of_the_package_is_valid(installed):
    installed.run("rtad check-config /etc/rtad/rtad.toml")
    installed.run("rtad-writer check-config /etc/rtad/writer.toml")
    assert installed.run("stat --format %a /etc/rtad/environment").strip() == "600"
    listed = installed.run("cat /var/lib/dpkg/info/rtad.conffiles").split()
    assert {"/etc/rtad/rtad.toml", "/etc/rtad/environment", "/etc/rtad/build"} <= set(listed)


def test_timer_builds_and_pods_follow(installed):
    installed.run(NIGHTLY)
    installed.run("echo 5f93f983524def3dca464469d2cf9f3e >> /srv/rtad/ids.txt")
    installed.run("systemctl start rtad-loader")
    store = "--store /var/lib/rtad/store --audience old_users"
    assert '"generation":2' in installed.run(f"rtad-loader inspect {store} --json")


def test_writer_writes_into_the_same_store(installed):
    *commands, asked = WRITER.splitlines()
    installed.run("\n".join(commands))
    assert '"accepted":1' in installed.run(asked)


def test_command_leaves_the_store_to_the_services(installed):
    installed.run(COMMAND)
    users = installed.run("find /var/lib/rtad/store -printf '%u\\n' | sort -u").split()
    assert len(users) == 1 and users != ["root"], users


def test_reload_stop_and_removal(installed):
    installed.run("systemctl reload rtad && systemctl stop rtad rtad-writer")
    for name in ("rtad", "rtad-writer"):
        assert installed.run(f"systemctl show --property Result --value {name}") == "success\n"
    installed.run("apt-get remove --yes rtad")
    left = installed.run("ls /usr/bin /usr/lib/systemd/system")
    assert not [name for name in SERVICES if name in left.split()]
    assert installed.run("ls /etc/rtad/rtad.toml")


def test_tarball_runs(dist, tmp_path):
    for path in (*dist.glob("*-gnu.tar.gz"), dist / "SHA256SUMS"):
        shutil.copy(path, tmp_path)
    assert run("bash", "-ec", TARBALL, cwd=tmp_path).splitlines()[-1] == "rtad 0.1.0"


def test_image_is_loaded_and_copied_to_a_registry(dist, tmp_path):
    address, settings = f"{HOST}:{free_port()}", tmp_path / "home/.config/containers"
    settings.mkdir(parents=True)
    # The registry of the test has no certificate.
    (settings / "registries.conf").write_text(
        f"[[registry]]\nlocation = '{address}'\ninsecure = true\n"
    )
    (tmp_path / "storage.conf").write_text(
        f"[storage]\ndriver = 'vfs'\ngraphroot = '{tmp_path}/images'\nrunroot = '{tmp_path}/run'\n"
    )
    env = os.environ | {
        "HOME": str(tmp_path / "home"),
        "CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf"),
    }
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": address},
    }
    (tmp_path / "registry.json").write_text(json.dumps(config))
    serve = ["docker-registry", "serve", tmp_path / "registry.json"]
    with Process(*serve, log=tmp_path / "registry.log") as registry:
        registry.wait_for("listening on")
        run("bash", "-ec", IMAGE.replace("registry.example.com", address), cwd=dist, env=env)
        copied = run("skopeo", "inspect", f"docker://{address}/ads/rtad:0.1.0", env=env)
    assert json.loads(copied)["Labels"]["org.opencontainers.image.title"] == "rtad"
    run("podman", "image", "exists", "localhost/rtad:0.1.0", env=env)


def test_wheel_is_installed_and_makes_a_key(dist, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path)
    commands, _, expected = PYTHON.rstrip().rpartition(" # ")
    env = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    assert run("bash", "-ec", commands, cwd=dist, env=env).splitlines()[-1] == expected


def test_wheel_runs_its_guide_in_a_new_environment(dist, tmp_path):
    [wheel] = dist.glob("*.whl")
    assert "rtad.Column" in guide.run_in_new_environment(wheel, tmp_path)


def test_source_installs_the_programs(dist, tmp_path):
    clone = dist.parents[1]
    # Crates that `make dist` has compiled are used again.
    command = f". packaging/env.sh\n{SOURCE}"
    env = os.environ | FAST | {"CARGO_INSTALL_ROOT": str(tmp_path)}
    run("bash", "-ec", command, cwd=clone, env=env)
    for name in SERVICES:
        assert run(tmp_path / "bin" / name, "--version") == f"{name} 0.1.0\n"
