"""Pages in two languages, X.md and X.zh-CN.md: both versions have the same structure.

Both must have the same parts in the same order: headings of the same level, paragraphs, list items,
table rows of as many cells, code blocks equal to the byte. What stands in a part and does not
translate must be in both: code in the text (keys, routes, metrics), links, and figures, where 1.5
billion equals 15 亿. The Chinese version links to Chinese pages where they exist. A new page needs
no entry anywhere.

No script compares the meaning: change a paragraph in both versions. Other tests change each page in
memory; every change must be noticed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from fractions import Fraction
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

import pytest

from suites.testkit.programs import ROOT

CHINESE = ".zh-CN.md"

FENCE = re.compile(r"\s*(```+)")
HEADING = re.compile(r"(#+) ")
ITEM = re.compile(r"\s*([-*]|\d+\.) ")
CELL_END = re.compile(r"(?<!\\)\|")
CODE = re.compile(r"(`+)(.+?)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FIGURE = re.compile(
    r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?: ?(million|billion|万|亿))?(?!\w)", re.ASCII
)
SCALE = {"": 1, "million": 10**6, "billion": 10**9, "万": 10**4, "亿": 10**8}


@dataclass(frozen=True)
class Part:
    """A heading, paragraph, list item, table row or code block: what kind it is, where it begins,
    and its lines."""

    kind: str
    line: int
    text: str


def parts(text: str) -> List[Part]:
    found: List[Part] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        begin, line = at, lines[at]
        at += 1
        nested = " in a list item" if line.startswith(" ") else ""
        if fence := FENCE.match(line):
            while at < len(lines) and lines[at].strip() != fence[1]:
                at += 1
            at += 1
            kind = "code block"
        elif not line.strip():
            continue
        elif heading := HEADING.match(line):
            kind = f"heading of level {len(heading[1])}"
        elif line.startswith("|"):
            rule = not set(line) - set("|-: ")
            kind = f"table {'rule' if rule else 'row'} of {len(CELL_END.findall(line)) - 1} cells"
        else:
            while (
                at < len(lines)
                and lines[at].strip()
                and not ITEM.match(lines[at])
                and not FENCE.match(lines[at])
            ):
                at += 1
            kind = f"list item {ITEM.match(line)[1]}" if ITEM.match(line) else "paragraph" + nested
        found.append(Part(kind, begin + 1, "\n".join(lines[begin:at])))
    return found


@lru_cache(maxsize=None)
def anchors(page: Path) -> List[str]:
    """Of a page's headings, in order, as GitHub makes them."""
    titles = [
        part.text.lstrip("# ").lower()
        for part in parts(page.read_text("utf-8"))
        if part.kind.startswith("heading")
    ]
    names = [re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles]
    before = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{name}-{times}" if times else name for name, times in zip(names, before)]


def link(target: str, page: Path) -> str:
    """Link target in a form that is equal in both versions: the page, in Chinese if it exists, and
    the number of the heading."""
    if "://" in target:
        return f"link {target}"
    path, _, anchor = target.partition("#")
    to = page.parent / path if path else page
    if not to.exists() or (anchor and anchor not in anchors(to)):
        # With the page's name, so that a dead link in both versions is reported too.
        return f"dead link {target} of {page.name}"
    heading = f", heading {anchors(to).index(anchor) + 1}," if anchor else ""
    if not page.name.endswith(CHINESE) and (there := chinese(to)).exists():
        to = there
    return f"link {os.path.relpath(to, page.parent)}{heading}"


def marks(part: Part, page: Path) -> List[Tuple[str, int]]:
    """Untranslated contents of a part other than a code block, each with its line."""
    found: List[Tuple[str, int]] = []

    def take(pattern: re.Pattern[str], text: str, name: Callable[[re.Match[str]], str]) -> str:
        for match in pattern.finditer(text):
            found.append((name(match), part.line + text.count("\n", 0, match.start())))
        # Blanked, not removed, so that later marks keep their line.
        return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)

    text = take(
        CODE,
        part.text,
        lambda match: f"code `{' '.join(match[2].split())}`".replace(CHINESE, ".md"),
    )
    text = take(LINK, text, lambda match: link(match[1], page))
    number = ITEM.match(text)
    text = text[number.end() :] if number else text
    take(FIGURE, text, lambda match: f"figure {figure(match)}")
    return found


def figure(match: re.Match[str]) -> str:
    return str(Fraction(match[1].replace(",", "") + (match[2] or "")) * SCALE[match[3] or ""])


def chinese(page: Path) -> Path:
    return page.with_name(page.name.removesuffix(".md") + CHINESE)


