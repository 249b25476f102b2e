"""False-positive rates of `plan --table --measure`."""

import json

import pytest

from suites.testkit.programs import loader

pytestmark = pytest.mark.long


def test_measured_rates_equal_the_formula():
    measured_rows = 0
    for row in json.loads(loader("plan", "--table", "--measure", "--json"))["rows"]:
        if not (measured := row.get("measured")):
            continue
        measured_rows += 1
        expected, found = row["fpr"] * measured["probes"], measured["false_positives"]
        # Five standard deviations, plus the bias of double hashing: 0.03 / n at most.
        most = expected + 0.03 / row["keys"] * measured["probes"]
        assert expected - 5 * expected**0.5 <= found <= most + 5 * most**0.5 + 1, row
        print(
            f"fpr at n = {row['keys']}, m/n = {row['bits_per_key']}, k = {row['hashes']}: "
            f"{found} of {measured['probes']}, {expected:.1f} by formula"
        )
    assert measured_rows
