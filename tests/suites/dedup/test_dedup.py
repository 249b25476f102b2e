"""Deduplication of random lower-case words of 4 to 12 letters, compared with sort and uniq; a
filter with m/n = 429 and k = 8 has no false positive. DEDUP_WORDS sets their number."""

import itertools
import json
import os
import random
import subprocess

import pytest

from suites.testkit.programs import LOADER, loader
from suites.testkit.seeds import SEED

pytestmark = pytest.mark.long

COUNT = int(os.environ.get("DEDUP_WORDS", 10_000_000))
IN_BYTES = os.environ | {"LC_ALL": "C"}


def write_words(file):
    source, left = random.Random(SEED), COUNT
    letters = b"abcdefghijklmnopqrstuvwxyz"
    table = bytes(letters[byte % 26] for byte in range(256))
    unfair = bytes(range(234, 256))  # 234 is nine times 26
    while left:
        some = min(left, 100_000)
        stream = source.randbytes(some * 12 + some * 3).translate(table, unfair)
        begin, words = 0, []
        for length in source.choices(range(4, 13), k=some):
            words.append(stream[begin : begin + length])
            begin += length
        assert begin <= len(stream)
        file.write(b"\n".join(words) + b"\n")
        left -= some


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with the words, and with the sorted distinct words."""
    work = tmp_path_factory.mktemp("dedup")
    with open(work / "words", "wb") as file:
        write_words(file)
    sort(work, work / "words", work / "unique", "--unique")
    return work


def sort(work, source, to, *flags):
    command = ["sort", "-S", "1G", "-T", work, *flags, "-o", to, source]
    subprocess.run(command, env=IN_BYTES, check=True)


def lines(path):
    counted = subprocess.run(["wc", "-l", path], stdout=subprocess.PIPE, text=True, check=True)
    return int(counted.stdout.split()[0])


@pytest.mark.parametrize(
    "how",
    [[], ["--bloom", "--expected", str(COUNT), "--bits-per-key", "429", "--hashes", "8"]],
    ids=["exact", "bloom"],
)
def test_first_occurrence_of_each_word_is_kept(work, how):
    report = work / "report.json"
    command = [LOADER, "dedup", "--text", *how, "--report", report, "--quiet", work / "words"]
    with open(work / "first", "wb") as first:
        subprocess.run(command, stdout=first, check=True)
    sort(work, work / "first", work / "sorted")
    subprocess.run(["cmp", work / "sorted", work / "unique"], check=True)
    unique, result = lines(work / "unique"), json.loads(report.read_text())
    found = (result["rows"], result["first_seen"], result["duplicates"])
    assert found == (COUNT, unique, COUNT - unique)
    print(
        f"dedup, {' '.join(how) or 'exact'}: {unique} of {COUNT} words, equal to sort and uniq, in "
        f"{result['seconds']:.1f} s and {result['memory_bytes'] / unique:.1f} bytes a word; "
        f"{result['expected_false_positives']:.1e} false positives expected"
    )
    # In input order.
    with open(work / "words", "rb") as words, open(work / "first", "rb") as first:
        seen = set()
        fresh = (word for word in words if word not in seen and not seen.add(word))
        for expected, kept in itertools.islice(itertools.zip_longest(fresh, first), 1_000_000):
            assert expected == kept


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
