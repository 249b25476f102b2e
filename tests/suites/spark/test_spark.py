"""Spark job compared with `rtad-loader build` of the same rows. The first `chunk` fails, and a
worker is killed. SPARK_IDS sets the number of ids. Tests run in order on one pair of
stores."""

import json
import os
import re
import time

import pytest

from suites.spark.cluster import Cluster, Rows
from suites.testkit.programs import loader
from suites.testkit.waiting import wait_until

pytestmark = pytest.mark.long

COUNT = int(os.environ.get("SPARK_IDS", 1_000_000))
KINDS = ["--column", "idfa=idfa", "--column", "imei=imei"]
WITH_DIGESTS = [*KINDS, "--column", "digest=md5"]
FACTS = ("rows", "duplicates", "rejected")


@pytest.fixture(scope="module")
def spark(tmp_path_factory, package):
    cluster = Cluster(tmp_path_factory.mktemp("spark"), package)
    yield cluster
    cluster.stop()
    print(cluster.last_warnings())


@pytest.fixture(scope="module")
def rows(spark):
    rows = Rows(spark.work, COUNT)
    for store in ("expected", "built"):
        rows.publish_past(spark.work / store)
    return rows


@pytest.fixture(scope="module")
def warehouse(spark, rows):
    """Settings of a catalog with the rows as a table; the rows are also in Parquet and JSON
    files."""
    work = spark.work
    settings = [
        "spark.sql.catalogImplementation=hive",
        f"spark.sql.warehouse.dir={work}/warehouse",
        f"spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={work}/metastore;create=true",
        f"spark.driver.extraJavaOptions=-Dderby.stream.error.file={work}/derby.log",
    ]
    spark.make_tables(rows.table, work / "parquet", work / "json", "dumps.devices", conf=settings)
    return settings


def build_expected(spark, *flags):
    to = ["--store", spark.work / "expected", "--audience", "old_users", "--quiet"]
    loader("build", *to, *flags)


def manifest(spark, store):
    to = ["--store", spark.work / store, "--audience", "old_users"]
    manifest = json.loads(loader("inspect", *to, "--json"))
    facts = {name: manifest[name] for name in ("keys", "expected_fpr", "folded")}
    facts |= {name: manifest["build"][name] for name in FACTS}
    facts["labels"] = manifest.get("labels")
    return facts | {"chunks": [chunk["digest"] for chunk in manifest["chunks"]]}


def chunks(spark, store):
    return sorted(path.name for path in (spark.work / store / "old_users/chunks").iterdir())


def assert_same(spark):
    assert manifest(spark, "built") == manifest(spark, "expected")
    assert chunks(spark, "built") == chunks(spark, "expected")


def succeeds(spark, *flags, conf=()):
    code, output = spark.job(*flags, conf=conf)
    assert code == 0, output
    return output


def test_csv_gives_the_chunks_of_a_build_after_failed_attempts(spark, rows):
    columns = ["--format", "csv", *KINDS, "--label", "dt=2026-11-21", "--label", "job=nightly"]
    columns += ["--max-change", "any"]
    build_expected(spark, *columns, *sorted(rows.table.iterdir()))
    began = time.monotonic()
    inputs = sorted(rows.table.iterdir())
    output = succeeds(spark, *columns, "--require-live", "--json", *inputs)
    assert (spark.work / "failed-chunk").is_dir(), "no chunk failed"
    assert_same(spark)
    report = json.loads(output.splitlines()[-1])
    figures = f"{report['keys']} keys of {report['values']} values in {report['chunks']} chunks"
    print(f"spark: {figures}, in {time.monotonic() - began:.0f} s")


@pytest.mark.parametrize(
    "format, folder, files, source, columns",
    [
        # A row whose only cell is blank is a row.
        ("parquet", "parquet", "*.parquet", "parquet", ["--column", "idfa=idfa"]),
        ("ndjson", "json", "*.json", "json", WITH_DIGESTS),
        ("parquet", "parquet", "*.parquet", "table", WITH_DIGESTS),
    ],
    ids=["parquet", "json", "table"],
)
def test_warehouse_tables_give_the_chunks_of_a_build(
    spark, warehouse, format, folder, files, source, columns
):
    there = spark.work / folder
    shrink = ["--max-change", "any"]
    build_expected(spark, *shrink, "--format", format, *columns, *sorted(there.glob(files)))
    table, conf = ("dumps.devices", warehouse) if source == "table" else (there, ())
    succeeds(spark, *shrink, "--format", source, *columns, table, conf=conf)
    assert_same(spark)


def test_lines_give_the_chunks_of_a_build_after_a_worker_dies(spark, rows):
    """A worker and its executor die while chunks are built; the other repeats their work."""
    build_expected(spark, "--max-change", "any", rows.a, rows.b)
    (spark.work / "slow").touch()
    with spark.start_job("--max-change", "any", rows.a, rows.b) as job:
        slowed = spark.work / "slowed"
        wait_until("a chunk begins", lambda: slowed.exists() or job.poll() is not None, 120)
        assert slowed.exists(), job.stdout.read()
        spark.workers[1].kill()
        output = job.communicate()[0]
    assert job.returncode == 0, output
    (spark.work / "slow").unlink()
    assert_same(spark)


def test_refusals_keep_their_exit_codes_and_publish_nothing(spark, rows):
    folder = spark.work / "built/old_users/records"
    records = sorted(folder.iterdir())
    code, output = spark.job("--max-change", "any", "--max-reject-ratio", "0", rows.b)
    assert code == 3, output
    assert sorted(folder.iterdir()) == records
    code, output = spark.job("--id-kind", "no_such_kind", rows.b)
    assert code == 2, output
    assert re.search(r"^error: kind .*no_such_kind", output, re.MULTILINE), output


def test_spark_log_contains_no_id(spark, rows):
    assert not re.search(r"[0-9A-F]{8}-[0-9A-F]{4}-", (spark.work / "submit.log").read_text())