def differences(page: Path, english: str, translated: str) -> Iterator[str]:
    """Of a page and its Chinese version, given as texts."""
    pages = (page, chinese(page))
    names = [str(one.relative_to(ROOT)) for one in pages]
    both = [parts(english), parts(translated)]
    for name, found, line in zip(
        names,
        both,
        (f"English | [简体中文]({pages[1].name})", f"[English]({page.name}) | 简体中文"),
    ):
        # The one paragraph that differs by right.
        if len(found) < 2 or found.pop(1).text != line:
            yield f"{name}:3: the line below the title must be: {line}"
    keys = [[key(part, one) for part in found] for one, found in zip(pages, both)]
    for change, a, a_end, b, b_end in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if change == "equal":
            continue
        pairs = min(a_end - a, b_end - b)
        for ours, theirs in zip(both[0][a : a + pairs], both[1][b : b + pairs]):
            yield from compare(ours, theirs, pages, names)
        for part in both[0][a + pairs : a_end]:
            yield f"{names[0]}:{part.line}: this {part.kind} is not in {names[1]}"
        for part in both[1][b + pairs : b_end]:
            yield f"{names[1]}:{part.line}: this {part.kind} is not in {names[0]}"


def key(part: Part, page: Path) -> Tuple[str, ...]:
    """Equal for parts that are in step."""
    return (
        (part.kind, part.text)
        if part.kind == "code block"
        else (part.kind, *sorted(mark for mark, _ in marks(part, page)))
    )


def compare(ours: Part, theirs: Part, pages: Tuple[Path, Path], names: List[str]) -> Iterator[str]:
    if ours.kind != theirs.kind:
        yield f"{names[1]}:{theirs.line}: a {theirs.kind}, where {names[0]}:{ours.line} has a {ours.kind}"
        return
    if ours.kind == "code block":
        for at, lines in enumerate(zip_longest(ours.text.split("\n"), theirs.text.split("\n"))):
            if lines[0] != lines[1]:
                yield f"{names[1]}:{theirs.line + at}: the code is not that of {names[0]}:{ours.line + at}"
                return
    found = [marks(ours, pages[0]), marks(theirs, pages[1])]
    counts = [Counter(mark for mark, _ in one) for one in found]
    for mark in counts[0] - counts[1]:
        yield f"{names[0]}:{dict(found[0])[mark]}: {mark} is not in {names[1]}:{theirs.line}"
    for mark in counts[1] - counts[0]:
        yield f"{names[1]}:{dict(found[1])[mark]}: {mark} is not in {names[0]}:{ours.line}"


# Changes of the Chinese version, at the first match: each must be noticed.
MUTATIONS = {
    "a heading's level": (r"^## ", "### "),
    "a heading that is gone": (r"^## .*\n", ""),
    "a table row that is gone": (r"^\|(?!---).*`.*\n", ""),
    "a row's last cell": (r"^(\|(?!---).*)\|.*\|$", r"\1|"),
    "a command": (r"^(```sh\n)(\s*\w+)", r"\1\2x"),
    "a comment in a code block": (r"^(```\w*\n(?:[^`].*\n)*?.*) # ", r"\1 ## "),
    "two commands in another order": (r"^(```sh\n)(.*\n)(?!```)(.*\n)", r"\1\3\2"),
    "a code block's language": (r"^```sh$", "```bash"),
    "a link's target": (r"\]\((?!\w+\.md)[^)]+\)", "](../README.md)"),
    "a link back to English": (r"\]\((\S*)\.zh-CN\.md\)", r"](\1.md)"),
    "a link to nowhere": (r"\]\((\S+)\.md\)(?! \|)", r"](\1.html)"),
    "code in the text": (r"^([^`\n]+`)(\w)", r"\1x\2"),
    "code that is gone": (r"^([^`|\n]+)`[^`\n]+`", r"\1"),
    "a figure": (r"(?<=[\u4e00-\u9fff]) (\d+) (?=[\u4e00-\u9fff])", r" 1\1 "),
    "a paragraph more": (r"^## ", "多出来的一段。\n\n## "),
    "the link to the other language": (r"^\[English\]", "[english]"),
}


def pages() -> Dict[Path, Tuple[str, str]]:
    """Every page that is there in both languages, and both texts."""
    everything = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")})
    both = [page for page in everything if chinese(page) in everything]
    return {page: (page.read_text("utf-8"), chinese(page).read_text("utf-8")) for page in both}


PAGES = pages()
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def test_each_translation_has_its_page_and_the_other_way_round():
    everything = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}
    translations = {page for page in everything if page.name.endswith(CHINESE)}
    assert translations == {chinese(page) for page in PAGES}, (
        "a translation without its English page"
    )
    for page in everything - translations - set(PAGES):
        assert f"]({chinese(page).name})" not in page.read_text("utf-8"), (
            f"{page}: there is no translation"
        )


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_both_versions_are_in_step(page):
    assert list(differences(page, *PAGES[page])) == [], "change the same part of both versions"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_change_of_one_version_is_noticed(name):
    pattern, replacement = MUTATIONS[name]
    tried = 0
    for page, (english, translated) in PAGES.items():
        changed, times = re.subn(pattern, replacement, translated, count=1, flags=re.MULTILINE)
        tried += times
        assert not times or list(differences(page, english, changed)), chinese(page)
    assert tried, "no page has a place for this change"
