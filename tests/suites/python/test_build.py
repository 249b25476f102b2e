"""Builds and changes from Python: chunks, reports and failures of the loader."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import pandas
import polars
import pyarrow.parquet
import pytest

from suites.testkit.programs import LOADER, synth

ROWS = 30_000


def chunks(store):
    return {path.name for path in (store / "users/chunks").iterdir()}


def cli(command, store, *words, given=""):
    """Report, or failure, of the loader with rows on stdin."""
    line = [LOADER, command, "--store", store, "--audience", "users", "--json", *words]
    done = subprocess.run(
        list(map(str, line)), input=given.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    return done.returncode, json.loads(done.stdout)


def sources(ids):
    """The same ids as sources of many forms."""
    digests = [bytes.fromhex(one) for one in ids]
    batches = pyarrow.table({"id": ids}).to_batches(max_chunksize=7000)
    yield ids
    yield iter(ids)
    yield (ids[start : start + 999] for start in range(0, len(ids), 999))
    yield pyarrow.array(ids)
    yield pyarrow.array(digests, pyarrow.binary(16))
    yield pyarrow.array(ids).dictionary_encode()
    yield pyarrow.table({"id": ids})
    yield iter(batches)
    yield pyarrow.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
    yield polars.Series(ids)


def test_every_source_gives_the_chunks_of_the_loader(rtad, tmp_path):
    ids = [*synth(ROWS), "null"]
    expected = cli("build", tmp_path / "cli", "-", given="\n".join(ids))[1]
    ids[-1] = None
    for index, source in enumerate(sources(ids[:-1])):
        store = tmp_path / str(index)
        report = rtad.build(str(store), "users", source)
        assert chunks(store) == chunks(tmp_path / "cli"), index
        assert report["keys"] == expected["keys"] == ROWS
    report = rtad.build(str(tmp_path / "null"), "users", ids)
    for counted in ("rows", "values", "usable", "duplicates", "blank", "rejected"):
        assert report[counted] == expected[counted], counted


def test_quiet_run_has_a_report(rtad, tmp_path):
    store, ids = str(tmp_path / "store"), synth(10)
    assert rtad.build(store, "users", ids, quiet=True)["keys"] == 10


def test_null_rows_of_a_struct_array_have_no_ids(rtad, tmp_path):
    ids = synth(10)
    mask = pyarrow.array([row % 2 == 0 for row in range(10)])
    array = pyarrow.StructArray.from_arrays([pyarrow.array(ids)], ["id"], mask=mask)
    report = rtad.build(str(tmp_path / "store"), "users", array)
    assert (report["keys"], report["blank"]) == (5, 5)
    audience = rtad.Audience.open(str(tmp_path / "store"), "users")
    assert audience.contains(pyarrow.array(ids)).to_pylist() == [row % 2 == 1 for row in range(10)]
    assert rtad.keys("md5", array).to_pylist()[::2] == [None] * 5


def test_columns_of_a_table_are_those_of_csv(rtad, tmp_path):
    size = 3000
    table = pyarrow.table(
        {
            "idfa": synth(size, "--id-kind", "idfa"),
            "price": [1.5] * size,
            "mixed": synth(size // 2, "--id-kind", "imei") + synth(size // 2, "--id-kind", "oaid"),
            "score": pyarrow.array([index % 16 for index in range(size)], pyarrow.int8()),
        }
    )
    columns = {"idfa": "idfa", "mixed": "imei,oaid"}
    rows = zip(*(table[name].to_pylist() for name in table.column_names))
    text = "\n".join([",".join(table.column_names), *(",".join(map(str, row)) for row in rows)])
    words = ["--format", "csv", "--column=idfa=idfa", "--column=mixed=imei,oaid"]
    words += ["--value", "score", "--filter", "ribbon", "-"]
    _, expected = cli("build", tmp_path / "cli", *words, given=text)
    found = rtad.build(
        str(tmp_path / "store"), "users", table, columns=columns, value="score", filter="ribbon"
    )
    assert chunks(tmp_path / "store") == chunks(tmp_path / "cli")
    assert found["columns"] == expected["columns"]
    assert found["keys"] == 2 * size


def nested(size):
    """A table of structs, and the same rows with a column for each member."""
    imeis, oaids = synth(size, "--id-kind", "imei"), synth(size, "--id-kind", "oaid")
    # Every third struct is null, whatever its members have.
    mask = pyarrow.array([row % 3 == 0 for row in range(size)])
    ids = pyarrow.StructArray.from_arrays([pyarrow.array(oaids)], ["oaid"])
    device = pyarrow.StructArray.from_arrays(
        [pyarrow.array(imeis), ids], ["imei", "ids"], mask=mask
    )
    scores = pyarrow.array([row % 16 for row in range(size)])
    facts = pyarrow.StructArray.from_arrays([scores], ["score"])
    whole = [None if row % 3 == 0 else one for row, one in enumerate(imeis)]
    other = [None if row % 3 == 0 else one for row, one in enumerate(oaids)]
    flat = pyarrow.table({"imei": whole, "oaid": other, "score": scores})
    return pyarrow.table({"device": device, "facts": facts}), flat


def copies(table, rows):
    """Batches that are no slices."""
    for start in range(0, table.num_rows, rows):
        indexes = list(range(start, min(start + rows, table.num_rows)))
        yield from table.take(indexes).combine_chunks().to_batches()


def test_slices_of_structs_in_structs_are_refused(rtad, tmp_path):
    """arrow-rs of this release counts their offset twice, and panics."""
    table, _ = nested(30)
    columns = {"device.ids.oaid": "oaid"}
    expected = (
        "source: the Arrow data {} could not be read: C Data interface error: a slice of structs "
        "in structs: expected a copy, or their members as columns, as of flatten()"
    )
    sources = {
        "of a pyarrow.lib.RecordBatch": iter(table.to_batches(max_chunksize=10)),
        "after 0 rows": table.slice(10),
    }
    for place, source in sources.items():
        with pytest.raises((TypeError, ValueError)) as failure:
            rtad.build(str(tmp_path / "s"), "users", source, columns=columns)
        assert str(failure.value) == expected.format(place)
    flat = table.slice(10).flatten().flatten()
    assert rtad.build(str(tmp_path / "s"), "users", flat, columns=columns)["keys"] == 14


def test_members_of_structs_are_columns_as_in_files(rtad, tmp_path):
    table, flat = nested(900)
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    columns = {"device.imei": "imei", "device.ids.oaid": "oaid"}
    flags = {"columns": columns, "value": "facts.score", "filter": "ribbon"}
    file = {"files": tmp_path / "rows.parquet", "format": "parquet"}
    expected = rtad.build(str(tmp_path / "file"), "users", **file, **flags)
    assert expected["keys"] == 1200

    flat_flags = flags | {"columns": {"imei": "imei", "oaid": "oaid"}, "value": "score"}
    sources = {
        "flat": (flat, flat_flags),
        "nested": (table, flags),
        "batches": (iter(copies(table, 100)), flags),
        "polars": (polars.from_arrow(table), flags),
        "wide": (polars.from_arrow(table).with_columns(x=polars.lit(1, polars.Int128)), flags),
    }
    for name, (source, its_flags) in sources.items():
        report = rtad.build(str(tmp_path / name), "users", source, **its_flags)
        assert (report["keys"], report["blank"]) == (1200, expected["blank"]), name
        assert chunks(tmp_path / name) == chunks(tmp_path / "file"), name

    store = str(tmp_path / "nested")
    ids = {"columns": {"device.imei": "imei"}}
    assert rtad.remove(store, "users", table, **ids)["removed"] == 600
    added = rtad.append(store, "users", table, **ids, value="facts.score")
    assert added["added"] == 600


def test_members_are_found_by_name_in_each_table(rtad, tmp_path):
    table, _ = nested(30)
    device = table["device"].combine_chunks()
    turned = pyarrow.StructArray.from_arrays(
        [device.field("ids"), device.field("imei")], ["ids", "imei"]
    )
    other = pyarrow.table({"device": turned, "facts": table["facts"]})
    report = rtad.build(
        str(tmp_path / "s"), "users", iter([table, other]), columns={"device.imei": "imei"}
    )
    assert (report["keys"], report["rejected"]["malformed"]) == (30, 0)


def test_name_with_a_dot_is_that_of_a_column_first(rtad, tmp_path):
    table, flat = nested(30)
    table = table.append_column("device.imei", flat["oaid"])
    for name in "device.imei", r"device\.imei":
        report = rtad.build(str(tmp_path / name), "users", table, columns={name: "oaid"})
        assert report["keys"] == 20


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (
            "device.idfa",
            'input -: has no column "device.idfa"; columns found: device.imei, device.ids.oaid, '
            "facts.score",
        ),
        ("device.imei.x", 'input -: has no column "device.imei.x"; columns found: device.imei, '),
        ("device", 'input -: column "device" is of type Struct('),
    ],
)
def test_unknown_members_are_named_with_those_found(rtad, tmp_path, column, expected):
    with pytest.raises(rtad.Error) as failure:
        rtad.build(str(tmp_path / "s"), "users", nested(3)[0], columns=column)
    assert str(failure.value).startswith(expected)


def test_header_of_a_table_is_trimmed_as_that_of_csv(rtad, tmp_path):
    store, ids = str(tmp_path / "store"), synth(100, "--id-kind", "oaid")
    table = pyarrow.table({" oaid": ids, "note": ids, "score\t": [3] * len(ids)})
    flags = {"columns": {"oaid": "oaid"}}
    report = rtad.build(store, "users", table, value="score", filter="ribbon", **flags)
    assert (report["keys"], report["blank"]) == (100, 0)
    assert rtad.remove(store, "users", table, tombstone=True, **flags)["tombstones"] == 100


def test_files_are_those_of_the_command_line(rtad, tmp_path):
    ids = synth(1000)
    for index in range(2):
        (tmp_path / f"{index}.csv").write_text("\n".join(["id", *ids[index::2]]))
    report = rtad.build(
        str(tmp_path / "store"), "users", files=str(tmp_path / "*.csv"), format="csv", columns="id"
    )
    assert (report["keys"], len(report["inputs"])) == (1000, 2)


def test_columns_of_files_without_a_header_have_numbers(rtad, tmp_path):
    rows = [f"{row % 16}\x01{one}\n" for row, one in enumerate(synth(100))]
    (tmp_path / "part-0").write_text("".join(rows))
    flags = {"files": tmp_path / "part-0", "format": "csv", "no_header": True, "delimiter": "\x01"}
    for columns in (2, "2", [2], {2: "md5"}):
        report = rtad.build(
            str(tmp_path / "s"), "users", columns=columns, value=1, filter="ribbon", **flags
        )
        assert (report["keys"], report["columns"][0]["name"]) == (100, "2")
    with pytest.raises(rtad.Error, match="^no_header=True requires format csv"):
        rtad.build(str(tmp_path / "s"), "users", synth(3), no_header=True)


def test_append_remove_and_rollback(rtad, tmp_path):
    store, ids = str(tmp_path / "store"), synth(1000)
    rtad.build(store, "users", ids[:500])
    rtad.build(store, "users", ids[:600])
    assert rtad.append(store, "users", ids[600:])["added"] == 400
    assert rtad.remove(store, "users", ids[:10])["removed"] == 10
    assert rtad.remove(store, "users", ids[10:20], tombstone=True)["tombstones"] == 10
    answers = rtad.Audience.open(store, "users").contains(ids).to_pylist()
    assert answers == [False] * 20 + [True] * 980
    assert rtad.rollback(store, "users")["generation"] == 1
    assert rtad.Audience.open(store, "users").info["generation"] == 1


# Flags in texts of the loader, and the arguments in those of the package.
ARGUMENTS = {
    "--max-reject-ratio ": "max_reject_ratio=",
    "--rejects FILE": "rejects=FILE",
    "--allow-empty": "allow_empty=True",
    "--allow-lookalikes": "allow_lookalikes=True",
    "--filter, --fpr:": "filter, fpr:",
    "--filter <KIND>": "filter",
    "--id-kind <KIND[,KIND]>": "kind",
    "--memory ": "memory=",
    "--threads": "threads",
    "(--audience) or the generation (--generation)": "(name) or the generation (generation)",
    "'--no-such-flag' found": "'no_such_flag'",
}
FAILURES = [
    ("build", ["junk", "words"], {}),
    ("build", ["null"], {}),
    ("build", [*synth(50), "junk"], {}),
    ("build", [], {}),
    ("build", synth(5), {"fpr": 2}),
    ("build", synth(5), {"kind": "imsi"}),
    ("build", synth(5), {"filter": "cuckoo"}),
    ("build", synth(5), {"require_live": True}),
    ("build", synth(5), {"memory": "1MiB"}),
    ("build", synth(5, "--id-kind", "md5"), {"kind": "oaid"}),
    ("append", synth(5), {}),
    ("remove", synth(5), {"tombstone": True}),
    ("append", synth(5), {"no_such_flag": 1}),
]


@pytest.mark.parametrize("failing", range(len(FAILURES)))
def test_failures_have_the_texts_and_codes_of_the_loader(rtad, tmp_path, failing):
    command, ids, flags = FAILURES[failing]
    flags = dict(flags)
    kind = flags.pop("kind", "md5")
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in flags.items()]
    code, expected = cli(
        command, tmp_path / "cli", f"--id-kind={kind}", *words, "--", "-", given="\n".join(ids)
    )
    assert code != 0
    with pytest.raises(rtad.Error) as failure:
        getattr(rtad, command)(str(tmp_path / "store"), "users", ids, kind=kind, **flags)
    message = ": ".join([expected["message"], *expected["causes"]])
    message = message.replace(str(tmp_path / "cli"), str(tmp_path / "store"))
    for flag, argument in ARGUMENTS.items():
        message = message.replace(flag, argument)
    assert "--" not in message
    assert (str(failure.value), failure.value.exit_code) == (message, code)
    copy = pickle.loads(pickle.dumps(failure.value))
    assert (str(copy), copy.exit_code) == (message, code)
    assert not any(one in message for one in ids if len(one) > 5)


def test_unknown_column_is_named_with_those_found(rtad, tmp_path):
    table = pyarrow.table({"a": ["x"], "b": ["y"]})
    for columns, expected in [
        ("c", 'input -: has no column "c"; columns found: a, b'),
        (None, 'a table of 2 columns needs columns="NAME" or {"NAME": "KIND"}'),
    ]:
        with pytest.raises(rtad.Error) as failure:
            rtad.build(str(tmp_path / "store"), "users", table, columns=columns)
        assert str(failure.value) == expected


def test_tables_of_other_columns_are_refused(rtad, tmp_path):
    tables = [pyarrow.table({"a": synth(3)}), pyarrow.table({"b": synth(3)})]
    with pytest.raises(ValueError, match="^source: a table with other columns than the first"):
        rtad.build(str(tmp_path / "store"), "users", iter(tables), columns="a")
    assert not (tmp_path / "store/users/records").exists()


def test_rejected_rows_are_counted_by_reason_and_kept_in_the_file(rtad, tmp_path):
    ids = [*synth(100), "junk", None, "0"]
    report = rtad.build(
        str(tmp_path / "store"), "users", ids, rejects=tmp_path / "rejects", max_reject_ratio=0.1
    )
    assert (report["usable"], report["blank"], report["rejected"]["malformed"]) == (100, 2, 1)
    # Rows are numbered from 1, over all batches.
    assert (tmp_path / "rejects").read_text().split("\t")[:3] == ["-", "101", "malformed"]


def test_broken_arrow_data_is_named_with_its_rows(rtad, tmp_path):
    schema = pyarrow.schema({"id": "string"})

    def failing():
        for batch in pyarrow.table({"id": synth(10)}).to_batches():
            yield batch
        raise pyarrow.ArrowInvalid("the file ends early")

    reader = pyarrow.RecordBatchReader.from_batches(schema, failing())
    with pytest.raises(ValueError) as failure:
        rtad.build(str(tmp_path / "s"), "users", reader)
    text = str(failure.value)
    assert text.startswith("source: the Arrow data after 10 rows could not be read: ")
    assert "the file ends early" in text

    reader = pyarrow.RecordBatchReader.from_batches(schema, failing())
    with pytest.raises(ValueError, match="^ids: the Arrow data after 10 rows could not be read: "):
        rtad.keys("md5", reader)


def test_exception_of_the_source_publishes_nothing(rtad, tmp_path):
    def failing():
        yield from synth(70_000)
        raise RuntimeError("the warehouse is gone")

    with pytest.raises(RuntimeError, match="^the warehouse is gone$"):
        rtad.build(str(tmp_path / "store"), "users", failing())
    assert not (tmp_path / "store/users/records").exists()


def test_ctrl_c_ends_a_build_and_publishes_nothing(rtad, tmp_path):
    ids = synth(10_000)

    # Programs that a shell starts in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))

    def endless():
        # The build has begun.
        timer.start()
        begun = time.monotonic()
        while time.monotonic() < begun + 120:
            yield ids

    try:
        with pytest.raises(KeyboardInterrupt):
            rtad.build(str(tmp_path / "store"), "users", endless())
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "store/users/records").exists()
    # The next build is not affected.
    assert rtad.build(str(tmp_path / "store"), "users", ids)["keys"] == 10_000


def test_progress_is_told_of_each_phase(rtad, tmp_path):
    seen, ids = [], synth(10_000)

    def slow():
        # Small batches, until the phase of reading was told.
        sent = 0
        while not any(phase == "reading rows" for phase, _, _ in seen) and sent < 9000:
            yield ids[sent : sent + 1]
            sent += 1
            time.sleep(0.02)
        yield ids[sent:]

    report = rtad.build(
        str(tmp_path / "store"), "users", slow(), progress=lambda *now: seen.append(now)
    )
    phases = {phase for phase, _, _ in seen}
    assert "reading rows" in phases
    assert report["keys"] == 10_000
    assert all(done <= 10_000 for _, done, _ in seen)
    assert rtad.append(str(tmp_path / "store"), "users", synth(1), progress=True)["rows"] == 1


def test_exception_of_the_progress_stops_the_build(rtad, tmp_path):
    def stop(*_):
        raise StopAsyncIteration

    batches = (synth(10) for _ in range(100))
    with pytest.raises(StopAsyncIteration):
        rtad.build(str(tmp_path / "store"), "users", batches, progress=stop)
    assert not (tmp_path / "store/users/records").exists()


def build_with_a_warning(rtad, store):
    ids = [*synth(980, "--id-kind", "oaid"), *synth(20)]
    return rtad.build(str(store), "users", ids, kind="oaid")


def test_warnings_of_the_loader_are_those_of_python(rtad, tmp_path):
    with pytest.warns(UserWarning, match="^input -: 20 of 1,000 ids of kind oaid look like "):
        build_with_a_warning(rtad, tmp_path / "store")


def test_warning_that_is_an_error_does_not_hide_the_publication(rtad, tmp_path, monkeypatch):
    unraised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: unraised.append(found.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = build_with_a_warning(rtad, tmp_path / "store")
    assert (report["generation"], report["keys"]) == (1, 1000)
    assert [str(warning)[:12] for warning in unraised] == ["input -: 20 "]


@pytest.mark.parametrize(
    ("source", "flags", "expected"),
    [
        ("ids.txt", {}, "source: a text or a path: expected rows; files= takes paths"),
        (["a"], {"files": "ids.txt"}, "source and files: expected one of them"),
        (None, {"files": []}, "source or files: expected one of them, found none"),
        (["a"], {"columns": "a", "column": "b"}, "column: expected as columns="),
        (["a"], {"id_kind": "oaid"}, "id_kind: expected as kind="),
        ({"a": ["x"]}, {"columns": "a"}, "source: an object of type builtins.dict: expected a "),
        (5, {}, "source: an object of type builtins.int: expected a column, a table, a list or "),
    ],
)
def test_sources_that_contradict_are_refused(rtad, source, flags, expected):
    with pytest.raises(TypeError) as failure:
        rtad.build("store", "users", source, **flags)
    assert str(failure.value).startswith(expected)


def test_memory_of_a_build_does_not_grow_with_its_rows(built, tmp_path):
    program = """
