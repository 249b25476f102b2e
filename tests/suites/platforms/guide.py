"""The steps of a guide to a platform, done as they stand in a folder of their own."""

import json
import re
import sys

from suites.testkit import pages
from suites.testkit.ports import HOST, free_ports
from suites.testkit.process import Process

BLOCK = re.compile(r"^```(sh|toml)\n(.*?)^```$", re.M | re.S)
# A comment at the end of a block is the answer, or a part of it.
ANSWER = re.compile(r" # (.*)\n\Z")


class Guide:
    """A folder with `proto` and, in PATH, the programs and protoc. `POD` is the last pod started."""

    def __init__(self, folder):
        self.folder, self.config = folder, folder / "rtad.toml"
        self.port, self.admin = free_ports(2)
        self.pod = None
        self.answers = 0
        (folder / "proto").symlink_to(pages.ROOT / "proto")
        listen = {
            "RTAD_LISTEN": f"{HOST}:{self.port}",
            "RTAD_ADMIN_LISTEN": f"{HOST}:{self.admin}",
        }
        self.environment = pages.with_programs(folder, "rtad", "rtad-loader") | listen
        protoc = folder / "bin/protoc"
        protoc.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m grpc_tools.protoc \"$@\"\n")
        protoc.chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pod:
            self.pod.stop()

    def follow(self, *blocks):
        """Adds configuration, runs commands, and compares answers, in order."""
        for language, block in blocks:
            if language == "toml":
                with self.config.open("a") as config:
                    config.write(block)
                continue
            before, serve, rest = block.partition("rtad serve ")
            self.run(before)
            if serve:
                self.serve(f"{serve}{rest}")

    def run(self, block):
        block = block.replace("POD:8080", f"{HOST}:{self.port}")
        said = pages.run(f"set -e -o pipefail\n{block}", cwd=self.folder, env=self.environment)
        if answer := ANSWER.search(block):
            self.answers += 1
            assert comparable(answer[1]) in comparable(said), f"{block} was answered {said}"

    def serve(self, command):
        """Starts a pod, in place of the one before."""
        if self.pod:
            self.pod.stop()
        command = ["bash", "-c", f"exec {command}"]
        log, environment = self.folder / "pod.log", self.environment
        log.unlink(missing_ok=True)
        self.pod = Process(*command, log=log, cwd=self.folder, env=environment)
        self.pod.wait_for("decision port listens")


def comparable(answer):
    """An answer with one space in place of several; JSON without any."""
    try:
        return json.dumps(json.loads(answer))
    except ValueError:
        return " ".join(answer.split())


def blocks_of(page):
    """Language and text of the blocks of a page."""
    return BLOCK.findall((pages.ROOT / "docs/guides" / page).read_text())
