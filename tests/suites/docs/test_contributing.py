"""The table of CONTRIBUTING that lists the places of a platform."""

import re
import subprocess

from suites.testkit.programs import ROOT

# History, comparisons, guides of other platforms' features, and tests of platforms in general.
LEFT_OUT = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/adr/",
    "docs/explanation/",
    "docs/getting-started",
    "docs/guides/",
    "fuzz/corpus/",
    "src/explain/tests",
    "src/serve/assemble/tests/",
    "tests/",
    "writer/tests/",
)
KINDS = sorted(path.stem for path in (ROOT / "proto").glob("*.proto"))


def places():
    """The files of the table; some have NAME for the platform."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(r"^## Add a platform\n(.*?)^## ", page, re.M | re.S)[1]
    cells = re.findall(r"^\| (`.*?`) \|", section, re.M)
    return {file for cell in cells for file in re.findall(r"`([^`]+)`", cell)}


def kinds_named_by(file):
    text = (ROOT / file).read_bytes().decode(errors="replace").lower()
    return [kind for kind in KINDS if kind in text]


def test_every_place_of_the_table_names_every_platform():
    assert len(KINDS) > 1
    for place in places():
        for kind in KINDS:
            assert kind in kinds_named_by(place.replace("NAME", kind)), place


def test_every_file_that_names_all_platforms_is_in_the_table():
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    named = {file for file in listed if kinds_named_by(file) == KINDS}
    assert {file for file in named - places() if not file.startswith(LEFT_OUT)} == set()
