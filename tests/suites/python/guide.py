"""The guide of the Python package, docs/guides/python.md: its blocks as one program."""

import json
import re
import sys

import pyarrow
import pyarrow.parquet

from suites.python import wheel
from suites.testkit.programs import ROOT, loader, synth

PAGE = ROOT / "docs/guides/python.md"
LIBRARIES = ["numpy", "pandas", "polars", "pyarrow"]
KNOWN = "868049039501257"
CONFIG = """
[store]
url = "store"
[[audience]]
name = "old_users"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
[[platform]]
kind = "custom"
name = "tencent"
path = "/rta/tencent"
strategies = { "501" = "new-users" }
body = "json"
[platform.request]
request_id = "reqId"
strategies = "rtaIds"
ids = { imei = "device.imei" }
[platform.response]
request_id = "reqId"
verdicts = { list = "results", strategy = "rtaId", accepted = "bid" }
"""


def program():
    """The ```python blocks of the page, in order."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S))


def make_inputs(folder):
    """The files that the page reads: a store, a dump, a configuration, a request and a log."""
    imeis = [KNOWN, *synth(100, "--id-kind", "imei")]
    target = ("--store", folder / "store", "--audience", "old_users", "--id-kind", "imei")
    loader("build", *target, "--quiet", "-", given="\n".join(imeis))

    dump = pyarrow.table({"imei": imeis, "oaid": synth(101, "--id-kind", "oaid")})
    (folder / "dump").mkdir()
    pyarrow.parquet.write_table(dump, folder / "dump/1.parquet")

    (folder / "rtad.toml").write_text(CONFIG)
    request = {"reqId": "r1", "rtaIds": ["501"], "device": {"imei": KNOWN}}
    (folder / "request.bin").write_text(json.dumps(request))

    log = pyarrow.table({"platform": ["tencent"], "failure": [""], "probability": [0.01]})
    (folder / "log/day=2026-11-26").mkdir(parents=True)
    pyarrow.parquet.write_table(log, folder / "log/day=2026-11-26/pod.parquet")


def run(python, folder, **options):
    """Runs the page with this Python; returns its output. A warning is an error."""
    make_inputs(folder)
    return wheel.run(python, "-W", "error", "-c", program(), cwd=folder, **options)


def run_in_new_environment(packed, work):
    """Installs a wheel and the libraries of the page, and runs it; returns its output."""
    python = wheel.installed(packed, work)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    pinned = ["--constraint", ROOT / "tests/requirements.txt"]
    wheel.run(*pip, "--disable-pip-version-check", *pinned, *LIBRARIES)
    folder = work / "guide"
    folder.mkdir()
    return run(python, folder)
