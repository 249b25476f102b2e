"""Tables that Spark's readers would take in part, in a session of this process."""

import gzip
import importlib.util
import json
import os
import re
import sys

import pyarrow
import pyarrow.parquet
import pytest

from suites.testkit.ports import HOST
from suites.testkit.programs import LOADER, ROOT, synth

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def job():
    """The job as a module; workers get its functions by value."""
    from pyspark import cloudpickle

    path = ROOT / "loader/spark/build_audience.py"
    spec = importlib.util.spec_from_file_location("build_audience", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


@pytest.fixture(scope="module")
def spark(job):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = job.SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.driver.memory": "512m",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def read(job, spark, monkeypatch):
    """Reads inputs as the job does; returns the sum of the partitions' counts."""

    def read(format, *words):
        to = ["--store", "unused", "--audience", "users", "--loader", LOADER]
        command = ["build_audience.py", *to, "--format", format, *words]
        monkeypatch.setattr(sys, "argv", [str(word) for word in command])
        totals = {}
        for report in map(json.loads, job.reports(job.read_keys(spark, job.parse()))):
            found = {"keys": report["keys"], **report["rejected"]}
            for name, count in found.items():
                totals[name] = totals.get(name, 0) + count
        return {name: count for name, count in totals.items() if count}

    return read


def test_malformed_json_rows_are_malformed_ids(read, tmp_path):
    ids = synth(6, "--id-kind", "openid")
    rows = [json.dumps({"openid": one, "other": one}) for one in ids]
    rows[1] = rows[1][:-1]
    rows[2] = f'"{ids[2]}"'
    rows[3] = ids[3]
    (tmp_path / "rows.json").write_text("\n".join(rows) + "\n")
    columns = ["--column", "openid=openid", "--column", "other=openid"]
    # The second cell of a malformed row is blank.
    found = read("json", *columns, tmp_path)
    assert found == {"keys": 6, "malformed": 3, "blank": 3}


def test_other_headers_are_refused_without_their_names(read, tmp_path, capfd):
    ids = synth(6, "--id-kind", "oaid")
    columns = ["--column", "oaid=oaid", tmp_path]
    rows = [f"{one},{number}" for number, one in enumerate(ids)]
    # Files of any name, also compressed; a header may end with a delimiter.
    (tmp_path / "a [1] 100%.csv").write_text("\n".join(["\ufeffoaid,note,", *rows[:3]]))
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("\n".join(["", "oaid,note,", *rows[3:]]))
    (tmp_path / "empty.csv").touch()
    assert read("csv", *columns) == {"keys": 6}
    other = tmp_path / "other.csv"
    for lines in (["note,oaid,", "1,2"], rows):
        other.write_text("\n".join(lines))
        with pytest.raises(SystemExit, match="^3$"):
            read("csv", *columns)
    with pytest.raises(SystemExit, match="^3$"):
        read("csv", "--column", "oaid=oaid", other)
    written = "".join(capfd.readouterr())
    assert re.findall("^error: .*", written, re.MULTILINE)[2:] == [
        'error: no input has a column "oaid": expected a header row with it'
    ]
    assert written.count(": has another header than ") == 2
    assert not any(one in written for one in ids)


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_files_in_subfolders_are_read(read, tmp_path, format):
    ids = synth(4, "--id-kind", "oaid")
    for one, folder in zip(ids, ("", "part", "dt=2026-11-21/hour=07", "_temporary")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        file = tmp_path / folder / f"a.{format}"
        if format == "parquet":
            pyarrow.parquet.write_table(pyarrow.table({"oaid": [one]}), file)
        else:
            file.write_text(f"oaid\n{one}\n" if format == "csv" else json.dumps({"oaid": one}))
    assert read(format, "--column", "oaid=oaid", tmp_path) == {"keys": 3}
