"""Decisions of rtad about random requests, against the model."""

import json
import re
import tomllib
from random import Random

import duckdb
import pytest

from suites.rules.configs import PUBLISHED, SCORED, START, random_config, write
from suites.rules.model import Model, in_ranges, slots
from suites.rules.protocols import MD5S, PROTOCOLS, Client, md5
from suites.testkit import pages
from suites.testkit.client import ask
from suites.testkit.process import Rtad
from suites.testkit.programs import loader
from suites.testkit.seeds import SEED

# Requests of each protocol in each config, sent in batches.
CONFIGS, REQUESTS, LONG_REQUESTS, BATCH = 20, 100, 5_000, 50


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


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A running rtad, the path of its config, the md5s of each of its audiences, and their
    values."""
    folder, random = tmp_path_factory.mktemp("rules"), Random(SEED)
    members = {name: set(random.sample(MD5S, len(MD5S) // 3)) for name in PUBLISHED}
    store, path = folder / "store", folder / "rtad.toml"
    for name in [name for name in PUBLISHED if name not in SCORED]:
        given = "\n".join(sorted(members[name]))
        loader("build", "--store", store, "--audience", name, "--quiet", "-", given=given)
    scored = {name: build_scored(store, name, random) for name in SCORED}
    members |= {name: found for name, (found, _) in scored.items()}
    values = {name: found for name, (_, found) in scored.items()}
    write(START, path)
    with Rtad("--config", path, "--store", store, log=folder / "log") as rtad:
        rtad.wait_for("decision port listens")
        yield rtad, path, members, values


def reload(rtad):
    reloaded = ask(rtad.admin, "/v1/reload", b"")
    assert reloaded.status == 200, reloaded


def compare(served, number, requests):
    """Asks about random requests of each protocol in one random config."""
    rtad, path, members, values = served
    random = Random(f"{SEED} {number}")
    config = random_config(random, number, path)
    model, names = Model(config, members, values), [one["name"] for one in config["strategy"]]
    reload(rtad)
    with Client(rtad.decisions) as client:
        for protocol in PROTOCOLS:
            for _ in range(requests // BATCH):
                made = [protocol.body(random, names) for _ in range(BATCH)]
                answers = client.post(protocol.PATH, [body for body, *_ in made])
                for (_, request, asked), answer in zip(made, answers, strict=True):
                    expected = protocol.expected(model, request, asked)
                    found = protocol.found(answer)
                    assert found == expected, f"{protocol.PATH}, {request}:\n{path.read_text()}"


@pytest.mark.parametrize("number", range(CONFIGS))
def test_decisions_equal_the_model(served, number):
    compare(served, number, REQUESTS)


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


@pytest.mark.long
@pytest.mark.parametrize("number", range(CONFIGS, 2 * CONFIGS))
def test_many_decisions_equal_the_model(served, number):
    compare(served, number, LONG_REQUESTS)


def test_query_of_the_guide_finds_the_slots_and_buckets(served):
    """The DuckDB query, about the guide's experiment with its range of traffic."""
    rtad, path, *_ = served
    page = (pages.ROOT / "docs/guides/run-an-ab-test.md").read_text()
    query = re.search(r"^```sql\n(.*?)^```$", page, re.M | re.S)[1]
    config = re.search(r"^```toml\n(.*?)^```$", page, re.M | re.S)[1]
    [experiment] = tomllib.loads(config)["experiment"]
    experiment["traffic"] = re.search(r'`traffic = "(.*?)"`', page)[1]
    strategy = {"name": "s", "when": {"bucket": f"{experiment['name']}:wider"}}
    write(START | {"experiment": [experiment], "strategy": [strategy]}, path)
    reload(rtad)

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
    with Client(rtad.decisions) as client:
        bodies = [json.dumps({"device": {"md5": unit}}).encode() for unit, *_ in rows]
        for (_, *found), answer in zip(rows, client.post("/v1/decide", bodies), strict=True):
            [decision] = json.loads(answer)["decisions"]
            assert decision["buckets"] == {experiment["name"]: bucket(*found)}
