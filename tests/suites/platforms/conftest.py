"""Fixture: rtad with a store built by the loader. One device of each kind is a member of
`old_users`, one of `vip`; their md5s are made with Python's hashlib."""

import hashlib
from pathlib import Path

import pytest

from suites.testkit.process import Rtad
from suites.testkit.programs import loader

HERE = Path(__file__).parent
# The published example requests have these ids.
IMEI, OAID = "868049039501257", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"
# Raw ids by kind.
OLD = {
    "idfa": "1E2DFA89-496A-47FD-9941-DF1FC4E6484A",
    "imei": "868049039501251",
    "oaid": "1fe9a970-efbb-29e0-0bdd-f5dbbf751aB1",
    "android_id": "8d3ebd3654fb46a2",
    "mac": "8C:85:90:11:22:33",
    "caid": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "gaid": "cdda802e-fb9c-47ad-9866-0794d394c912",
    "openid": "oLVPpjqs9BhvzwPj5A-vTYAX3GLc",
}
# Each last character differs.
NEW = {kind: raw[:-1] + {"3": "4"}.get(raw[-1], "3") for kind, raw in OLD.items()}
VIP = {kind: raw[:-1] + {"8": "9"}.get(raw[-1], "8") for kind, raw in OLD.items()}


def md5(raw):
    return hashlib.md5(raw.encode()).hexdigest()


@pytest.fixture(scope="package")
def served(tmp_path_factory):
    work = tmp_path_factory.mktemp("platforms")
    store = work / "store"
    audiences = {"old_users": OLD, "vip": VIP, "example": {"imei": IMEI}}
    for audience, ids in audiences.items():
        rows = [",".join(ids), ",".join(ids.values()), ""]
        (work / f"{audience}.csv").write_text("\n".join(rows))
        columns = [word for kind in ids for word in ("--column", f"{kind}={kind}")]
        to = ["--store", store, "--audience", audience, "--quiet", "--format", "csv"]
        loader("build", *to, *columns, work / f"{audience}.csv")
    with Rtad("--config", HERE / "rtad.toml", "--store", store, log=work / "log") as rtad:
        rtad.wait_for("decision port listens")
        yield rtad
