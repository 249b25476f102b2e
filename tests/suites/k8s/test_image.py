"""Dockerfile without a container engine: linters, build context, and consistency with the
manifests."""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import tomllib

from suites.k8s.rendered import render
from suites.k8s.sandbox import UNPRIVILEGED
from suites.testkit.programs import LOADER, ROOT, RTAD, WRITER

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def let_in(path, patterns):
    """Whether .dockerignore includes a file: the last pattern matching it or a parent folder
    decides."""
    inside = True
    parts = path.split("/")
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        # A star matches one path component.
        depth = wanted.count("/") + 1
        if depth <= len(parts) and fnmatch.fnmatchcase("/".join(parts[:depth]), wanted):
            inside = pattern.startswith("!")
    return inside


def patterns():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    # `let_in` supports no other syntax.
    assert all(
        re.fullmatch(r"!?(\*|[\w./-]+)", pattern) and not pattern.endswith("/")
        for pattern in patterns
    ), patterns
    return patterns


def tracked():
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def read_by_rustc():
    """Source files of the programs, from the dep files of cargo."""
    files = set()
    for program in (RTAD, LOADER, WRITER):
        words = (
            pathlib.Path(f"{program}.d").read_text().replace("\\ ", "\0").partition(": ")[2].split()
        )
        # Without the output of build scripts.
        files |= {
            word.replace("\0", " ")
            for word in words
            if not re.search(r"/build/rtad-[0-9a-f]+/out/", word)
        }
    root = os.path.commonpath(files)
    return {os.path.relpath(file, root) for file in files}


class TestDockerfile:
    def test_hadolint_finds_no_problems(self):
        command = ["hadolint", "--failure-threshold", "style", "Dockerfile"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")

    def test_versions_match_the_repository(self):
        rust, base = re.findall(
            r"^ARG (?:RUST|BASE)_IMAGE=docker\.io/library/(\S+)$", DOCKERFILE, re.M
        )
        cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
        assert re.search(rf"^rust:{re.escape(cargo['rust-version'])}\.\d+-slim-bookworm$", rust)
        # The same Debian release, with a date.
        assert re.search(r"^debian:bookworm-20\d{6}-slim$", base)
        images = {
            container["image"]
            for _, _, container in render(ROOT / "k8s/overlays/prod").containers()
        }
        assert {image.rpartition(":")[2] for image in images} == {cargo["version"]}

    def test_image_matches_the_manifests(self):
        [user, group] = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.M).groups()
        ports = re.search(r"^EXPOSE (.+)$", DOCKERFILE, re.M)[1].split()
        installed = re.search(r"^COPY --from=build (.*) /usr/local/bin/$", DOCKERFILE, re.M)[
            1
        ].split()
        assert installed == [
            f"/src/target/release/{name}" for name in ("rtad", "rtad-loader", "rtad-writer")
        ]
        for name in ("dev", "prod"):
            overlay = render(ROOT / "k8s/overlays" / name)
            for _, template, container in overlay.containers():
                context = template["spec"]["securityContext"]
                assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))
                assert container["command"][0] in ["rtad", "rtad-loader", "rtad-writer", "bash"]
                assert (
                    [str(port["containerPort"]) for port in container.get("ports", [])] or ports
                ) == ports
        assert int(user) == UNPRIVILEGED


class TestContext:
    def test_context_has_all_files_of_rustc(self):
        # Clippy, which compiles the tests, reads a file that rustc does not.
        read = read_by_rustc() - {"clippy.toml"}
        assert "src/main.rs" in read
        assert "loader/src/main.rs" in read
        ignored = [path for path in read if not let_in(path, patterns())]
        assert ignored == []

    def test_context_has_no_other_files(self):
        inside = {path.split("/")[0] for path in tracked() if let_in(path, patterns())}
        assert inside == {
            "Cargo.toml",
            "Cargo.lock",
            "LICENSE",
            "build.rs",
            "benches",
            "crates",
            "loader",
            "proto",
            "python",
            "src",
            "tests",
            "writer",
        }
        for path in (
            ".git/config",
            "target/release/rtad",
            "tests/service/main.rs",
            "loader/tests/cli/zoo.rs",
            "k8s/base/service.yaml",
        ):
            assert not let_in(path, patterns()), path

    def test_cargo_accepts_the_context_with_the_lock_file(self, tmp_path):
        """The cargo command of the image, in a copy of the context and for a missing program: cargo
        reads all manifests and the lock file, then fails without compiling."""
        for path in tracked():
            if let_in(path, patterns()):
                (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, tmp_path / path)
        [command] = re.findall(r"^RUN (cargo build --release --locked .*)$", DOCKERFILE, re.M)
        result = subprocess.run(
            [*command.split(), "--offline", "--bin", "none-of-these"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        output = result.stderr
        assert "no bin target named `none-of-these`" in output
        assert "available bin targets:\n    rtad\n    rtad-loader\n    rtad-writer\n" in output
