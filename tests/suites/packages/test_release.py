"""The workflow of CI, and versions that must agree."""

import re
import subprocess
import tomllib

import yaml

from suites.testkit.programs import ROOT

WORKFLOW = ROOT / ".github/workflows/ci.yml"


def toml(path):
    return tomllib.loads((ROOT / path).read_text())


def test_zizmor_finds_no_problem_in_the_workflow():
    """Actions pinned by commit, no template injection, no wide permissions."""
    command = ["zizmor", "--offline", "--quiet", ROOT / ".github"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_of_the_workflow_exist():
    [job] = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    commands = [row["command"] for row in job["strategy"]["matrix"]["include"]]
    assert {"make check", "bash .ci/run", "make dist", "make docs"} <= set(commands)
    for command in commands:
        program, *words = command.split()
        check = {"make": ["make", "--dry-run", "--silent"], "bash": ["bash", "-n"]}[program]
        assert subprocess.run([*check, *words], cwd=ROOT, stdout=subprocess.DEVNULL).returncode == 0


def test_oldest_supported_rust_is_the_one_in_use():
    """So that each build checks it."""
    oldest = toml("Cargo.toml")["workspace"]["package"]["rust-version"]
    channel = toml("rust-toolchain.toml")["toolchain"]["channel"]
    assert re.fullmatch(rf"{re.escape(oldest)}\.\d+", channel)
    for member in subprocess.check_output(
        ["git", "ls-files", "Cargo.toml", "*/Cargo.toml"], cwd=ROOT, text=True
    ).split():
        version = toml(member).get("package", {}).get("rust-version", oldest)
        assert version in (oldest, {"workspace": True}), member
    assert f"rust:{channel}-bookworm" in WORKFLOW.read_text()
    assert f"Rust {oldest}" in (ROOT / "README.md").read_text()


def test_licenses_accepted_for_the_list_are_those_of_deny_toml():
    about, deny = toml("packaging/about.toml"), toml("deny.toml")["licenses"]
    assert set(about["accepted"]) <= set(deny["allow"])
    allowed = {row["crate"]: row["allow"] for row in deny["exceptions"]}
    for crate in about.keys() & allowed.keys():
        assert about[crate]["accepted"] == allowed[crate]
