"""The page of a whole campaign: its config in a pod, and its numbers from the log."""

import re
from math import sqrt

import duckdb
import pytest

from suites.decision_log.pod import Pod, about, closed, imei, make_store
from suites.testkit import pages

PAGE = (pages.ROOT / "docs/guides/run-a-campaign.md").read_text()
[CONFIG] = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
CONVERSIONS, LIFT = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.M | re.S)

# An IMEI of zeros is blank.
DEVICES = range(1, 6_001)
OLD, BOUGHT, HIGH = DEVICES[::2], DEVICES[::8], DEVICES[::3]
# Of the devices without ads one in so many converts, of those with ads, and with the higher weight.
HELD_OUT, SHOWN, HIGHER = 10, 5, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a pod, which has ended, with the rows of a request per device."""
    folder = tmp_path_factory.mktemp("campaign")
    members = {"old_users": OLD, "bought_30d": BOUGHT, "high_value": HIGH}
    make_store(folder, {name: map(imei, devices) for name, devices in members.items()})
    (folder / "night.toml").write_text(CONFIG)
    # Whatever the time of the test, and for rtad's own API too.
    rules = CONFIG.replace('hours = ["07:00-23:00"]\n', "").split("[log]")[0]
    rules += "[server]\napi = { public = true }\n"
    rules += '[log]\nkey_secret_file = "log.key"\n'
    # The requests come at once: the first block of the cap is enough for all of them.
    rules = rules.replace("limit = 50_000", "limit = 50_000_000")
    with Pod(folder, rules=rules) as pod:
        enough = len(DEVICES) / 2
        pod.until("a block", lambda: pod.status()["caps"][0]["granted"] > enough)
        pod.decide(*about("r", DEVICES))
    return folder


@pytest.fixture(scope="module")
def log(folder):
    with duckdb.connect() as database:
        files = [str(file) for file in closed(folder / "log")]
        database.execute(f"CREATE VIEW log AS SELECT * FROM read_parquet({files})")
        database.execute(CONVERSIONS)
        yield database


def test_nobody_gets_a_bid_at_night(folder):
    explain = f"{pages.FOLDER}/rtad explain --config night.toml --platform tencent"
    empty = "printf '\\012\\002r1'"
    said = [
        pages.run(f"{empty} | {explain} --at 2026-12-01T{hour}:30:00+08:00 -", cwd=folder)
        for hour in ("06", "12")
    ]
    assert "not_scheduled" in said[0] and "not_scheduled" not in said[1], said


def test_lifts_are_those_of_the_conversions(log):
    rows = log.execute("""
        SELECT device, request_id[3:]::INTEGER, experiments[1].bucket, experiments[2].bucket,
            decisions[1].bid, decisions[1].reason, decisions[1].condition
        FROM log ORDER BY 2
    """).fetchall()
    assert len(rows) == len(DEVICES)
    converted, counts = [], dict.fromkeys(["ads", "none", "higher", "control"], 0)
    for device, number, holdout, arm, bid, reason, condition in rows:
        if number in OLD and number not in BOUGHT:
            assert (bid, reason, condition) == (False, "rule", "old_users")
            every = 2
        elif holdout == "holdout":
            assert (bid, reason, condition) == (False, "bucket", "ads:holdout")
            counts["none"] += 1
            every = HELD_OUT
        else:
            assert (bid, condition) == (True, None)
            counts["ads"] += 1
            counts[arm] += number in HIGH
            every = HIGHER if number in HIGH and arm == "higher" else SHOWN
        # A hash of the device, as the number decides its audiences.
        if device[0] * 256 + device[1] < 65_536 // every:
            converted.append((device,))
    log.executemany("INSERT INTO conversions VALUES (?)", converted)

    ads, weight = log.execute(LIFT).fetchall()
    assert [ads[0], weight[0]] == ["ads against none", "weight 1.5 against 1.0"]
    assert (ads[1], ads[2]) == (counts["ads"], counts["none"])
    assert (weight[1], weight[2]) == (counts["higher"], counts["control"])
    assert near(ads[4], 1 / HELD_OUT, counts["none"])
    assert near(weight[3], 1 / HIGHER, counts["higher"])
    assert near(weight[4], 1 / SHOWN, counts["control"])
    for row in (ads, weight):
        assert row[5] == pytest.approx(row[3] / row[4] - 1)
        assert row[6] > 1.96, row


def near(rate, expected, devices):
    """Whether a rate is within four standard deviations of the one that was drawn."""
    return abs(rate - expected) < 4 * sqrt(expected * (1 - expected) / devices)
