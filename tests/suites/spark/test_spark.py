"""The Spark job against `rtad-loader build` of the same rows: the first try of every step fails,
and a worker is killed on the way. SPARK_IDS sets how many ids; the tests run in order, over one
pair of stores."""

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
def spark(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.stop()
    print(cluster.complaints())


@pytest.fixture(scope="module")
def rows(spark):
    rows = Rows(spark.work, COUNT)
    for store in ("expected", "built"):
        rows.publish_past(spark.work / store)
    return rows


@pytest.fixture(scope="module")
def warehouse(spark, rows):
    """The settings of a catalog in which the same rows are a table, beside them as Parquet and as
    JSON."""
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
    told = json.loads(loader("inspect", *to, "--json"))
    facts = {name: told[name] for name in ("keys", "expected_fpr", "folded")}
    facts |= {name: told["build"][name] for name in FACTS}
    return facts | {"chunks": [chunk["digest"] for chunk in told["chunks"]]}


def chunks(spark, store):
    return sorted(path.name for path in (spark.work / store / "old_users/chunks").iterdir())


def assert_same(spark):
    assert manifest(spark, "built") == manifest(spark, "expected")
    assert chunks(spark, "built") == chunks(spark, "expected")


def succeeds(spark, *flags, conf=()):
    code, said = spark.job(*flags, conf=conf)
    assert code == 0, said
    return said


def test_csv_gives_the_chunks_of_a_build_though_first_tries_fail(spark, rows):
    columns = ["--format", "csv", *KINDS]
    build_expected(spark, *columns, *sorted(rows.table.iterdir()))
    began = time.monotonic()
    said = succeeds(spark, *columns, "--json", *sorted(rows.table.iterdir()))
    for step in ("keys", "distinct", "chunk"):
        assert (spark.work / f"failed-{step}").is_dir(), f"no {step} has failed"
    assert_same(spark)
    told = json.loads(said.splitlines()[-1])
    figures = f"{told['keys']} keys of {told['values']} values in {told['chunks']} chunks"
    print(f"spark: {figures}, in {time.monotonic() - began:.0f} s")


@pytest.mark.parametrize(
    "format, folder, files, source",
    [
        ("parquet", "parquet", "*.parquet", "parquet"),
        ("ndjson", "json", "*.json", "json"),
        ("parquet", "parquet", "*.parquet", "table"),
    ],
    ids=["parquet", "json", "table"],
)
def test_a_warehouse_gives_the_chunks_of_a_build(spark, warehouse, format, folder, files, source):
    there = spark.work / folder
    shrink = ["--max-shrink", "1"]
    build_expected(spark, *shrink, "--format", format, *WITH_DIGESTS, *sorted(there.glob(files)))
    place, conf = ("dumps.devices", warehouse) if source == "table" else (there, ())
    succeeds(spark, *shrink, "--format", source, *WITH_DIGESTS, place, conf=conf)
    assert_same(spark)


def test_lines_give_the_chunks_of_a_build_though_a_worker_dies(spark, rows):
    """It dies with its executor while keys are made distinct: what it held is made again by the
    other."""
    build_expected(spark, "--max-shrink", "1", rows.a, rows.b)
    (spark.work / "slow").touch()
    with spark.start_job("--max-shrink", "1", rows.a, rows.b) as job:
        slowed = spark.work / "slowed"
        wait_until("distinct begins", lambda: slowed.exists() or job.poll() is not None, 120)
        assert slowed.exists(), job.stdout.read()
        spark.workers[1].kill()
        said = job.communicate()[0]
    assert job.returncode == 0, said
    (spark.work / "slow").unlink()
    assert_same(spark)


def test_refusals_keep_their_exit_codes_and_publish_nothing(spark, rows):
    current = spark.work / "built/old_users/CURRENT"
    before = current.read_bytes()
    code, said = spark.job("--max-shrink", "1", "--max-reject-ratio", "0", rows.b)
    assert code == 3, said
    assert current.read_bytes() == before
    code, said = spark.job("--id-kind", "no_such_kind", rows.b)
    assert code == 2, said
    assert re.search(r"^error: .*\(rtad-loader keys, in an executor\)", said, re.MULTILINE), said


def test_no_id_is_in_spark_s_log(spark, rows):
    assert not re.search(r"[0-9A-F]{8}-[0-9A-F]{4}-", (spark.work / "submit.log").read_text())
