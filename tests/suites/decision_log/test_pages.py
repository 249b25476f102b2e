"""Pages about the decision log, against the files of a pod."""

import hashlib
import hmac
import json
import re
import tomllib
from collections import Counter
from math import sqrt

import duckdb
import pandas
import pyarrow.parquet
import pytest

from suites.decision_log.pod import RULES, SECRET, TOKEN, Pod, about, closed, imei, make_store
from suites.testkit import pages
from suites.testkit.client import ask
from suites.testkit.stubs import tencent_pb2

REFERENCE = (pages.ROOT / "docs/reference/decision-log.md").read_text()
GUIDE = (pages.ROOT / "docs/guides/read-the-decision-log.md").read_text()
CAPTURE = (pages.ROOT / "docs/guides/capture-a-request.md").read_text()
QUESTIONS = (pages.ROOT / "docs/guides/answer-growth-questions.md").read_text()
# Types of pyarrow as words of the page.
TYPES = {
    "timestamp[us, tz=UTC]": "timestamp",
    "string": "text",
    "binary": "bytes",
    "fixed_size_binary[16]": "16 bytes",
    "double": "double",
    "int32": "int32",
    "uint32": "uint32",
    "uint64": "uint64",
    "bool": "boolean",
}
DEVICES, SAMPLE = 3_000, 0.3
OLD, HIGH = range(0, DEVICES, 3), range(0, DEVICES, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a pod, which has ended, with the rows of two requests per device, and of an
    unauthorized one."""
    folder = tmp_path_factory.mktemp("pages")
    make_store(folder, {"old_users": map(imei, OLD), "high_value": map(imei, HIGH)})
    # The requests of the page and those that a bucket decides, whatever their devices.
    named = sorted(set(re.findall(r"'(r-\d+)'", GUIDE)))
    lines = {"sample": SAMPLE, "request_ids": named, "always": ["failure", "bucket"]}
    with Pod(folder, **lines) as pod:
        pod.decide(*about("r", range(DEVICES)), *about("again", range(DEVICES)))
        pod.decide({"request_id": "nobody", "device": {}, "attributes": {"os": "ios"}})
        ask(pod.decisions, "/rta/tencent", b"")
    return folder


@pytest.fixture(scope="module")
def log(folder):
    """A database with the view of the guide."""
    with duckdb.connect() as database:
        database.execute(f"SET file_search_path = '{folder}'")
        database.execute("SET TimeZone = 'UTC'")
        for statement in queries("Open it"):
            database.execute(statement)
        yield database


def queries(heading, page=GUIDE):
    """The ```sql blocks of a section of a guide."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```sql\n(.*?)^```$", section, re.M | re.S)


def run(log, heading):
    """The rows of the last query of a section, as dictionaries."""
    for block in queries(heading):
        found = log.execute(block)
    return dictionaries(found)


def dictionaries(found):
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def columns(fields, above=""):
    """Names of columns and of fields of structs, each with its type, and whether it may be null."""
    for field in fields:
        name, kind = above + field.name, field.type
        if not pyarrow.types.is_list(kind):
            yield name, TYPES[str(kind)], field.nullable
        elif pyarrow.types.is_struct(kind.value_type):
            yield name, "list of struct", field.nullable
            yield from columns(kind.value_type.fields, f"{name}.")
        else:
            yield name, f"list of {TYPES[str(kind.value_type)]}", field.nullable


def test_columns_of_the_reference_are_those_of_a_file(folder):
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \| .* \|$", REFERENCE, re.M)
    listed = [(name, kind, null != "never") for name, kind, null in rows]
    file = pyarrow.parquet.ParquetFile(closed(folder / "log")[0])
    assert listed == list(columns(file.schema_arrow))
    keys = re.findall(r"^\| `(rtad\.[\w.{}]+)` \|", REFERENCE, re.M)
    [config] = {config.as_py() for config in file.read(["config"])["config"]}
    expected = [key.replace("{config}", config) for key in keys]
    assert sorted(expected) == sorted(key.decode() for key in file.metadata.metadata)
    assert file.metadata.metadata[b"rtad.log.version"] == b"1"


def test_names_of_files_are_those_of_the_reference(folder):
    for file in closed(folder / "log"):
        name = r"log/day=\d{4}-\d\d-\d\d/[\w.-]+-\d{16}-[0-9a-f]{8}\.parquet"
        assert re.fullmatch(name, str(file.relative_to(folder)))


def test_explanation_has_the_name_that_finds_rows_of_a_device(log, folder):
    key = hashlib.md5(imei(7).encode())
    request = tencent_pb2.RtaRequest(id="r-7")
    request.device.imei_md5sum = key.hexdigest()
    command = f"{pages.FOLDER}/rtad explain --config rtad-a.toml --platform tencent --json -"
    said = pages.run(command, cwd=folder, input=request.SerializeToString().hex())
    name = json.loads(said)["log_device"]
    assert name == hmac.new(SECRET.encode(), key.digest(), hashlib.sha256).digest()[:16].hex()
    [query] = re.findall(r"^```sql\n(.*?)^```$", REFERENCE, re.M | re.S)
    rows = dictionaries(log.execute(re.sub("[0-9a-f]{32}", name, query)))
    assert "r-7" in {row["request_id"] for row in rows}
    assert {row["device"].hex() for row in rows} == {name}


def test_config_of_the_guide_is_accepted(folder):
    [config] = re.findall(r"^```toml\n(.*?)^```$", GUIDE, re.M | re.S)
    assert tomllib.loads(config)["log"].keys() == {"to", "key_secret_file", "sample"}
    (folder / "guide.toml").write_text(RULES.split("[log]")[0] % "guide" + config)
    pages.run(f"{pages.FOLDER}/rtad check-config guide.toml", cwd=folder)


def near(estimate, truth):
    """Whether an estimate of a number of devices is within four standard deviations."""
    return abs(estimate - truth) < 4 * sqrt(truth * (1 - SAMPLE) / SAMPLE)


def test_requests_are_counted_with_their_weights(log):
    found = {(row["platform"], row["failure"]): row for row in run(log, "Count requests")}
    assert found.keys() == {("api", None), ("tencent", "unauthorized")}
    assert found["tencent", "unauthorized"]["requests"] == 1
    # A device has two requests.
    assert near(found["api", None]["requests"] / 2, DEVICES)
    assert all(row["p99_us"] > 0 for row in found.values())
    again = "SELECT count(*) FROM log WHERE sampled AND request_id LIKE 'again-%'"
    again = log.execute(again).fetchone()[0]
    assert near(again / SAMPLE, DEVICES) and again < DEVICES


def test_table_of_the_python_page_has_all_rows(log, folder, monkeypatch, capsys):
    page = (pages.ROOT / "docs/guides/python.md").read_text()
    section = page.split("\n## The decision log as a table\n")[1]
    monkeypatch.chdir(folder)
    found = {}
    exec(re.search(r"^```python\n(.*?)^```$", section, re.M | re.S)[1], found)
    assert len(found["log"]) == log.execute("SELECT count(*) FROM log").fetchone()[0] > 1
    assert "unauthorized" in capsys.readouterr().out


def test_pandas_reads_the_folder_while_pods_write(log, folder):
    day = closed(folder / "log")[0].parent
    being_written = day / ".pod-1-00000000.parquet.open"
    being_written.write_bytes(b"PAR1")
    try:
        frame = pandas.read_parquet(folder / "log")
    finally:
        being_written.unlink()
    assert len(frame) == log.execute("SELECT count(*) FROM log").fetchone()[0]
    assert set(frame["day"]) == {file.parent.name[4:] for file in closed(folder / "log")}


def test_compacted_day_has_the_rows_of_its_files(log, folder, tmp_path, monkeypatch):
    [code] = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)
    (tmp_path / "log").symlink_to(folder / "log")
    monkeypatch.chdir(tmp_path)
    # Twice: a day that was compacted too early is written anew.
    for day in [file.parent.name for file in closed(folder / "log")] * 2:
        monkeypatch.setattr("sys.argv", ["compact.py", day.removeprefix("day=")])
        exec(code, {})

    days = {file.parent for file in closed(folder / "log")}
    compacted = closed(tmp_path / "compacted")
    assert len(compacted) == len(days)
    read = "SELECT * FROM read_parquet(?, hive_partitioning = true)"
    rows = [
        log.execute(f"{read} ORDER BY ALL", [[str(file) for file in files]]).fetchall()
        for files in (closed(folder / "log"), compacted)
    ]
    assert rows[0] == rows[1] != []

    config = folder / "rtad-a.toml"
    said = [
        pages.run(f"{pages.FOLDER}/rtad replay --json --config {config} {name}", cwd=folder)
        for name in ("log", tmp_path / "compacted")
    ]
    replayed = [json.loads(text) for text in said]
    for one in replayed:
        one.pop("files")
    assert replayed[0] == replayed[1]


def test_reasons_are_counted_by_hour(log):
    found = run(log, "Bids by reason and hour")
    assert {row["strategy"] for row in found} == {"new-users", "high-value"}
    assert all(row["hour"].minute == 0 for row in found)
    bids = Counter()
    for row in found:
        bids[row["strategy"], row["bid"], row["reason"]] += row["requests"] / 2
    conditions = {(row["strategy"], row["reason"], row["condition"]) for row in found}
    assert ("new-users", "bucket", "return-test:control") in conditions
    assert ("new-users", "rule", "old_users") in conditions
    assert near(bids["high-value", True, "rule"], len(HIGH))
    assert near(bids["high-value", False, "rule"], DEVICES - len(HIGH))
    shown = log.execute(queries("Bids by reason and hour")[0].replace("NOT ", "")).fetchall()
    assert {row[1] for row in shown} == {"tried"}


def test_one_request_is_explained(log):
    decisions, audiences, experiments = [
        dictionaries(log.execute(query)) for query in queries("Why one request got its answer")
    ]
    found = {
        row["strategy"]: (row["bid"], row["reason"], row["condition"], row["shadow"])
        for row in decisions
    }
    assert found == {
        "new-users": (True, "rule", None, False),
        "high-value": (False, "rule", "high_value", False),
        "tried": (False, "rule", "old_users", True),
    }
    assert {row["ids"] for row in decisions} == {"all"}
    found = [(row["name"], row["generation"], row["member"]) for row in audiences]
    assert found == [("old_users", 1, "no"), ("high_value", 1, "no")]
    [experiment] = experiments
    assert experiment["bucket"] == ("control" if experiment["bucket_slot"] < 5000 else "wider")


def test_ratio_of_an_experiment_is_judged_by_devices(log):
    [fair] = run(log, "Check the ratio of an experiment")
    assert (fair["freedom"], fair["is_fair"]) == (1, True), fair
    assert near(fair["devices"] / SAMPLE, DEVICES)
    # Another expectation: 0.42 of a thousand devices is six standard deviations away.
    [query] = queries("Check the ratio of an experiment")
    for bucket, share in (("control", 0.42), ("wider", 0.58)):
        query = query.replace(f"'{bucket}', 0.5", f"'{bucket}', {share}")
    [unfair] = dictionaries(log.execute(query))
    assert not unfair["is_fair"] and unfair["chi_square"] > 10.83, unfair


def test_overlap_of_strategies_is_that_of_devices(log):
    found = {
        (row["strategy"], row["other"]): row["devices"] for row in run(log, "Overlap of strategies")
    }
    assert near(found["high-value", "high-value"], len(HIGH))
    assert near(found["tried", "tried"], len(OLD))
    # Half of the devices of high value, by their bucket.
    assert near(found["high-value", "new-users"], len(HIGH) / 2)
    assert near(found["high-value", "tried"], len(HIGH))


def test_devices_reached_are_those_of_the_sample(log):
    [query] = queries("Devices reached", QUESTIONS)
    by_day = dictionaries(log.execute(query))
    assert sorted(row["strategy"] for row in by_day) == ["high-value", "new-users", "tried"]
    found = {row["strategy"]: row["devices"] for row in by_day}
    assert near(found["high-value"], len(HIGH))
    assert near(found["tried"], len(OLD))


def test_clicks_join_by_trace_id(log):
    rows = run(log, "Join clicks and conversions")
    assert {row["bucket"] for row in rows} == {"control", "wider"}
    joined = [sum(row[name] for row in rows) for name in ("clicks", "conversions")]
    # The requests of the page are logged with the probability 1.
    assert joined == [4, 2], rows


def test_function_of_the_guide_erases_a_device(log, folder, tmp_path):
    page = (pages.ROOT / "docs/guides/erase-a-device.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    names, after = {}, tmp_path / "after.parquet"
    exec(code, names)
    device = log.execute("SELECT device FROM log WHERE request_id = 'r-7'").fetchone()[0]
    before = closed(folder / "log")[0]
    names["without"](device, before, after)
    old, new = pyarrow.parquet.ParquetFile(before), pyarrow.parquet.ParquetFile(after)
    assert new.schema == old.schema
    assert old.metadata.metadata.items() <= new.metadata.metadata.items()
    devices = [table.read()["device"].to_pylist() for table in (old, new)]
    assert device in devices[0]
    assert devices[1] == [one for one in devices[0] if one != device]


def test_versions_of_the_files_are_shown(log, folder):
    [row] = run(log, "Check the files")
    assert row == {"version": "1", "files": len(closed(folder / "log"))}


def test_captured_request_is_explained(folder, tmp_path):
    (tmp_path / "store").symlink_to(folder / "store")
    (tmp_path / "log.key").write_text(SECRET)
    [lines] = re.findall(r"^```toml\n(.*?)^```$", CAPTURE, re.M | re.S)
    [query] = re.findall(r"^```sql\n(.*?)^```$", CAPTURE, re.M | re.S)
    [command] = pages.blocks("docs/guides/capture-a-request.md")

    request = tencent_pb2.RtaRequest(id="r-7")
    request.device.imei_md5sum = hashlib.md5(imei(3).encode()).hexdigest()
    other = tencent_pb2.RtaRequest(id="r-8")
    log = tomllib.loads(lines)["log"]
    assert log.pop("key_secret_file") == "log.key"
    with Pod(tmp_path, **log) as pod:
        for body in (request.SerializeToString(), other.SerializeToString(), b"\xff"):
            ask(pod.decisions, "/rta/tencent", body, headers=TOKEN)

    [file] = closed(tmp_path / "captured")
    assert file.stat().st_mode & 0o777 == 0o600
    rows = pyarrow.parquet.ParquetFile(file).read(["request_id", "failure", "body"]).to_pylist()
    assert rows == [
        {"request_id": "r-7", "failure": None, "body": request.SerializeToString()},
        {"request_id": None, "failure": "bad_body", "body": b"\xff"},
    ]

    with duckdb.connect() as database:
        for name in ("captured", "r-7.hex"):
            query = query.replace(f"'{name}", f"'{tmp_path}/{name}")
        database.execute(query)
    (tmp_path / "rtad.toml").symlink_to(tmp_path / "rtad-a.toml")
    said = pages.run(f"PATH={pages.FOLDER}:$PATH {command}", cwd=tmp_path)
    assert "device.imei_md5sum" in said and "No bid for T1001" in said, said
