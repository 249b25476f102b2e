"""loadtest/events.sh with few events: every kind of run ends with verified answers."""

import os
import subprocess

import pytest

from suites.testkit.programs import FOLDER, ROOT

pytestmark = pytest.mark.long


def table(tmp_path, *flags):
    """Rows of the printed table."""
    done = subprocess.run(
        ["bash", ROOT / "loadtest/events.sh", "--quick", "--state", tmp_path / "state", *flags],
        env=os.environ | {"TEST_PROGRAMS": str(FOLDER)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_events_of_every_durability_are_answered(tmp_path):
    rows = table(tmp_path)
    runs = [(row["events"].split(",")[0], row["durability"]) for row in rows]
    every = ["disk", "store"]
    # In batches, in batches with an Idempotency-Key, and single ones.
    expected = [("new", durability) for durability in every * 3]
    assert sorted(runs) == sorted([*expected, ("duplicates", "disk"), ("duplicates", "store")])
    for row in rows:
        assert float(row["CPU µs per event"]) > 0, row
        assert row["not 200"] == "0 %", row


def test_events_that_find_no_room_fail_the_load_test(tmp_path):
    command = ["bash", ROOT / "loadtest/events.sh", "--quick", "--capacity", "20000"]
    env = os.environ | {"TEST_PROGRAMS": str(FOLDER)}
    done = subprocess.run(
        [*command, "--state", tmp_path / "state"], env=env, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout
    assert "answers other than 200" in done.stderr


def test_sampled_events_reach_a_pod(tmp_path):
    [row] = table(tmp_path, "--freshness")
    assert (row["samples"], row["missing"]) == ("3", "0")
    # Poll and write interval, and the waits of a busy machine.
    assert 0 < float(row["median, s"]) < 30
