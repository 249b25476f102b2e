"""Image built with buildah from the Dockerfile, and its programs run as in a pod.

Base images are made from Debian packages. A script replaces cargo: it records its arguments and
copies programs already built.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suites.k8s.test_image import let_in, patterns, tracked
from suites.testkit.programs import LOADER, ROOT, RTAD, WRITER

pytestmark = pytest.mark.long

CARGO = r"""#!/bin/bash
find . -type f | sed 's|^\./||' >/context
echo "$PWD: cargo $*, strip $CARGO_PROFILE_RELEASE_STRIP" >/called
mkdir -p target/release && cp /programs/* target/release
"""
CALLED = (
    "/src: cargo build --release --locked --package rtad --package rtad-loader --package rtad-writer, strip debuginfo"
)
BASES = ["--build-arg", "RUST_IMAGE=localhost/rust", "--build-arg", "BASE_IMAGE=localhost/base"]


class Images:
    """buildah with its own storage."""

    def __init__(self, work):
        self.work = work
        storage = ["--root", work / "images", "--runroot", work / "run", "--storage-driver", "vfs"]
        self.command = ["buildah", *storage]

    def run(self, *words):
        done = subprocess.run(
            [*self.command, *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert done.returncode == 0, f"buildah {words}: {done.stderr}"
        return done.stdout.strip()

    def build(self, *words):
        return self.run("build", "--isolation", "chroot", "--quiet", *words)

    def mounted(self, image):
        return Path(self.run("mount", self.run("from", image)))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    assert os.getuid() == 0, "needs root, to switch user and root"
    work = tmp_path_factory.mktemp("image")
    # The container's user needs access.
    for folder in (work, *work.parents[:2]):
        folder.chmod(0o755)
    base = ["mmdebstrap", "--quiet", "--variant=essential", "--include=ca-certificates"]
    subprocess.run([*base, "bookworm", work / "base.tar"], check=True)
    (work / "programs").mkdir()
    for program in (RTAD, LOADER, WRITER):
        copy = shutil.copy(program, work / "programs")
        subprocess.run(["strip", "--strip-debug", copy], check=True)
    (work / "cargo").write_text(CARGO)
    (work / "cargo").chmod(0o755)
    (work / "Base").write_text("FROM scratch\nADD base.tar /\n")
    rust = "FROM localhost/base\nCOPY cargo /usr/bin/cargo\nCOPY programs /programs\n"
    (work / "Rust").write_text(rust)
    images = Images(work)
    images.build("--tag", "localhost/base", "--file", work / "Base", work)
    images.build("--tag", "localhost/rust", "--file", work / "Rust", work)
    yield images
    subprocess.run([*images.command, "umount", "--all"], stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def once(images):
    words = ["--no-cache", "--timestamp", "0", *BASES, "--tag", "localhost/rtad", "."]
    return images.build(*words)


def test_cargo_gets_the_expected_arguments_and_files(images):
    images.build(*BASES, "--target", "build", "--tag", "localhost/stage", ".")
    stage = images.mounted("localhost/stage")
    assert (stage / "called").read_text().strip() == CALLED
    given = sorted((stage / "context").read_text().splitlines())
    assert given == sorted(path for path in tracked() if let_in(path, patterns()))


def test_builds_are_reproducible(images, once):
    words = ["--no-cache", "--timestamp", "0", *BASES, "--tag", "localhost/again", "."]
    assert images.build(*words) == once


def test_programs_run_as_in_a_pod(images, once):
    inspect = ["inspect", "--type", "image", "--format", "{{.OCIv1.Config.User}}"]
    user = images.run(*inspect, "localhost/rtad")
    command = ["unshare", "--mount", sys.executable, "-m", "suites.k8s.image_pod"]
    done = subprocess.run(
        [*command, images.mounted("localhost/rtad"), user],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert '"ready":true' in done.stdout
    # Reaching this point needs the CA certificates.
    assert "Connection refused" in done.stdout
    size = images.run("images", "--format", "{{.Size}}", "localhost/rtad").splitlines()[0]
    mib = sum(file.stat().st_size for file in (images.work / "programs").iterdir()) >> 20
    print(f"{once}, {size}, of which {mib} MiB are programs; user {user}; twice the same")
