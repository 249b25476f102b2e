"""Commands of the loader, and explanations of the service."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rtad import _rtad
from rtad._ids import batches
from rtad._progress import Progress, callback

# A column, by its name; in files without a header by its number, from 1.
Column = str | int
# A column of ids, several, or the kinds of each.
Columns = Column | Sequence[Column] | Mapping[Column, str] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def build(
    url: str,
    name: str,
    source: Any = None,
    *,
    files: Paths = (),
    kind: str = "md5",
    columns: Columns = None,
    value: Column | None = None,
    progress: Progress = None,
    **flags: Any,
) -> dict[str, Any]:
    """Builds an audience and publishes it, as `rtad-loader build`. Returns its report.

    `source` has the rows: a column of ids, a table, a stream of tables, or an iterator over any of
    these or over ids. It is read once, in this thread, and a batch at a time. Instead of it,
    `files` has paths, patterns and URLs, whose `format` is lines, csv, ndjson or parquet.

    `kind` is that of the ids. `columns` names those of a table: "idfa", ["idfa", "oaid"], or with
    kinds {"idfa": "idfa", "device_md5": "md5"}. "device.imei" is the member imei of the struct
    column device, unless a column has this whole name. `value` names the column of the devices'
    values. `format="csv", no_header=True` reads files without a header, by numbers: {3: "idfa"}.

    Every other flag of the command is an argument: `fpr=1e-5` is --fpr 1e-5, `dry_run=True` is
    --dry-run. A failed build publishes nothing and raises `rtad.Error`; so do malformed rows over
    `max_reject_ratio`. An exception in the source publishes nothing either, nor does Ctrl-C, unless
    it comes while the generation is being committed.
    """
    target = {"store": url, "audience": name}
    return _write("build", target, source, files, kind, columns, value, progress, flags)


def append(
    url: str,
    name: str,
    source: Any = None,
    *,
    files: Paths = (),
    kind: str = "md5",
    columns: Columns = None,
    value: Column | None = None,
    progress: Progress = None,
    **flags: Any,
) -> dict[str, Any]:
    """Adds devices to the live generation as a delta, as `rtad-loader append`. Returns its report.

    Arguments as for `build`. All ids of one call are one delta, and in memory.
    """
    target = {"store": url, "audience": name}
    return _write("append", target, source, files, kind, columns, value, progress, flags)


def remove(
    url: str,
    name: str,
    source: Any = None,
    *,
    files: Paths = (),
    kind: str = "md5",
    columns: Columns = None,
    progress: Progress = None,
    **flags: Any,
) -> dict[str, Any]:
    """Removes devices from the live generation, as `rtad-loader remove`. Returns its report.

    `tombstone=True` keeps them out of all later builds.
    """
    target = {"store": url, "audience": name}
    return _write("remove", target, source, files, kind, columns, None, progress, flags)


def rollback(url: str, name: str, *, to: int | None = None, **flags: Any) -> dict[str, Any]:
    """Makes an older generation live again, as `rtad-loader rollback`. Returns its report."""
    arguments = command("rollback", {"store": url, "audience": name, "to": to} | flags)
    return _report(_rtad.run(arguments, None, None))


def explain(
    config: str | os.PathLike[str],
    platform: str,
    body: str | bytes,
    *,
    headers: Mapping[str, str] | None = None,
    query: str | None = None,
    at: str | datetime | None = None,
) -> dict[str, Any]:
    """Explains the answer to a platform's captured request, as `rtad explain --json`.

    `config` is the file of the service, and `platform` a name in it, or "api" for a request to
    `/v1/decide`. The body may be the bytes themselves, hex or base64. The explanation holds the ids
    of the request. `at` decides by the schedules of that time, which needs an offset from UTC.
    """
    found = body.encode() if isinstance(body, str) else bytes(body)
    lines = [f"{name}: {text}" for name, text in (headers or {}).items()]
    time = at.isoformat() if isinstance(at, datetime) else at
    return _report(_rtad.explain(os.fspath(config), platform, found, lines, query, time))


def command(
    name: str | None, flags: Mapping[str, Any], words: Iterable[Any] = ()
) -> list[str]:
    """A command line: its name, flags and words."""
    line = [] if name is None else [name]
    for flag, value in flags.items():
        flag = "--" + flag.replace("_", "-")
        if value is True:
            line.append(flag)
        elif value is not None and value is not False:
            several = isinstance(value, Sequence) and not isinstance(value, str)
            line += [f"{flag}={one}" for one in (value if several else [value])]
    return [*line, "--", *map(str, words)]


def _write(
    name: str,
    target: dict[str, Any],
    source: Any,
    files: Paths,
    kind: str,
    columns: Columns,
    value: Column | None,
    progress: Progress,
    flags: Mapping[str, Any],
) -> dict[str, Any]:
    if isinstance(source, (str, bytes, os.PathLike)):
        raise TypeError("source: a text or a path: expected rows; files= takes paths")
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    if source is not None and files:
        raise TypeError("source and files: expected one of them")
    if source is None and not files:
        raise TypeError("source or files: expected one of them, found none")
    for flag, argument in ("column", "columns"), ("id_kind", "kind"):
        if flag in flags:
            raise TypeError(f"{flag}: expected as {argument}=")
    kinds = _kinds(columns)
    words = ["-"] if source is not None else [os.fspath(path) for path in files]
    given = {
        "id_kind": kind,
        "column": [f"{column}={of_ids}" if of_ids else column for column, of_ids in kinds.items()],
        "value": value,
    }
    arguments = command(name, target | given | dict(flags), words)
    wanted = [*kinds, str(value)] if kinds and value else list(kinds)
    rows = None if source is None else batches(source, wanted)
    with callback(progress) as told:
        return _report(_rtad.run(arguments, rows, told))


def _kinds(columns: Columns) -> dict[str, str | None]:
    """The kinds of each column, if it has its own."""
    if columns is None:
        return {}
    if isinstance(columns, (str, int)):
        return {str(columns): None}
    if isinstance(columns, Mapping):
        return {str(column): kinds for column, kinds in columns.items()}
    return {str(column): None for column in columns}


def _report(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    return report
