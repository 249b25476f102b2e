"""Files of a release: its commands, configurations, API, metrics, answers of its pod with their log
and its cache, and the state of its writer.

    PYTHONPATH=tests .venv/bin/python3 -m suites.compatibility.release 0.1.0

writes tests/golden/releases/0.1.0 with the programs of target/debug, or of TEST_PROGRAMS. An
existing folder is refused: the files of a release never change.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from suites.compatibility import requests
from suites.testkit.client import ask
from suites.testkit.process import Rtad, Writer
from suites.testkit.programs import LOADER, ROOT, RTAD, WRITER
from suites.testkit.pages import run

RELEASES = ROOT / "tests/golden/releases"
STORE = ROOT / "tests/golden/v1/block512"
# Configurations with every key, and the programs that read them.
CONFIGS = {
    "rtad.toml": ("src/config/example.toml", RTAD),
    "rtad-writer.toml": ("writer/src/windows/config/example.toml", WRITER),
}
APIS = {"openapi.yaml", "openapi-writer.yaml"}


def commands():
    """The flags of each command of all programs, as its --help lists them."""

    def of(*words):
        help = run(" ".join([str(words[0]), *words[1:], "--help"]), cwd=ROOT)
        listed = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", help, re.M | re.S)
        names = re.findall(r"^  ([a-z][a-z-]*)", listed[1], re.M) if listed else []
        flags = re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)", help, re.M)
        found = {" ".join([Path(words[0]).name, *words[1:]]): sorted(set(flags))}
        for inner in names:
            if inner != "help":
                found |= of(*words, inner)
        return found

    return of(RTAD) | of(LOADER) | of(WRITER)


def metrics():
    """The names of all metrics."""
    page = (ROOT / "docs/reference/metrics.md").read_text()
    return sorted(set(re.findall(r"^\| `(rtad_\w+)`", page, re.M)))


def mistakes(folder, name):
    """Lines of the mistakes that check-config finds in a configuration with every key: some exclude
    each other, and files of secrets are missing."""
    program = CONFIGS[name][1]
    command = [program, "check-config", name]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr
    return re.findall(rf"^error: {re.escape(name)}:(\d+): ", found, re.M)


def record(work, config, asked, store=STORE):
    """The answers of a pod to requests, each a path and a body, with them."""
    with Rtad("--config", config, "--store", store, log=Path(work) / "log") as pod:
        pod.wait_for("decision port listens")
        for name, (path, body) in asked.items():
            answer = ask(pod.decisions, path, body)
            request = {"path": path, "body": body and body.hex()}
            yield name, request | {"status": answer.status, "answer": answer.body.hex()}


def writer(folder, config):
    """A writer on the day of the release: the state of its windows would expire."""
    [library] = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    day = {"FAKETIME": "@2026-11-27 12:00:00", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return Writer(folder, config, variables=day | {"LD_PRELOAD": str(library)})


def count(writer, ids):
    """The counts of these devices after one more event of each. On another machine than that of the
    files, the lease of the killed writer must end first."""

    def counts():
        answer = writer.post("/v1/windows/clicks/events", {"ids": ids, "kind": "md5"})
        assert answer.status in (200, 503), answer
        return answer.json().get("counts")

    return writer.until("the events are counted", counts)


def count_events(folder):
    """Leaves the files of a killed writer: a checkpoint, and events after it in the log."""
    first, second = requests.COUNTED
    owner = writer(folder, requests.WINDOWS)
    try:
        count(owner, first)
        checkpoints = folder / "store/.windows/clicks/checkpoints"
        owner.until("a checkpoint", lambda: checkpoints.is_dir() and any(checkpoints.iterdir()))
        count(owner, second)
    finally:
        owner.kill()


def main():
    folder = RELEASES / sys.argv[1]
    folder.mkdir(parents=True)
    (folder / "pod.toml").write_text(requests.CONFIG)
    with tempfile.TemporaryDirectory() as work:
        config = Path(work) / "pod.toml"
        log, cache = Path(work) / "decisions", Path(work) / "cache"
        added = requests.LOG.format(log) + requests.CACHE.format(cache)
        config.write_text(requests.CONFIG + added)
        answers = dict(record(work, config, requests.ALL))
        shutil.copytree(log, folder / "decisions")
        shutil.copytree(cache, folder / "cache")
        state = Path(work) / "writer"
        state.mkdir()
        count_events(state)
        shutil.copytree(state, folder / "writer", ignore=lambda *_: {"token", "writer.log"})
    for name, (source, _) in CONFIGS.items():
        shutil.copy(ROOT / source, folder / name)
    for name in APIS:
        shutil.copy(ROOT / "docs/reference" / name, folder / name)
    found = {"commands": commands(), "metrics": metrics(), "answers": answers}
    found["mistakes"] = {name: mistakes(folder, name) for name in CONFIGS}
    for name, content in found.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
