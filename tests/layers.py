"""Layers of the Rust sources, outside tests. `--self-test` checks sources that break each rule.

- A table of modules or files that promises "uses only those above it" (or below) lists all of
  them, and none uses a row on the other side.
- No files use each other in a circle. A module may use the files inside it, and they use it.
- No `include_str!` or `include_bytes!` leaves its package.
- The loader's dependencies, direct or through crates of the workspace, contain no server crate.
"""

import re
import sys
import tempfile
import tomllib
from pathlib import Path

PROMISE = re.compile(r"uses\s(?://! )?only\s(?://! )?(?:those|modules)\s(?://! )?(above|below) it")
ROW = re.compile(r"^//! \| ((?:\[?`[\w@]+`\]?(?:, )?)+) \|", re.M)
MODULE = re.compile(r"^((?:#\[[^\n]*\]\n)*)(?:pub(?:\([^)]*\))? )?mod (\w+)(;| \{)", re.M)
TESTS = re.compile(
    r"^#\[cfg\((?:all\()?test\b[^\n]*\]\n(?:#[^\n]*\n)*mod \w+ \{.*?^\}", re.M | re.S
)
USE = re.compile(r"^ *(?:pub(?:\([^)]*\))? )?use ([^;]+);", re.M)
PATH = re.compile(r"(?<![\w:])(?:crate|self|super)(?:::\w+)+")
INCLUDE = re.compile(r'include_(?:str|bytes)!\(\s*"([^"]+)"')
# Crates of servers and their configuration. `rtad-store` brings hyper, as the client of buckets.
SERVER_CRATES = "axum hyper metrics rtad-config rtad-http rtad-window toml".split()
BATCH_PROGRAMS = ["rtad-loader"]


def leaves(tree, prefix=()):
    """The names that a `use` brings, each with its path."""
    head, brace, rest = tree.partition("{")
    path = prefix + tuple(name for name in head.split("::") if name)
    if not brace:
        *_, last = path
        name, _, alias = last.partition("@")
        return [(alias or name, (*path[:-1], name))]
    parts, depth = [""], 0
    for char in rest[:-1]:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [leaf for part in parts if part for leaf in leaves(part, path)]


class Package:
    """The modules of a package: `files` by path, and the names that each file imports."""

    def __init__(self, source):
        self.source, self.files, self.texts, self.imports = source, {}, {}, {}
        roots = [source / name for name in ("lib.rs", "main.rs") if (source / name).exists()]
        self.read((), roots[0])
        self.edges = {module: self.targets(module) for module in self.files}

    def read(self, module, file):
        text = file.read_text()
        self.files[module] = file
        code = re.sub(r"//[^\n]*", "", TESTS.sub("", text))
        self.texts[module] = code
        uses = (re.sub(r"\s+", "", re.sub(r"\s+as\s+", "@", use)) for use in USE.findall(code))
        self.imports[module] = dict(leaf for use in uses for leaf in leaves(use))
        folder = file.parent if not module else file.with_suffix("")
        for attributes, name, end in MODULE.findall(code):
            if "cfg(test" not in attributes and "cfg(all(test" not in attributes and end == ";":
                self.read((*module, name), folder / f"{name}.rs")

    def resolve(self, module, path, steps=0):
        """The module that defines `path`, as `module` sees it; None if another crate does."""
        names = list(path)
        if names[0] in ("crate", "self", "super"):
            found = () if names[0] == "crate" else module
            while names and names[0] in ("crate", "self", "super"):
                found = found[:-1] if names.pop(0) == "super" else found
        elif (*module, names[0]) in self.files:
            found = module
        else:
            return None
        for index, name in enumerate(names):
            if (*found, name) in self.files:
                found = (*found, name)
            elif name in self.imports[found] and steps < 9:
                rest = (*self.imports[found][name], *names[index + 1 :])
                return self.resolve(found, rest, steps + 1)
            else:
                break
        return found

    def targets(self, module):
        paths = [*self.imports[module].values()]
        paths += [tuple(path.split("::")) for path in PATH.findall(self.texts[module])]
        found = {self.resolve(module, path) for path in paths} - {None, module}
        # The shorter of two paths is that of the module around.
        return {other for other in found if not all(a == b for a, b in zip(module, other))}


