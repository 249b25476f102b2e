"""Decisions of rtad about random requests, against the model."""

import contextlib
import json
import re
import tomllib
from random import Random

import duckdb
import pytest

from suites.rules.client import Client
from suites.rules.configs import LOG_SECRET, PUBLISHED, SCORED, START, utc_now, write
from suites.rules.ids import MD5S, md5
from suites.rules.model import in_ranges, slots
from suites.rules.runs import Run, Store
from suites.testkit import pages
from suites.testkit.process import Rtad
from suites.testkit.programs import loader
from suites.testkit.seeds import SEED

# Requests of each protocol: 100,000 in the long runs.
CONFIGS, REQUESTS = 5, 40
LONG_RUNS, LONG_CONFIGS, LONG_REQUESTS = 40, 5, 500


def build_scored(store, name, random):
    """Builds an audience with values; returns its members and their values by md5. False positives
    would have random values, so devices are chosen anew until there are none."""
    flags = ["--format", "csv", "--column", "id", "--value", "tier", "--max-change", "any"]
    while True:
        values = {md5: random.randrange(16) for md5 in random.sample(MD5S, len(MD5S) // 3)}
        rows = "\n".join(["id,tier", *(f"{md5},{value}" for md5, value in values.items())])
        build = ["build", "--store", store, "--audience", name, "--quiet", "--filter", "ribbon"]
        loader(*build, *flags, "-", given=rows)
        query = ["query", "--store", store, "--audience", name, "-"]
        answers = loader(*query, given="\n".join(MD5S)).split("\n")
        if sum("\tmember\t" in line for line in answers) == len(values):
            return append_scored(store, name, random, values)


def append_scored(store, name, random, values):
    """Appends devices with values and without, of which some are members, and removes others."""
    write = ["--store", store, "--audience", name, "--quiet"]
    valued, plain, removed = (random.sample(MD5S, len(MD5S) // 8) for _ in range(3))
    scores = {md5: random.randrange(16) for md5 in valued}
    rows = "\n".join(["id,tier", *(f"{md5},{value}" for md5, value in scores.items())])
    flags = ["--format", "csv", "--column", "id", "--value", "tier"]
    loader("append", *write, *flags, "-", given=rows)
    loader("append", *write, "-", given="\n".join(plain))
    loader("remove", *write, "-", given="\n".join(removed))
    members = {*values, *valued, *plain} - set(removed)
    left = members - set(plain)
    return members, {md5: value for md5, value in (values | scores).items() if md5 in left}


def make_store(folder):
    random = Random(SEED)
    members = {name: set(random.sample(MD5S, len(MD5S) // 3)) for name in PUBLISHED}
    for name in [name for name in PUBLISHED if name not in SCORED]:
        given = "\n".join(sorted(members[name]))
        loader(
            "build", "--store", folder / "store", "--audience", name, "--quiet", "-", given=given
        )
    scored = {name: build_scored(folder / "store", name, random) for name in SCORED}
    members |= {name: found for name, (found, _) in scored.items()}
    values = {name: found for name, (_, found) in scored.items()}
    return Store(folder / "store", members, values, utc_now())


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("rules"))


def compare(store, folder, number, configs, moments, requests):
    """Asks about random requests of each protocol in random configs."""
    run = Run(store, folder, f"{SEED} {number}")
    run.execute(range(configs), moments, requests)
    print(f"seed {SEED}, run {number}: {dict(run.counts)}")
    assert not run.differences.counts, run.differences.text()


def test_decisions_equal_the_model(store, tmp_path):
    compare(store, tmp_path, "short", CONFIGS, 1, REQUESTS)


@pytest.mark.long
@pytest.mark.parametrize("number", range(LONG_RUNS))
def test_many_decisions_equal_the_model(store, tmp_path, number):
    compare(store, tmp_path, number, LONG_CONFIGS, 2, LONG_REQUESTS)


@pytest.mark.long
def test_spark_query_of_the_guide_finds_the_slots():
    from pyspark.sql import SparkSession

    page = (pages.ROOT / "docs/guides/run-an-ab-test.md").read_text()
    query = re.findall(r"^```sql\n(.*?)^```$", page, re.M | re.S)[1].rstrip().rstrip(";")
    config = re.search(r"^```toml\n(.*?)^```$", page, re.M | re.S)[1]
    [experiment] = tomllib.loads(config)["experiment"]
    units = [md5(f"{SEED} {number}") for number in range(3_000)]
    with SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate() as spark:
        rows = spark.createDataFrame([(unit,) for unit in units], ["unit"])
        rows.createOrReplaceTempView("devices")
        found = {row.unit: (row.layer_slot, row.slot) for row in spark.sql(query).collect()}
    assert found == {unit: slots(experiment, unit) for unit in units}


@contextlib.contextmanager
def served(store, folder, config):
    path = folder / "rtad.toml"
    write(config, path)
    (folder / "log.key").write_text(LOG_SECRET)
    flags = ["--config", path, "--store", store.folder]
    with Rtad(*flags, log=folder / "serve.log", cwd=folder) as rtad:
        yield rtad


def test_query_of_the_guide_finds_the_slots_and_buckets(store, tmp_path):
    """The DuckDB query, about the guide's experiment with its range of traffic."""
    page = (pages.ROOT / "docs/guides/run-an-ab-test.md").read_text()
    query = re.search(r"^```sql\n(.*?)^```$", page, re.M | re.S)[1]
    config = re.search(r"^```toml\n(.*?)^```$", page, re.M | re.S)[1]
    [experiment] = tomllib.loads(config)["experiment"]
    experiment["traffic"] = re.search(r'`traffic = "(.*?)"`', page)[1]
    strategy = {"name": "s", "when": {"bucket": f"{experiment['name']}:wider"}}
    config = START | {"experiment": [experiment], "strategy": [strategy]}

    def bucket(layer_slot, slot):
        found = [one["name"] for one in experiment["buckets"] if in_ranges(slot, one["slots"])]
        return found[0] if in_ranges(layer_slot, experiment["traffic"]) else "none"

    units = [md5(f"{SEED} {number}") for number in range(3_000)]
    with duckdb.connect() as database:
        database.execute("CREATE TABLE devices AS SELECT unnest(?) AS unit", [units])
        rows = database.execute(query).fetchall()
    assert {unit: (layer, slot) for unit, layer, slot in rows} == {
        unit: slots(experiment, unit) for unit in units
    }
    with served(store, tmp_path, config) as rtad, Client(rtad.decisions) as client:
        bodies = [json.dumps({"device": {"md5": unit}}).encode() for unit, *_ in rows]
        for (_, *found), answer in zip(rows, client.post("/v1/decide", bodies), strict=True):
            [decision] = json.loads(answer)["decisions"]
            assert decision["buckets"] == {experiment["name"]: bucket(*found)}
