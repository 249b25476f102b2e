"""OpenAPI conformance: schemathesis sends valid and invalid requests to all ports, and fails on
answers that the descriptions in docs/reference do not contain."""

import subprocess
import sys
from pathlib import Path

import pytest

from suites.testkit.process import Process, Writer
from suites.testkit.programs import ROOT, RTAD
from suites.testkit.seeds import SEED

SPECS = ROOT / "docs/reference"
HERE = Path(__file__).parent
WINDOW = """state_dir = "state"
[[window]]
name = "clicks"
length = "24h"
capacity = 100_000
durability = "store"
[window.callback]
id = ["oaid", "muid=md5"]
[[token]]
file = "callbacks"
scopes = ["callbacks:*"]
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    work = tmp_path_factory.mktemp("openapi")
    ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    flags = ["--devices", "20000", "--dir", work / "store", *ports]
    with Process(RTAD, "demo", *flags, log=work / "log") as rtad:
        rtad.wait_for("^Stop with Ctrl-C")
        yield rtad


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("writer")
    (folder / "callbacks").write_text("callback-token-0123456789")
    with Writer(folder, WINDOW, "--every", "5ms") as writer:
        yield writer


def compare(name, tag, address, folder, *flags):
    """Compares answers of a port with docs/reference/NAME.yaml."""
    config = HERE / f"{name.replace('openapi', 'schemathesis')}.toml"
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run"]
    command += [SPECS / f"{name}.yaml", "--include-tag", tag, "--url", f"http://{address}"]
    command += ["--seed", str(SEED), *flags]
    # schemathesis leaves a cache in its working directory.
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("port, path", [("decisions", "v1/decide"), ("admin", "v1/status")])
def test_every_answer_is_described(demo, port, path, tmp_path):
    address = demo.wait_for(rf"^curl http://([^/]*)/{path}")[1]
    compare("openapi", port, address, tmp_path)


@pytest.mark.parametrize("port", ["writer", "admin"])
def test_every_answer_of_the_writer_is_described(writer, port, tmp_path):
    address = {"writer": writer.address, "admin": writer.admin}[port]
    token = f"Authorization: Bearer {writer.TOKEN}"
    compare("openapi-writer", port, address, tmp_path, "--header", token)
