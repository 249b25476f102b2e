"""Units and configuration files of the packages, without an installation."""

import json
import re
import shutil
import subprocess
import tomllib

import pytest

from suites.k8s.rendered import quantity
from suites.k8s.sizes import BESIDE, CONNECTION, plan
from suites.packages.units import ETC, FOLDER, SERVICES, Unit, environment, size
from suites.testkit.programs import LOADER, RTAD, WRITER, loader, synth

# The scale is 0 to 10; most services of a distribution have 9.
EXPOSURE = 2.0
CONFIGS = {"rtad.toml": RTAD, "writer.toml": WRITER}


def analyze(*words):
    command = ["systemd-analyze", "--no-pager", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root with systemd's units and ours; stubs stand for the programs."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
    for path in FOLDER.iterdir():
        shutil.copy(path, root / "usr/lib/systemd/system")
    for program in ("usr/bin/rtad", "usr/bin/rtad-loader", "usr/bin/rtad-writer", "bin/sh"):
        (root / program).parent.mkdir(exist_ok=True)
        (root / program).touch(0o755)
    return root


def test_systemd_finds_no_mistake(root):
    units = [root / "usr/lib/systemd/system" / path.name for path in FOLDER.iterdir()]
    assert len(units) > len(SERVICES)
    done = analyze("verify", "--man=no", f"--root={root}", *units)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
def test_exposure_is_low(name):
    done = analyze("security", "--offline=true", FOLDER / f"{name}.service")
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found and float(found[1]) < EXPOSURE, done.stdout


def test_all_services_have_one_sandbox_and_user():
    units = [Unit(name) for name in SERVICES]
    assert len({unit.sandbox() for unit in units}) == 1
    assert {unit.one("User") for unit in units} == {"rtad"}


def checked(program, file):
    done = subprocess.run([program, "check-config", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", CONFIGS)
def test_configuration_is_valid(name):
    checked(CONFIGS[name], ETC / name)


@pytest.mark.parametrize("name", CONFIGS)
def test_configuration_with_its_comments_as_settings_is_valid(name, tmp_path):
    text = (ETC / name).read_text()
    (tmp_path / "secret").write_text("a secret of this test")
    text = re.sub(r"^#(?=\S|$)", "", text, flags=re.M)
    text = re.sub(r"/run/credentials/[^\"]+", str(tmp_path / "secret"), text)
    assert text != (ETC / name).read_text()
    (tmp_path / name).write_text(text)
    checked(CONFIGS[name], tmp_path / name)


def test_credentials_are_those_of_the_configuration():
    folder, sources = Unit("rtad").credentials()
    assert sources == {"secrets": "/etc/rtad/secrets"}
    assert f'"{folder}/secrets_tencent-token"' in (ETC / "rtad.toml").read_text()


def test_memory_fits_the_sizes():
    unit, config = Unit("rtad"), tomllib.loads(checked(RTAD, ETC / "rtad.toml"))
    server, swap = config["server"], config["store"]["swap"]
    planned = plan(unit.one("X-SizedForKeys"))
    snapshots = planned["swap_memory_bytes" if swap == "whole" else "memory_bytes"]
    connections = server["max_connections"] * CONNECTION
    buffered = 3 * quantity(server["max_buffered"].removesuffix("B"))
    needed = snapshots + BESIDE[swap] + connections + buffered
    assert needed <= size(unit.one("MemoryMax")) < 1.2 * needed

    writer = Unit("rtad-writer")
    # `add_if_absent` loads the filters; kept answers have 256 MiB by default.
    needed = plan(writer.one("X-SizedForKeys"))["memory_bytes"] + BESIDE["whole"] + (256 << 20)
    assert needed <= size(writer.one("MemoryMax")) < 1.5 * needed

    [memory] = re.findall(r"--memory=(\w+)iB", Unit("rtad-loader").text)
    assert 1.1 * size(memory) <= size(Unit("rtad-loader").one("MemoryMax"))


def test_stop_waits_for_the_drain():
    config = tomllib.loads(checked(RTAD, ETC / "rtad.toml"))
    drain = int(config["server"]["drain_timeout"].removesuffix("s"))
    assert int(Unit("rtad").one("TimeoutStopSec").removesuffix("s")) >= drain + 15


@pytest.mark.parametrize("name", ("rtad", "rtad-writer"))
def test_services_start_again_until_they_succeed(name):
    """systemd gives up by default after five starts in ten seconds."""
    unit = Unit(name)
    assert (unit.one("Restart"), unit.one("RestartSec")) == ("on-failure", "5s")
    assert unit.one("StartLimitIntervalSec") == "0"
    # Its section: another one would ignore it.
    assert unit.text.index("StartLimitIntervalSec") < unit.text.index("[Service]")


def test_build_publishes_and_continues(tmp_path):
    """The commands of rtad-loader.service: a first build is made by hand, the next by the unit."""
    (tmp_path / "ids.txt").write_text("\n".join(synth(1000)))
    variables = environment(ETC / "environment") | environment(ETC / "build")
    variables |= {"RTAD_STORE": str(tmp_path / "store"), "INPUT": str(tmp_path / "ids.txt")}
    unit = Unit("rtad-loader")
    folder = unit.one("Environment").removeprefix("TMPDIR=").replace("%C", "/var/cache")
    assert folder in unit.folders(), "keys are spilled where the service may write"
    build, gc = unit.commands(variables)
    assert build[0] == gc[0] == "/usr/bin/rtad-loader"
    refused = subprocess.run([LOADER, *build[1:]], capture_output=True, text=True)
    assert refused.returncode == 5 and not (tmp_path / "store").exists(), refused
    loader(*(word for word in build[1:] if word != "--require-live"))
    for words in (build, gc):
        loader(*words[1:])
    store = ("--store", tmp_path / "store", "--audience", variables["AUDIENCE"])
    live = json.loads(loader("inspect", *store, "--json"))
    assert live["generation"] == 2 and live["keys"] == 1000

    # A list of other devices, as of a mistyped INPUT.
    (tmp_path / "ids.txt").write_text("\n".join(synth(1000, "--offset", 1000)))
    refused = subprocess.run([LOADER, *build[1:]], capture_output=True, text=True)
    assert refused.returncode == 3 and json.loads(refused.stdout)["exit_code"] == 3, refused
    # Not repeated: the unit has failed, which the alert reads.
    assert "3" in unit.one("RestartPreventExitStatus").split()
    assert "overlap: expected at least 0.800" in refused.stderr
