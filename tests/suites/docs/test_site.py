"""The documentation site, as `make docs` builds it: navigation, links, languages, and no foreign
hosts."""

import re
import shutil
import subprocess
import sys

import pytest

from suites.testkit.programs import ROOT

LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?([^"'\s>]+)""")


def built(folder, root=ROOT):
    """Builds the site of a repository into `folder`. Dead links, dead anchors and pages outside the
    navigation are warnings, which end a strict build; `--quiet` would ignore them."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    done = built(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built_in_both_languages(site):
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 30
    for page in pages:
        chinese = page.name.endswith(".zh-CN.md")
        html = page.with_name(page.name.removesuffix(".md").removesuffix(".zh-CN") + ".html")
        if not chinese:
            assert (site / html).exists(), page
        text = (site / "zh-CN" / html).read_text()
        if chinese:
            title = re.search(r"^# (.*)$", (ROOT / "docs" / page).read_text(), re.M)[1]
            name = re.search(r"<title>(.*?)( - rtad)?</title>", text)[1]
            assert title.replace("`", "") == name, page


def test_pages_load_nothing_from_other_hosts(site):
    for page in site.rglob("*.html"):
        for target in LOADED.findall(page.read_text()):
            assert not target.startswith(("http:", "https:", "//")), f"{page.name}: {target}"


def test_docstrings_of_the_python_package_are_shown(site):
    package = (ROOT / "python/rtad/__init__.py").read_text()
    names = re.findall(r'^    "([A-Za-z]\w+)",$', package, re.M)
    text = (site / "reference/python.html").read_text()
    for name in names:
        assert f'id="rtad.{name}"' in text, name
    for docstring in ["Builds an audience and publishes it", "null for an id without a key"]:
        assert docstring in text


def test_search_covers_both_languages(site):
    index = (site / "search/search_index.json").read_text()
    assert "guides/erase-a-device.html" in index
    assert "zh-CN/guides/integrate-tencent.html" in index


# A link out of docs/ fails at once.
@pytest.mark.parametrize(
    "targets", [("guides/missing.md", "guides/operate.md#missing"), ("../missing.rs",)]
)
def test_dead_links_fail_the_build(targets, tmp_path):
    for path in ROOT.iterdir():
        if path.name != "docs":
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    with (tmp_path / "docs/index.md").open("a") as page:
        page.writelines(f"\n[link]({target})\n" for target in targets)
    done = built(tmp_path / "site-with-dead-links", tmp_path)
    assert done.returncode != 0
    for target in targets:
        assert target.rpartition("/")[2] in done.stderr, done.stderr
