"""Fixtures: rtad with a store built by the loader."""

from pathlib import Path

import pytest

from suites.platforms import devices
from suites.testkit.process import Rtad
from suites.testkit.programs import loader

HERE = Path(__file__).parent


@pytest.fixture(scope="package")
def served(tmp_path_factory):
    work = tmp_path_factory.mktemp("platforms")
    store = work / "store"
    columns = [word for kind in devices.KINDS for word in ("--column", f"{kind}={kind}")]
    for audience in devices.AUDIENCES:
        file = devices.write_csv(audience, work)
        to = ["--store", store, "--audience", audience]
        loader("build", *to, "--quiet", "--format", "csv", *columns, file)
    with Rtad("--config", HERE / "rtad.toml", "--store", store, log=work / "log") as rtad:
        rtad.wait_for("decision port listens")
        yield rtad


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Adds the bytes sent and received to failure reports."""
    report = (yield).get_result()
    exchange = getattr(getattr(item, "instance", None), "exchange", None)
    if report.failed and exchange:
        report.sections.append(("the last exchange", str(exchange)))
