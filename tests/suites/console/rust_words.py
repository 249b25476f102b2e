"""The words that rtad answers with, as its source has them: the page must have something to say for
each."""

import re

from suites.testkit.programs import ROOT


def block(path, head, end):
    text = (ROOT / path).read_text()
    begin = text.index(f"{head} {{\n")
    return text[begin : text.index(end, begin)]


def told(path, kind, function="as_str"):
    """What a function of an enum's makes of its variants."""
    inside = block(path, f"impl {kind}", "\n}\n")
    body = inside[inside.index(f"fn {function}(") :].partition("\n    }")[0]
    return found(re.findall(r'=> "(\w+)"', body), path, kind)


def variants(path, kind):
    """The variants of an enum as serde writes them, in snake case."""
    names = re.findall(r"^    (\w+),$", block(path, f"enum {kind}", "\n}\n"), re.MULTILINE)
    return found([re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names], path, kind)


def found(words, path, kind):
    assert words, f"{path} has no words of {kind}"
    return words


KINDS = told("crates/rtad-core/src/device/kind.rs", "IdKind")
FAILURES = {
    *told("crates/rtad-core/src/snapshot.rs", "Fault"),
    *told("crates/rtad-store/src/error.rs", "StoreError", "cause"),
    *told("src/sync/error.rs", "SyncError", "cause"),
}
IDS = variants("src/explain/trace.rs", "Found")
REASONS = told("src/strategy.rs", "Reason")
# By the keys' beginnings: those that the page's code puts together.
WORDS = {
    "sync": ["ok", "unchanged", *FAILURES],
    "do": FAILURES,
    "failure": told("src/platform/decider.rs", "Failure"),
    "id": IDS,
    "because": [word for word in IDS if word != "usable"],
    "access": variants("src/explain.rs", "AccessChecked"),
    "encoding": told("src/explain/input.rs", "Encoding"),
    "reason": REASONS,
    "route": told("src/telemetry/requests.rs", "Route"),
    "why": [
        "not_configured",
        *(word for word in told("crates/rtad-core/src/snapshot/current.rs", "State") if word != "live"),
    ],
}
KEYS = [f"{begin}-{word}" for begin, words in WORDS.items() for word in words]