import os, resource, sys
import rtad
def batches(count):
    for _ in range(count):
        digests = os.urandom(16 * 20_000)
        yield [digests[at : at + 16] for at in range(0, len(digests), 16)]
rtad.build(sys.argv[1], "users", batches(int(sys.argv[2])), memory="64MiB", threads=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for count in (10, 100):
        words = [built.python, "-c", program, tmp_path / str(count), count]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout) >> 10)
    small, large = peaks
    # Ten times the rows: 29 MiB of keys more.
    assert large < small + 40, peaks


def test_columns_of_polars_that_are_not_read_may_have_any_type(rtad, tmp_path):
    ids = synth(20)
    frame = polars.DataFrame({"id": ids, "note": [None] * 20, "list": [[None]] * 20})
    frame = frame.with_columns(large=polars.lit(1).cast(polars.Int128))
    # A batch of nulls alone in a running build.
    batches = [frame, frame.with_columns(id=None)]
    report = rtad.build(str(tmp_path / "s"), "a", batches, columns="id")
    assert (report["keys"], report["blank"]) == (20, 20)
    assert rtad.keys("md5", polars.Series([None, None])).blank == 2


def test_columns_of_pandas_that_are_not_read_may_have_any_values(rtad, tmp_path):
    ids = synth(20)
    frame = pandas.DataFrame({"id": ids, "note": ["a", 1] * 10, "object": [object()] * 20})
    frame = pandas.concat([frame, frame[["note"]]], axis=1)
    report = rtad.build(str(tmp_path / "s"), "a", frame, columns="id")
    assert (report["keys"], report["rejected"]["total"]) == (20, 0)


