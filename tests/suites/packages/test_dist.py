"""Artifacts of `make dist`: the same bytes in another folder, and what is in them."""

import hashlib
import json
import os
import re
import subprocess
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from suites.packages.clone import make_dist, run
from suites.packages.units import SERVICES
from suites.testkit.programs import ROOT

pytestmark = pytest.mark.long


def sums(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def one(folder, pattern):
    [path] = folder.glob(pattern)
    return path


@pytest.fixture(scope="module")
def unpacked(dist, tmp_path_factory):
    """The files of the tarball."""
    folder = tmp_path_factory.mktemp("unpacked")
    run("tar", "-xzf", one(dist, "*-gnu.tar.gz"), "-C", folder)
    return one(folder, "*")


def test_two_builds_give_the_same_bytes(dist, tmp_path):
    """In a folder whose path has another length, with another home of cargo and other settings of
    the shell."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    other = tmp_path / "home-of-cargo"
    (other / "registry").mkdir(parents=True)
    for name in ("cache", "index"):
        (other / "registry" / name).symlink_to(home / "registry" / name)
    variables = {"CARGO_HOME": str(other), "TZ": "Asia/Shanghai", "LC_ALL": "C", "RUSTFLAGS": "-g"}
    again = make_dist(tmp_path / "another-folder-of-a-longer-name", **variables)
    first, second = sums(dist), sums(again)
    assert len(first) > 5 and first.keys() == second.keys()
    different = [name for name in first if first[name] != second[name]]
    for name in different:
        subprocess.run(["diffoscope", dist / name, again / name], timeout=600)
    assert different == []
    print("\n".join(f"{(dist / name).stat().st_size:>12,} {name}" for name in first))


def test_sums_are_of_all_files(dist):
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    listed = dict(reversed(line.split("  ")) for line in lines)
    assert listed == {name: one for name, one in sums(dist).items() if name != "SHA256SUMS"}


def test_artifacts_name_no_folder_of_the_build(dist, unpacked):
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    folders = [str(dist.parents[1]).encode(), f"{home}/registry".encode()]
    debug = tarfile.open(one(dist, "*-debug.tar.gz"))
    texts = {path: path.read_bytes() for path in unpacked.rglob("*") if path.is_file()}
    texts |= {path: path.read_bytes() for path in dist.glob("*.json")}
    wheel = zipfile.ZipFile(one(dist, "*.whl"))
    texts |= {name: wheel.read(name) for name in wheel.namelist()}
    assert len([name for name in debug.getnames() if name.endswith(".debug")]) == len(SERVICES)
    for path, text in texts.items():
        assert not [folder for folder in folders if folder in text], path


def test_programs_are_stripped_and_their_symbols_are_found_by_build_id(dist, unpacked, tmp_path):
    run("tar", "-xzf", one(dist, "*-debug.tar.gz"), "-C", tmp_path)
    for name in SERVICES:
        program = unpacked / "bin" / name
        assert ".debug_line" not in run("readelf", "--section-headers", "--wide", program)
        [found] = re.findall(r"Build ID: (\w+)", run("readelf", "--notes", program))
        symbols = tmp_path / ".build-id" / found[:2] / f"{found[2:]}.debug"
        assert ".debug_line" in run("readelf", "--section-headers", "--wide", symbols)


def test_programs_list_their_dependencies(dist, unpacked, tmp_path):
    """In themselves, and in the bill of materials."""
    for name in SERVICES:
        section = tmp_path / name
        run("objcopy", f"--dump-section=.dep-v0={section}", unpacked / "bin" / name, "/dev/null")
        inside = json.loads(zlib.decompress(section.read_bytes()))["packages"]
        runtime = {(row["name"], row["version"]) for row in inside if row.get("kind") != "build"}
        assert (name, "0.1.0") in runtime and len(runtime) > 50
        bill = json.loads(one(dist, f"{name}-[0-9]*.cdx.json").read_text())
        assert bill["bomFormat"] == "CycloneDX"
        listed = {(row["name"], row["version"]) for row in bill["components"]}
        assert runtime - {(name, "0.1.0")} <= listed


def test_licenses_have_the_texts_of_dependencies(dist):
    """The list in the programs is no measure: it has packages of tests too."""
    text = one(dist, "*-licenses.txt").read_text()
    for package in ("hyper", "parquet", "ring", "rustls", "tokio", "xxhash-rust", "zstd-sys"):
        assert re.search(rf"^[^:]+: (.*, )?{package} \d", text, re.M), package
    assert "Permission is hereby granted" in text and "Boost Software License" in text


def test_image_has_the_programs_and_settings_of_the_dockerfile(dist, unpacked, tmp_path):
    folders = ["--root", tmp_path / "images", "--runroot", tmp_path / "run"]

    def buildah(*words):
        return run("buildah", *folders, "--storage-driver", "vfs", *words).strip()

    image = buildah("pull", "--quiet", f"oci-archive:{one(dist, '*-image.tar')}")
    about = json.loads(buildah("inspect", "--type", "image", image))["OCIv1"]
    config, text = about["config"], (ROOT / "Dockerfile").read_text()
    assert config["User"] == re.search(r"^USER (.+)$", text, re.M)[1]
    assert config["Cmd"] == json.loads(re.search(r"^CMD (.+)$", text, re.M)[1])
    assert config["Labels"]["org.opencontainers.image.title"] == "rtad"
    root = Path(buildah("mount", buildah("from", image)))
    try:
        for name in SERVICES:
            run("cmp", root / "usr/local/bin" / name, unpacked / "bin" / name)
        user = f"--userspec={config['User']}"
        assert run("chroot", user, root, "rtad", "--version") == "rtad 0.1.0\n"
    finally:
        buildah("umount", "--all")
