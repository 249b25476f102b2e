"""Enumerated words of rtad's answers, read from its source: the page needs a text for each."""

import re

from suites.testkit.programs import ROOT


def block(path, head, end):
    text = (ROOT / path).read_text()
    begin = text.index(f"{head} {{\n")
    return text[begin : text.index(end, begin)]


def names(path, kind, function="as_str"):
    """The strings of an enum's function such as `as_str`."""
    inside = block(path, f"impl {kind}", "\n}\n")
    body = inside[inside.index(f"fn {function}(") :].partition("\n    }")[0]
    return found(re.findall(r'=> "(\w+)"', body), path, kind)


def variants(path, kind):
    """The variants of an enum in snake case, as serde writes them."""
    names = re.findall(r"^    (\w+),$", block(path, f"enum {kind}", "\n}\n"), re.MULTILINE)
    return found([re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names], path, kind)


def durabilities():
    """The words for a window's durability."""
    path = "loader/src/commands/serve/windows/served/info.rs"
    kinds = re.findall(r'Durability::\w+(?:\(_\))? => "(\w+)"', (ROOT / path).read_text())
    return found(kinds, path, "Durability")


def found(words, path, kind):
    assert words, f"{path} has no words of {kind}"
    return words


KINDS = names("crates/rtad-core/src/device/kind.rs", "IdKind")
FAILURES = {
    *names("crates/rtad-core/src/snapshot.rs", "Fault"),
    *names("crates/rtad-store/src/error.rs", "StoreError", "cause"),
    *names("src/sync/error.rs", "SyncError", "cause"),
}
IDS = variants("src/explain/trace.rs", "Found")
REASONS = names("src/strategy.rs", "Reason")
# By prefix: text keys that the page composes.
WORDS = {
    "sync": ["ok", "unchanged", *FAILURES],
    "do": FAILURES,
    "failure": names("src/platform/decider.rs", "Failure"),
    "id": IDS,
    "because": [word for word in IDS if word != "usable"],
    "access": variants("src/explain/report.rs", "AccessChecked"),
    "encoding": names("src/explain/input.rs", "Encoding"),
    "reason": REASONS,
    "route": names("src/telemetry/requests.rs", "Route"),
    "why": [
        "not_configured",
        "capped",
        *(
            word
            for word in names("crates/rtad-core/src/snapshot/current.rs", "State")
            if word != "live"
        ),
    ],
}
KEYS = [f"{begin}-{word}" for begin, words in WORDS.items() for word in words]
# Of the windows' page.
WINDOW_KEYS = [f"durability-{word}" for word in durabilities()]
