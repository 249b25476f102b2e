"""A pod with a decision log, requests to it, and its closed files."""

import json

import duckdb
import pyarrow.parquet

from suites.rules.client import Client
from suites.testkit.client import metric
from suites.testkit.process import Rtad
from suites.testkit.programs import loader

SECRET = "0123456789abcdef"
TOKEN = {"X-Token": "hush-hush-hush-hush"}
RULES = """
[server]
api = { public = true }
[store]
url = "store"
cache_dir = "cache-%s"
[[audience]]
name = "old_users"
[[audience]]
name = "high_value"
[[experiment]]
name = "return-test"
buckets = [
  { name = "control", slots = "0..5000" },
  { name = "wider", slots = "5000..10000" },
]
[[strategy]]
name = "new-users"
when = { any = [
  { none = ["old_users"] },
  { bucket = "return-test:wider", audience = "high_value" },
] }
[[strategy]]
name = "high-value"
when = "high_value"
[[strategy]]
name = "tried"
when = "old_users"
shadow = true
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { T1001 = "new-users" }
headers = [{ name = "X-Token", value = "hush-hush-hush-hush" }]
[log]
key_secret_file = "log.key"
"""


def make_store(folder, members):
    """A store with members of each audience, by their IMEIs, and the secret of the log."""
    for audience, ids in members.items():
        flags = ["--store", folder / "store", "--audience", audience, "--id-kind", "imei"]
        loader("build", *flags, "--quiet", "-", given="\n".join(ids))
    (folder / "log.key").write_text(SECRET)


class Pod(Rtad):
    """A pod with these lines of `[log]`, which its rules end with. Its files are in
    `folder / "log"` by default."""

    def __init__(
        self, folder, name="a", to="log", variables=None, options=None, rules=RULES, **lines
    ):
        self.folder, self.sent = folder, 0
        config = folder / f"rtad-{name}.toml"
        lines = {"to": to, "sample": 1.0, "max_age": "1s"} | lines
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in lines.items())
        config.write_text(rules.replace("%s", name) + lines + "\n")
        log = folder / f"{name}.log"
        options = {"cwd": folder, "variables": variables} | (options or {})
        super().__init__("--config", config, log=log, **options)

    def decide(self, *requests):
        """Sends requests to /v1/decide; returns their decisions."""
        with Client(self.decisions) as client:
            bodies = [json.dumps(request).encode() for request in requests]
            answers = client.post("/v1/decide", bodies)
        self.sent += len(requests)
        return [json.loads(answer)["decisions"] for answer in answers]

    def metric(self, name, **labels):
        return metric(self.admin, f"rtad_log_{name}", **labels)

    def until_closed(self, rows):
        """Waits until it has closed files with this many rows."""
        self.until(f"{rows} rows in files", lambda: self.metric("rows_total") >= rows)


def imei(number):
    return f"{number:015}"


def about(name, numbers):
    """A request per number, whose id has this name."""
    return [{"request_id": f"{name}-{one}", "device": {"imei": imei(one)}} for one in numbers]


def closed(folder):
    return sorted(folder.glob("day=*/*.parquet"))


def request_ids(folder):
    """The ids of all rows, read by DuckDB and by pyarrow. Fails at a file that one of them does not
    read."""
    files = closed(folder)
    with duckdb.connect() as database:
        query = "SELECT request_id FROM read_parquet(?)"
        found = [row[0] for row in database.execute(query, [list(map(str, files))]).fetchall()]
    tables = [pyarrow.parquet.ParquetFile(file).read() for file in files]
    by_arrow = [one for table in tables for one in table["request_id"].to_pylist()]
    assert sorted(found) == sorted(by_arrow)
    return found
