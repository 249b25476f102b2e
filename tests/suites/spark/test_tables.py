"""Tables that Spark's readers would take in part, in a session of this process."""

import collections
import gzip
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

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
    """Reads inputs as the job does; returns the sum of the counts, or those of each file by its
    name."""

    def read(format, *words, by_file=False):
        to = ["--store", "unused", "--audience", "users", "--loader", LOADER]
        command = ["build_audience.py", *to, "--format", format, *words]
        monkeypatch.setattr(sys, "argv", [str(word) for word in command])
        args = job.parse()
        keys, names = job.read_keys(spark, args)
        lines = [bytes(row.key) for row in keys.where(f"part = {args.parts}").collect()]
        counts = collections.defaultdict(collections.Counter)
        for report in map(json.loads, job.with_names(lines, names)):
            counts[report["input"]]["rows"] += report["rows"]
            for column in report["columns"]:
                for name in ("usable", "blank", "malformed"):
                    counts[report["input"]][name] += column[name]
        if by_file:
            return {Path(unquote(name)).name: dict(+of_file) for name, of_file in counts.items()}
        total = sum(counts.values(), collections.Counter())
        del total["rows"]
        return dict(total)

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


@pytest.mark.parametrize("format", ["lines", "csv", "json", "parquet"])
def test_counts_are_of_each_file(read, tmp_path, format):
    ids = synth(30, "--id-kind", "oaid")
    files = {"a 1": [*ids[:9], ""], "b%": [*ids[9:20], "not an oaid"], "ü": ids[20:]}
    for name, some in files.items():
        file = tmp_path / name
        if format == "parquet":
            pyarrow.parquet.write_table(pyarrow.table({"oaid": some}), file)
            continue
        rows = some
        if format == "json":
            rows = [json.dumps({"oaid": one}) for one in some]
        if format == "csv":
            # Spark skips blank lines.
            rows = ["oaid,number", *(f"{one},1" for one in some)]
        file.write_text("\n".join(rows) + "\n")
    columns = ["--id-kind", "oaid"] if format == "lines" else ["--column", "oaid=oaid"]
    assert read(format, *columns, tmp_path, by_file=True) == {
        "a 1": {"rows": 10, "usable": 9, "blank": 1},
        "b%": {"rows": 12, "usable": 11, "malformed": 1},
        "ü": {"rows": 10, "usable": 10},
    }


def test_columns_of_other_types_are_refused_by_their_names(read, tmp_path, capfd):
    row = {"oaid": synth(1, "--id-kind", "oaid")[0], "list": ["1"], "double": 1.5, "imei": 1}
    (tmp_path / "rows.json").write_text(json.dumps(row))
    columns = ["--column", "oaid=oaid", "--column", "imei=imei"]
    read("json", *columns, tmp_path)
    for name, found in {"list": "array<string>", "double": "double"}.items():
        with pytest.raises(SystemExit, match="^3$"):
            read("json", *columns, "--column", f"{name}=imei", tmp_path)
        expected = f'error: column "{name}": has type {found}: expected text, '
        assert expected in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "option", ["ignoreCorruptFiles 'TRUE'", "ignoremissingfiles 'true'", "mode 'DROPMALFORMED'"]
)
def test_tables_whose_options_skip_rows_are_refused(read, spark, tmp_path, option, capfd):
    (tmp_path / "rows.csv").write_text("oaid\n" + "\n".join(synth(5, "--id-kind", "oaid")))
    columns = ["--column", "oaid=oaid"]
    try:
        for name, options in {"strict": "header 'true'", "lax": f"header 'true', {option}"}.items():
            spark.sql(f"CREATE TABLE {name} USING csv OPTIONS ({options}) LOCATION '{tmp_path}'")
        spark.sql("CREATE VIEW lax_view AS SELECT oaid FROM lax")
        assert read("table", *columns, "strict") == {"usable": 5}
        spark.sql("CREATE VIEW joined AS SELECT a.oaid FROM strict a JOIN strict b USING (oaid)")
        assert read("table", *columns, "joined", by_file=True) == {
            "joined": {"rows": 5, "usable": 5}
        }
        for name in ("lax", "lax_view"):
            with pytest.raises(SystemExit, match="^3$"):
                read("table", *columns, "strict", name)
            found = "".join(capfd.readouterr())
            refused = option.split()[0].lower()
            assert f"error: input strict, {name}: option {refused} of a table: " in found
    finally:
        for name in ("joined", "lax_view"):
            spark.sql(f"DROP VIEW IF EXISTS {name}")
        for name in ("lax", "strict"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