def test_index_of_pandas_is_a_column_if_it_is_named(rtad, tmp_path):
    ids = synth(20)
    frame = pandas.DataFrame({"id": ids, "row": range(20)})
    # The index of every third row is no range, and pandas exports it.
    thirds = frame["row"] % 3 == 0
    for number, source in enumerate(
        (
            [frame[thirds], frame[~thirds], frame[:0]],
            frame[["id"]][thirds],
            frame.set_index("id"),
            [frame.set_index("id", drop=False), frame.set_index("row")],
        )
    ):
        report = rtad.build(str(tmp_path / str(number)), "a", source, columns="id")
        assert report["keys"] == (7 if number == 1 else 20), number
    assert len(rtad.keys("md5", frame[["id"]][thirds])) == 7


def test_columns_of_pyarrow_that_are_not_read_may_have_any_type(rtad, tmp_path):
    ids = synth(20)
    nested = [{"a": {"b": 1}}] * 20
    table = pyarrow.table({"id": ids, "nested": nested})
    for number, source in enumerate((table.slice(3), table.to_batches(max_chunksize=7))):
        report = rtad.build(str(tmp_path / str(number)), "a", source, columns="id")
        assert report["keys"] == (17, 20)[number]
    twice = pyarrow.Table.from_arrays([table["id"]] * 2, names=["id", "id"])
    with pytest.raises(rtad.Error, match="has more than one column \"id\""):
        rtad.build(str(tmp_path / "twice"), "a", twice, columns="id")
