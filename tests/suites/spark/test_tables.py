"""Tables that Spark's readers would take in part, in a session of this process."""

import gzip
import importlib.util
import json
import os
import re
import sys
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest

from suites.testkit.ports import HOST
from suites.testkit.programs import LOADER, ROOT, synth

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def job(package):
    """The job as a module; workers get its functions by value."""
    from pyspark import cloudpickle

    sys.path.insert(0, str(package))

    path = ROOT / "loader/spark/build_audience.py"
    spec = importlib.util.spec_from_file_location("build_audience", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


@pytest.fixture(scope="module")
def spark(job):
    """A session of the job on a cluster that skips damaged files."""
    settings = ["spark.ui.enabled=false"]
    settings += [f"spark.driver.host={HOST}", f"spark.driver.bindAddress={HOST}"]
    for name in job.STRICT:
        settings += [f"spark.files.{name}=true", f"spark.sql.files.{name}=true"]
    words = ["--master", "local[2]", "--driver-memory", "512m"]
    words += [word for setting in settings for word in ("--conf", setting)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("PYSPARK_SUBMIT_ARGS", " ".join([*words, "pyspark-shell"]))
        session = job.start_session(SimpleNamespace(audience="users"))
        yield session
        session.stop()


@pytest.fixture
def read(job, spark, monkeypatch):
    """Reads inputs as the job does; returns the sum of the tasks' counts."""

    def read(format, *words):
        to = ["--store", "unused", "--audience", "users", "--loader", LOADER]
        command = ["build_audience.py", *to, "--format", format, *words]
        monkeypatch.setattr(sys, "argv", [str(word) for word in command])
        args = job.parse()
        reports = job.read_keys(spark, args).where(f"part = {args.parts}").collect()
        totals = dict.fromkeys(("usable", "blank", "malformed"), 0)
        for report in reports:
            for column in json.loads(bytes(report.key))["columns"]:
                for name in totals:
                    totals[name] += column[name]
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
    assert found == {"usable": 6, "malformed": 3, "blank": 3}


def test_other_headers_are_refused_without_their_names(read, tmp_path, capfd):
    ids = synth(6, "--id-kind", "oaid")
    columns = ["--column", "oaid=oaid", tmp_path]
    rows = [f"{one},{number}" for number, one in enumerate(ids)]
    # Files of any name, also compressed; a header may end with a delimiter.
    (tmp_path / "a [1] 100%.csv").write_text("\n".join(["\ufeffoaid,note,", *rows[:3]]))
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("\n".join(["", "oaid,note,", *rows[3:]]))
    (tmp_path / "empty.csv").touch()
    assert read("csv", *columns) == {"usable": 6}
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
    assert read(format, "--column", "oaid=oaid", tmp_path) == {"usable": 3}


def test_parquet_files_without_the_column_are_refused(read, tmp_path, capfd):
    ids = synth(3, "--id-kind", "oaid")

    def write(name, columns):
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / name)

    write("a 1.parquet", {"device": [{"oaid": ids[0]}], "note": [ids[0]]})
    # Spark's names of columns have no case.
    write("b.parquet", {"Device": [{"OAID": ids[1]}]})
    columns = ["--column", "device.`oaid`=oaid", tmp_path]
    assert read("parquet", *columns) == {"usable": 2}
    write("c.parquet", {"device": [{"imei": ids[2]}], "oaid": [ids[2]]})
    with pytest.raises(SystemExit, match="^3$"):
        read("parquet", *columns)
    expected = r"^error: input \S+/c\.parquet: has no column .* of ids$"
    assert re.search(expected, "".join(capfd.readouterr()), re.MULTILINE)


@pytest.mark.parametrize("format", ["lines", "csv", "json"])
def test_damaged_files_fail_where_the_cluster_skips_them(read, tmp_path, format):
    ids = synth(20_000, "--id-kind", "oaid")
    rows = [json.dumps({"oaid": one}) for one in ids] if format == "json" else ["oaid", *ids]
    whole = gzip.compress("\n".join(rows).encode())
    (tmp_path / "rows.gz").write_bytes(whole[: len(whole) // 2])
    columns = ["--id-kind", "oaid"] if format == "lines" else ["--column", "oaid=oaid"]
    with pytest.raises(Exception, match="EOFException|FAILED_READ_FILE"):
        read(format, *columns, tmp_path)


def test_damaged_parquet_fails_where_the_cluster_skips_it(read, tmp_path):
    table = pyarrow.table({"oaid": synth(20_000, "--id-kind", "oaid")})
    file = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(table, file, compression="snappy", use_dictionary=False)
    whole = file.read_bytes()
    file.write_bytes(whole[:1000] + b"\xff" * 50_000 + whole[51_000:])
    with pytest.raises(Exception, match="FAILED_READ_FILE|Parquet"):
        read("parquet", "--column", "oaid=oaid", tmp_path)


def test_session_that_skips_damaged_files_is_refused(job, spark, monkeypatch):
    conf = spark.sparkContext.getConf().set("spark.files.ignoreCorruptFiles", "true")
    monkeypatch.setattr(type(spark.sparkContext), "getConf", lambda _: conf)
    with pytest.raises(SystemExit, match="^3$"):
        job.start_session(SimpleNamespace(audience="users"))


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("_delta_log/0.json", "Delta"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
        ("metadata/columns.json", None),
    ],
)
def test_files_of_tables_are_refused(read, tmp_path, capfd, log, expected):
    table = tmp_path / "lake 1/users"
    for name in ("day=1/part-0", "_temporary/part-1", log):
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_text("\n".join(synth(5)))
    inputs = table / "day=1" if log.startswith("metadata") else tmp_path
    if expected is None:
        assert read("lines", inputs) == {"usable": 5}
        return
    for path in (inputs, table / "day=1"):
        with pytest.raises(SystemExit, match="^3$"):
            read("lines", path)
        assert f"lake 1/users: holds a table of {expected}" in capfd.readouterr().err
