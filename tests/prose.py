#!/usr/bin/env python3
"""Checks of text for `make lint`: widths, first words of module docs, spelling, and wording.

    python3 tests/prose.py [FILE...]     # all files of the repository by default

Lines of code, comments and Markdown prose have at most 100 columns. Exempt are tables, code blocks,
lines with a link or URL, raw strings, embedded code in Python, and Chinese pages: a line break inside a Chinese sentence is
shown as a space.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 100
# Generated, made of JavaScript, or quoted from elsewhere.
EXEMPT = re.compile(r"tests/golden/|tests/suites/console/test_parts\.py$|\.zh-CN\.md$|zh\.js$|docs/reference/(configuration|cli-)")
LINK = re.compile(r"https?://|\]\(")
FIRST_WORD = re.compile(r"//! (What|How|Who|Whoever|Whose|Whether|That which)\b")
BRITISH = re.compile(
    r"\b(?!colourMode)(\w*(?:behaviour|colour|favour|honour|neighbour|labour)\w*"
    r"|\w*(?:recogni|canonicali|serial|optim|organ|normal|initial|synchron|author|summar|final"
    r"|minim|maxim|util|categor|emphas|random|capital|standard|materiali|polari)is(?:e|ed|es|ing"
    r"|ation|er|ers)|cancell(?:ed|ing)|centre|licence|catalogue|artefact|defence|grey)\b",
    re.IGNORECASE,
)
LONG_STRING = re.compile(r"""("[^"]{25,}"|'[^']{25,}')""")
FORBIDDEN = re.compile(r"\bstrangers?\b", re.IGNORECASE)


def files():
    listed = ["git", "ls-files", "*.rs", "*.md", "*.py"]
    return subprocess.check_output(listed, cwd=ROOT, text=True).split()


def in_raw_string(lines):
    """For each line of Rust, whether it begins or ends inside a raw string."""
    end = None
    for line in lines:
        inside = end is not None
        rest = line
        while True:
            if end is None:
                found = re.search(r'\bb?r(#*)"', rest)
                if not found:
                    break
                end, rest = '"' + found[1], rest[found.end() :]
            if end not in rest:
                break
            rest, end = rest.split(end, 1)[1], None
        yield inside or end is not None


def is_embedded(lines):
    """For each line of Python, whether it has a long string, or is inside a triple-quoted one other
    than a docstring, such as JavaScript or a config file. The formatter splits neither."""
    embedded = False
    for line in lines:
        begins = not embedded and re.search(r'[=(,{\[]\s*[rf]?"""', line)
        ends = embedded and '"""' in line
        yield embedded or bool(begins or LONG_STRING.search(line))
        if begins and line.count('"""') == 1:
            embedded = True
        elif ends:
            embedded = False


def is_exempt_markdown(lines):
    """For each line of Markdown, whether it is a table row or in a code block."""
    fenced = False
    for line in lines:
        fence = line.lstrip().startswith("```")
        yield fenced or fence or line.lstrip().startswith("|")
        fenced ^= fence


def mistakes(name, text):
    lines = text.splitlines()
    exempt = [False] * len(lines)
    if name.endswith(".rs"):
        tables = [line.lstrip().startswith(("//! |", "/// |")) for line in lines]
        exempt = [any(pair) for pair in zip(in_raw_string(lines), tables, strict=True)]
    elif name.endswith(".py"):
        exempt = list(is_embedded(lines))
    elif name.endswith(".md"):
        exempt = list(is_exempt_markdown(lines))
    for number, (line, is_exempt) in enumerate(zip(lines, exempt, strict=True), 1):
        where = f"{name}:{number}"
        if len(line) > COLUMNS and not is_exempt and not LINK.search(line):
            yield f"{where}: {len(line)} columns: expected at most {COLUMNS}"
        if found := BRITISH.search(line):
            yield f"{where}: expected American spelling, found {found[0]!r}"
        if found := FORBIDDEN.search(line):
            yield f"{where}: word to avoid: {found[0]!r}"
    if name.endswith(".rs") and lines and FIRST_WORD.match(lines[0]):
        yield f"{name}:1: module doc: expected a noun phrase, found {lines[0]!r}"


def main():
    names = [
        name
        for name in sys.argv[1:] or files()
        if not EXEMPT.search(name) and name != "tests/prose.py"
    ]
    found = [mistake for name in names for mistake in mistakes(name, (ROOT / name).read_text())]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