def broken_tables(package):
    """Uses of a row on the wrong side, and tables that do not fit the files."""
    for module, file in package.files.items():
        docs = re.match(r"(?://![^\n]*\n)*", file.read_text()).group()
        promise = PROMISE.search(docs)
        if not promise:
            continue
        # Other tables may follow; the modules are in the first.
        table = re.search(r"(?:^//! \|[^\n]*\n)+", docs, re.M).group()
        rows = [re.findall(r"`(?:mod@)?(\w+)`", row) for row in ROW.findall(table)]
        if promise.group(1) == "below":
            rows.reverse()
        level = {name: index for index, row in enumerate(rows) for name in row}
        depth = len(module)
        inside = [m for m in package.files if m[:depth] == module and len(m) > depth]
        children = {m[depth] for m in inside}
        for name in sorted(children ^ level.keys()):
            fault = "in no row" if name in children else "no module"
            yield f"{file}: table: `{name}` is {fault}"
        for user in inside:
            for used in package.edges[user]:
                if used[:depth] == module and user[depth] != used[depth]:
                    if level.get(used[depth], -1) > level.get(user[depth], 99):
                        yield f"{file}: table: `{'::'.join(user)}` uses `{'::'.join(used)}`"


def circles(package):
    """Groups of files of which each uses the others, directly or through others."""

    def reached(start):
        found, waiting = set(), [start]
        while waiting:
            new = package.edges[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    after = {module: reached(module) for module in package.files}
    seen = set()
    for module in package.files:
        circle = {other for other in after[module] if module in after[other]}
        if circle and module not in seen:
            seen |= circle
            names = sorted("::".join(name) for name in circle)
            yield f"{package.source}: circle: {' '.join(names)}"


def outside_includes(package, file, text):
    for path in INCLUDE.findall(text):
        if package.source.parent.resolve() not in (file.parent / path).resolve().parents:
            yield f"{file}: include of another package: {path}"


def servers_in_batch_programs(manifests):
    """Server crates that a program without a server depends on."""
    parsed = [tomllib.loads(file.read_text()) for file in manifests]
    needs = {
        one["package"]["name"]: {*one.get("dependencies", {})} for one in parsed if "package" in one
    }
    for program in BATCH_PROGRAMS:
        found, waiting = set(), [program]
        while waiting:
            new = needs.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        for crate in sorted(found.intersection(SERVER_CRATES)):
            yield f"{program}: depends on the server crate {crate}"


def problems(root):
    manifests = [root / "Cargo.toml", *root.glob("*/Cargo.toml"), *root.glob("crates/*/Cargo.toml")]
    yield from servers_in_batch_programs(manifests)
    for source in sorted(file.parent / "src" for file in manifests):
        if not source.is_dir():
            continue
        package = Package(source)
        yield from broken_tables(package)
        yield from circles(package)
        for file in package.files.values():
            yield from outside_includes(package, file, file.read_text())


def manifest(name, dependency):
    return f'[package]\nname = "{name}"\n[dependencies]\n{dependency}.workspace = true\n'


def self_test():
    """Each rule finds its violation, and nothing else, in a package made for it."""
    table = "//! | module | job |\n//! |---|---|\n//! | `a` | one |\n//! | `b` | two |\n//!\n"
    promise = "//! Each module uses only those above it in the table.\n"
    sound = {
        "lib.rs": f"{table}{promise}mod a;\nmod b;\n",
        "a.rs": "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
        "b.rs": "mod inner;\npub use inner::B;\nuse super::a;\n",
        "b/inner.rs": "use super::super::a::A;\n",
    }
    cases = {
        "": {},
        "`a` uses `b::inner`": {
            "a.rs": "fn f() { crate::b::B; }\n",
            "b.rs": "mod inner;\npub use inner::B;\n",
            "b/inner.rs": "",
        },
        "`b` is in no row": {"lib.rs": sound["lib.rs"].replace("//! | `b` | two |\n", "")},
        "`c` is no module": {"lib.rs": sound["lib.rs"].replace("`b`", "`b`, `c`")},
        "circle: a b": {"lib.rs": "mod a;\nmod b;\n", "a.rs": "use super::{b as x, c};\n"},
        "include of another package": {"a.rs": 'f(include_str!("../../other/a.css"));\n'},
        "rtad-loader: depends on the server crate toml": {
            "../Cargo.toml": manifest("rtad-loader", "b"),
            "../crates/b/Cargo.toml": manifest("b", "toml"),
        },
    }
    for expected, changed in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "Cargo.toml").touch()
            for name, text in {**sound, **changed}.items():
                (root / "src" / name).parent.mkdir(parents=True, exist_ok=True)
                (root / "src" / name).write_text(text)
            found = list(problems(root))
        assert len(found) == bool(expected), (expected, found)
        assert not expected or expected in found[0], (expected, found)


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    found = list(problems(Path(".")))
    for problem in found:
        print(problem)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
