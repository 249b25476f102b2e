"""Pages in two languages, X.md and X.zh-CN.md: both versions have the same structure.

Both must have the same parts in the same order: headings of the same level, paragraphs, list items,
table rows of as many cells, code blocks equal to the byte. Text that does not translate must be in
both: code (keys, routes, metrics), links, and figures, where 1.5 billion equals 15 亿. The Chinese
version links to Chinese pages where they exist. A new page needs no entry anywhere.

No script compares the meaning: change a paragraph in both versions.
"""

import os
import re
from difflib import unified_diff
from fractions import Fraction
from functools import cache

import pytest

from suites.testkit.programs import ROOT

CHINESE = ".zh-CN.md"

FENCE = re.compile(r"\s*```")
START = re.compile(r"\s*([-*]|\d+\.) |\s*```|\||#")
CELL_END = re.compile(r"(?<!\\)\|")
CODE = re.compile(r"(`+)(.+?)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FIGURE = re.compile(
    r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?: ?(million|billion|万|亿))?(?!\w)", re.ASCII
)
SCALE = {"": 1, "million": 10**6, "billion": 10**9, "万": 10**4, "亿": 10**8}


def parts(text):
    """Texts of headings, paragraphs, list items, table rows and code blocks."""
    found, lines = [], text.splitlines()
    while lines:
        part = [lines.pop(0)]
        if FENCE.match(part[0]):
            while lines and lines[0].strip() != "```":
                part.append(lines.pop(0))
            part += lines[:1]
            del lines[:1]
        elif part[0][:1] not in ("#", "|"):
            while lines and lines[0].strip() and part[0].strip() and not START.match(lines[0]):
                part.append(lines.pop(0))
        if part[0].strip():
            found.append("\n".join(part))
    return found


@cache
def anchors(page):
    """Of a page's headings, in order, as GitHub makes them."""
    titles = [part.lstrip("# ").lower() for part in parts(page.read_text()) if part[0] == "#"]
    names = [re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles]
    before = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{name}-{times}" if times else name for name, times in zip(names, before)]


def chinese(page):
    return page.with_name(page.name.removesuffix(".md") + CHINESE)


def link(target, page):
    """Link target in a form that is equal in both versions: the page, in Chinese if it exists, and
    the number of the heading."""
    if "://" in target:
        return target
    path, _, anchor = target.partition("#")
    to = page.parent / path if path else page
    if not to.exists() or (anchor and anchor not in anchors(to)):
        # With the page's name, so that a dead link in both versions is reported too.
        return f"dead link {target} of {page.name}"
    number = anchors(to).index(anchor) if anchor else ""
    if not page.name.endswith(CHINESE) and chinese(to).exists():
        to = chinese(to)
    return f"{os.path.relpath(to, page.parent)}#{number}"


def figure(found):
    number, fraction, scale = found.groups(default="")
    return str(Fraction(number.replace(",", "") + fraction) * SCALE[scale])


def key(part, page):
    """Kind and untranslated contents of a part: equal in both versions."""
    if FENCE.match(part):
        return part
    kind = re.match(r"#+|\s*([-*]|\d+\.) |\s*", part)[0]
    kind += "|" * len(CELL_END.findall(part)) if part[0] == "|" else ""
    marks = [" ".join(code.split()).replace(CHINESE, ".md") for _, code in CODE.findall(part)]
    part = CODE.sub("", part)
    marks += [link(target, page) for target in LINK.findall(part)]
    part = re.sub(r"^\s*\d+\. ", "", LINK.sub("", part))
    marks += [figure(found) for found in FIGURE.finditer(part)]
    return f"{kind} {sorted(marks)}"


def keys(page, line):
    """Keys of a page's parts. The line below the title links to the other language."""
    title, language, *rest = parts(page.read_text())
    assert language == line, f"{page.name}: the line below the title must be: {line}"
    return [key(part, page) for part in (title, *rest)]


EVERY = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}
PAGES = sorted(page for page in EVERY if chinese(page) in EVERY)


def test_each_translation_has_its_page_and_the_other_way_round():
    translations = {page for page in EVERY if page.name.endswith(CHINESE)}
    assert translations == {chinese(page) for page in PAGES}
    for page in EVERY - translations - set(PAGES):
        assert f"]({chinese(page).name})" not in page.read_text(), f"{page} has no translation"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_both_versions_are_in_step(page):
    english = keys(page, f"English | [简体中文]({chinese(page).name})")
    translated = keys(chinese(page), f"[English]({page.name}) | 简体中文")
    changes = unified_diff(english, translated, page.name, chinese(page).name, n=1, lineterm="")
    assert list(changes) == [], "change the same part of both versions"
