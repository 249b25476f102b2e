#!/usr/bin/env python3
"""Lines of code of the product and of its tests, per crate, without comments and blank lines.

    python3 tests/count_lines.py              # of HEAD
    python3 tests/count_lines.py REV          # of a revision
    python3 tests/count_lines.py OLD NEW      # of both, and the difference

Columns: product Rust; unit tests (files of tests, and items of `#[cfg(test)]`); integration tests
(`tests/`, testkit and the fuzz targets); benchmarks; Python, which is all of tests and tools.
"""

import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import PurePosixPath

KINDS = ["product", "unit tests", "integration", "benchmarks", "python"]
TEST_MODULE = re.compile(r"^(?:pub(?:\([^)]*\))? )?mod (\w+);")


def sources(revision):
    """Text of each tracked file with code, by path."""
    archive = subprocess.run(["git", "archive", revision], check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        return {
            member.name: tar.extractfile(member).read().decode()
            for member in tar
            if member.isfile() and member.name.endswith((".rs", ".py"))
        }


def is_code(line, comment):
    """Whether a line is neither blank nor a comment."""
    line = line.strip()
    return bool(line) and not line.startswith(comment)


def python_lines(text):
    """Lines without comments and docstrings."""
    text = re.sub(r'^\s*"""(?:.|\n)*?"""$', "", text, flags=re.MULTILINE)
    return sum(is_code(line, "#") for line in text.splitlines())


def rust_lines(text):
    """Lines outside and inside of items of `#[cfg(test)]`, and the names of test modules."""
    product, test, modules = 0, 0, []
    lines = iter(text.splitlines())
    for line in lines:
        if not re.match(r"\s*#\[cfg\((?:test|all\(test)\b", line):
            product += is_code(line, "//")
            continue
        test += 1
        indent = line[: len(line) - len(line.lstrip())]
        for line in lines:
            test += is_code(line, "//")
            if found := TEST_MODULE.match(line.strip()):
                modules.append(found[1])
            # Formatted code: an item ends with a line of its indentation.
            is_of_item = line.startswith(indent) and not line[len(indent) :].startswith(" ")
            is_attribute = line.strip().startswith(("#[", "//"))
            if is_of_item and not is_attribute and re.search(r"[;,}]$|\}\)?;$", line):
                break
    return product, test, modules


def crate(path):
    """The crate or part of the repository that a file belongs to."""
    parts = PurePosixPath(path).parts
    if parts[0] == "crates":
        return parts[1]
    if parts[0] in ("loader", "writer"):
        return f"rtad-{parts[0]}"
    return "rtad" if parts[0] in ("src", "tests", "benches", "build.rs") else parts[0]


def count(revision):
    """Lines per crate and kind."""
    files, counts, tests = sources(revision), Counter(), set()
    for path, text in files.items():
        if path.endswith(".rs"):
            folder = PurePosixPath(path)
            is_root = folder.stem in ("lib", "main", "mod")
            folder = folder.parent if is_root else folder.with_suffix("")
            tests |= {str(folder / module) for module in rust_lines(text)[2]}
    for path, text in files.items():
        parts, name = PurePosixPath(path).parts, crate(path)
        is_in_source = "src" in parts and parts[0] != "fuzz"
        if path.endswith(".rs"):
            product, test, _ = rust_lines(text)
            stem = path.removesuffix(".rs")
            if parts[0] == "loadtest" or "benches" in parts:
                counts[name, "benchmarks"] += product + test
            elif parts[0] == "fuzz" or name == "testkit" or not is_in_source and "tests" in parts:
                counts[name, "integration"] += product + test
            elif any(stem == module or stem.startswith(module + "/") for module in tests):
                counts[name, "unit tests"] += product + test
            else:
                counts[name, "product"] += product
                counts[name, "unit tests"] += test
        else:
            kind = "benchmarks" if {"loadtest", "benches"} & set(parts) else "python"
            counts[name, kind] += python_lines(text)
    return counts


def table(title, counts):
    """Prints a row per crate."""
    names = sorted({name for name, _ in counts})
    print(f"{title:14}" + "".join(f"{kind:>13}" for kind in KINDS))
    for name in [*names, "all"]:
        chosen = names if name == "all" else [name]
        row = [sum(counts[one, kind] for one in chosen) for kind in KINDS]
        print(f"{name:14}" + "".join(f"{lines:13,}" for lines in row))


def main():
    revisions = sys.argv[1:] or ["HEAD"]
    if len(revisions) > 2 or revisions[0].startswith("-"):
        sys.exit(__doc__)
    counted = [count(revision) for revision in revisions]
    for revision, counts in zip(revisions, counted, strict=True):
        table(revision[:12], counts)
    if len(counted) == 2:
        old, new = counted
        table("difference", Counter({key: new[key] - old[key] for key in old | new}))


if __name__ == "__main__":
    main()
