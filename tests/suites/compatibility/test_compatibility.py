"""Today's programs against the files of each release."""

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml

from suites.compatibility import release, requests
from suites.testkit.ports import HOST, free_port
from suites.testkit.programs import RTAD

RELEASES = sorted(release.RELEASES.iterdir())


def of(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def missing(old, new, path=""):
    """The parts of an old document that a new one lacks or has otherwise. Texts for people may
    change."""
    if isinstance(old, dict):
        for key, value in old.items():
            if key in ("description", "summary", "example", "examples", "info", "title", "detail"):
                continue
            if not isinstance(new, dict) or key not in new:
                yield f"{path}/{key}"
            else:
                yield from missing(value, new[key], f"{path}/{key}")
    elif isinstance(old, list):
        if not isinstance(new, list):
            yield path
        elif all(isinstance(one, (dict, list)) for one in old) and len(old) == len(new):
            for index, (one, other) in enumerate(zip(old, new)):
                yield from missing(one, other, f"{path}/{index}")
        else:
            yield from (f"{path}: {one}" for one in old if one not in new)
    elif old != new:
        yield f"{path}: {old}, now {new}"


def test_missing_parts_are_found():
    old = {"a": 1, "b": [1, 2], "c": {"d": 1, "description": "x"}, "e": [{"f": 1}]}
    assert not list(missing(old, old | {"c": {"d": 1, "more": 2}, "b": [2, 1, 3]}))
    changed = {"a": 2, "b": [1], "c": {}, "e": [{"f": 2}]}
    assert list(missing(old, changed)) == ["/a: 1, now 2", "/b: 2", "/c/d", "/e/0/f: 1, now 2"]


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
class TestRelease:
    def test_commands_and_flags_remain(self, folder):
        assert not list(missing(of(folder, "commands"), release.commands()))

    def test_metrics_remain(self, folder):
        assert not list(missing(of(folder, "metrics"), release.metrics()))

    @pytest.mark.parametrize("name", sorted(release.APIS))
    def test_api_remains(self, folder, name):
        old = yaml.safe_load((folder / name).read_text())
        new = yaml.safe_load((release.ROOT / "docs/reference" / name).read_text())
        assert not list(missing(old, new))

    @pytest.mark.parametrize("name", sorted(release.CONFIGS))
    def test_every_config_key_is_accepted(self, folder, name):
        assert release.mistakes(folder, name) == of(folder, "mistakes")[name]

    @pytest.mark.parametrize("source", ["store", "cache"])
    def test_platforms_get_the_same_bytes_and_callers_the_same_fields(
        self, folder, source, tmp_path
    ):
        config, store = tmp_path / "rtad.toml", release.STORE
        shutil.copy(folder / "pod.toml", config)
        if source == "cache":
            shutil.copytree(folder / "cache", tmp_path / "cache")
            with config.open("a") as file:
                file.write(requests.CACHE.format(tmp_path / "cache"))
            store = f"http://{HOST}:{free_port()}"
        old = of(folder, "answers")
        asked = {
            name: (one["path"], one["body"] and bytes.fromhex(one["body"]))
            for name, one in old.items()
        }
        for name, new in release.record(tmp_path, config, asked, store):
            before, now = (bytes.fromhex(one["answer"]) for one in (old[name], new))
            assert new["status"] == old[name]["status"], name
            try:
                before, now = json.loads(before), json.loads(now)
            except ValueError:
                assert now == before, name
            else:
                assert not list(missing(before, now)), name

    def test_decision_log_is_replayed_without_a_difference(self, folder):
        replay = [RTAD, "replay", "--config", folder / "pod.toml", "--assert", "unchanged"]
        store = os.environ | {"RTAD_STORE": str(release.STORE)}
        done = subprocess.run(
            [*replay, folder / "decisions"], env=store, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "9 rows of 1 files" in done.stdout, done.stdout

    def test_writer_goes_on_with_its_counts(self, folder, tmp_path):
        state = tmp_path / "writer"
        shutil.copytree(folder / "writer", state)
        # As on every machine but the one that wrote the files.
        current = state / "store/.windows/clicks/CURRENT"
        current.write_text(re.sub('"boot":"[^"]+"', '"boot":"another"', current.read_text()))
        counted = sum(requests.COUNTED, [])
        config = (state / "rtad-writer.toml").read_text()
        with release.writer(state, config) as owner:
            ids = [*dict.fromkeys(counted), "f0" * 16]
            assert release.count(owner, ids) == [counted.count(one) + 1 for one in ids]
