"""OpenAPI conformance: schemathesis sends valid and invalid requests to both ports, and fails on
answers that docs/reference/openapi.yaml does not describe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suites.testkit.process import Process
from suites.testkit.programs import ROOT, RTAD
from suites.testkit.seeds import SEED

SPEC = Path(os.environ.get("OPENAPI", ROOT / "docs/reference/openapi.yaml")).resolve()
CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    work = tmp_path_factory.mktemp("openapi")
    ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    flags = ["--devices", "20000", "--dir", work / "store", *ports]
    with Process(RTAD, "demo", *flags, log=work / "log") as rtad:
        rtad.wait_for("^Stop with Ctrl-C")
        yield rtad


@pytest.mark.parametrize("port, path", [("decisions", "v1/decide"), ("admin", "v1/status")])
def test_every_answer_is_described(demo, port, path, tmp_path):
    address = demo.wait_for(rf"^curl http://([^/]*)/{path}")[1]
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(CONFIG),
        "run",
        str(SPEC),
    ]
    command += ["--include-tag", port, "--url", f"http://{address}", "--seed", str(SEED)]
    # schemathesis leaves a cache in its working directory.
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
