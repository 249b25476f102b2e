"""Result columns in NumPy, pandas, polars and pyarrow: a null is never true or false."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy
import pandas
import polars
import pyarrow
import pytest

from suites.testkit.programs import synth


@pytest.fixture(scope="module")
def found(rtad, tmp_path_factory):
    """Booleans, values and keys of three ids, a member and two others; `sparse_…`: of three, the
    second without a key."""
    store = str(tmp_path_factory.mktemp("columns"))
    member, *others = synth(3)
    table = pyarrow.table({"id": [member], "score": [7]})
    rtad.build(store, "users", table, columns="id", value="score", filter="ribbon")
    audience = rtad.Audience.open(store, "users")
    ids, sparse = [member, *others], [member, None, others[0]]
    return SimpleNamespace(
        known=audience.contains(ids),
        sparse_known=audience.contains(sparse),
        values=audience.values([member] * 3),
        sparse_values=audience.values(sparse),
        keys=rtad.keys("md5", ids),
        sparse_keys=rtad.keys("md5", sparse),
        digests=[bytes.fromhex(one) for one in ids],
    )


@pytest.fixture
def frame():
    return pandas.DataFrame({"price": [1, 2, 3]})


def test_arrays_have_the_type_of_the_column(found):
    known = numpy.asarray(found.known)
    assert (known.dtype, known.tolist()) == (bool, [True, False, False])
    values = numpy.asarray(found.values)
    assert (values.dtype, values.tolist()) == (numpy.uint8, [7, 7, 7])
    # Objects, as a fixed width of bytes would lose the zeros at the end of a key.
    assert numpy.asarray(found.keys).tolist() == found.digests
    for dtype in "V16", "S16":
        assert numpy.asarray(found.keys, dtype=dtype).tobytes() == b"".join(found.digests)
    assert numpy.asarray(found.known, dtype="int8").tolist() == [1, 0, 0]
    assert numpy.asarray(found.values, dtype=object).tolist() == [7, 7, 7]


def test_arrays_are_writable_copies(found):
    array = numpy.array(found.known, copy=True)
    array[1] = True
    assert found.known.to_pylist() == [True, False, False]
    with pytest.raises(ValueError, match="an array of it is a copy: expected copy=None"):
        numpy.array(found.known, copy=False)


def test_empty_columns_are_empty_arrays(rtad):
    column = rtad.keys("md5", [])
    assert numpy.asarray(column).shape == (0,)
    assert (len(column), list(column)) == (0, [])


def test_nulls_of_values_are_nan_and_those_of_keys_none(found):
    values = numpy.asarray(found.sparse_values)
    assert values.dtype == numpy.float64
    assert values[0] == 7 and numpy.isnan(values[1:]).all()
    assert numpy.asarray(found.sparse_keys)[1] is None
    assert numpy.asarray(found.sparse_known, dtype="float32")[0] == 1


def test_nulls_are_none_if_objects_are_asked_for(found):
    for column in found.sparse_known, found.sparse_values, found.sparse_keys:
        array = numpy.asarray(column, dtype=object)
        assert array.tolist() == column.to_pylist() and array[1] is None


@pytest.mark.parametrize("dtype", [bool, "uint8", "int64", "S16", "U5"])
def test_types_without_a_null_are_refused_if_there_are_any(found, dtype):
    name = numpy.dtype(dtype)
    for column in found.sparse_known, found.sparse_values, found.sparse_keys:
        with pytest.raises(ValueError) as failure:
            numpy.asarray(column, dtype=dtype)
        rows = column.null_count
        assert str(failure.value) == (
            f"a column: {rows} of 3 rows are null, and dtype {name} has no null: expected "
            "dtype=object, which has None"
        )


def test_choice_by_a_column_is_by_row(found):
    assert numpy.where(found.known, "old", "new").tolist() == ["old", "new", "new"]
    assert numpy.arange(3)[found.known].tolist() == [0]
    assert (numpy.array([True, True, False]) & found.known).tolist() == [True, False, False]
    with pytest.raises(TypeError, match="boolean value of NA is ambiguous"):
        numpy.where(found.sparse_known, "old", "new")


def test_booleans_with_nulls_are_refused_without_pandas(rtad, tmp_path):
    """Its null is the only one that is neither true nor false."""
    program = """
import numpy, sys, rtad
rtad.build(sys.argv[1], "users", ["868049039501257"], kind="imei")
known = rtad.Audience.open(sys.argv[1], "users").contains(["868049039501257", None], "imei")
assert "pandas" not in sys.modules
try:
    numpy.where(known, 1, 0)
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "store"],
        env={"PYTHONPATH": os.path.dirname(os.path.dirname(rtad.__file__))},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("a column: 1 of 2 rows are null"), done.stderr


def test_pandas_has_a_row_of_each_id(found, frame):
    frame["known"] = found.known
    assert frame["known"].dtype == bool
    assert frame["known"].tolist() == [True, False, False]
    assert frame.assign(known=found.known)["known"].tolist() == [True, False, False]
    assert pandas.Series(found.known).tolist() == [True, False, False]
    assert pandas.DataFrame({"key": found.keys})["key"].tolist() == found.digests
    frame["score"] = found.sparse_values
    assert frame["score"].mean() == 7 and frame["score"].isna().tolist() == [False, True, True]
    frame["key"] = found.sparse_keys
    assert frame["key"].isna().tolist() == [False, True, False]


def test_pandas_takes_a_column_as_a_mask(found, frame):
    assert frame[found.known]["price"].tolist() == [1]
    assert frame[~found.known]["price"].tolist() == [2, 3]
    assert frame.loc[found.known, "price"].tolist() == [1]
    # Without a mask, positions: 1, 0 and 0.
    assert frame.iloc[found.known]["price"].tolist() == [1]
    assert frame["price"][found.known].tolist() == [1]
    frame.loc[found.known, "price"] = 9
    assert frame["price"].tolist() == [9, 2, 3]
    with pytest.raises(ValueError, match="Cannot mask with non-boolean array containing NA"):
        frame[found.sparse_known]
    with pytest.raises(ValueError, match="3 rows as an index: expected a frame of as many"):
        frame[:2][found.known]


def test_nulls_of_pandas_are_neither_true_nor_false(found, frame):
    frame["known"] = found.sparse_known
    assert frame["known"].isna().tolist() == [False, True, False]
    with pytest.raises(TypeError, match="boolean value of NA is ambiguous"):
        frame["known"].astype(bool)
    with pytest.raises(ValueError, match="Cannot mask with non-boolean array"):
        frame[frame["known"]]
    nullable = frame["known"].astype("boolean")
    assert frame[nullable]["price"].tolist() == [1]
    assert frame[~nullable]["price"].tolist() == [3]
    typed = pandas.Series(found.sparse_known, dtype="boolean")
    assert typed.fillna(False).tolist() == [True, False, False]


def test_polars_takes_a_series_of_a_column(found):
    table = polars.DataFrame({"price": [1, 2, 3]})
    known = polars.Series(found.sparse_known)
    assert (known.dtype, known.to_list()) == (polars.Boolean, [True, None, False])
    shown = table.with_columns(known=known)
    assert shown.filter("known")["price"].to_list() == [1]
    assert table.filter(~known)["price"].to_list() == [3]
    assert polars.Series(found.sparse_values).to_list() == [7, None, None]
    assert polars.DataFrame({"key": found.keys})["key"].to_list() == found.digests
    # polars makes no expression of a foreign column.
    for refused in lambda: table.with_columns(known=found.known), lambda: table.filter(found.known):
        with pytest.raises(TypeError, match="Column"):
            refused()


def test_pyarrow_takes_columns(found):
    table = pyarrow.table({"known": found.sparse_known, "key": found.keys})
    assert table["known"].to_pylist() == [True, None, False]
    assert table.filter(table["known"]).num_rows == 1
    values = pyarrow.array(found.sparse_values)
    assert (values.type, values.to_pylist()) == (pyarrow.uint8(), [7, None, None])


def test_columns_are_iterated_by_row(found):
    assert list(found.sparse_known) == [True, None, False]
    assert any(found.known) and not all(found.known)
    assert sorted(zip(found.known, "abc")) == [(False, "b"), (False, "c"), (True, "a")]


def test_opposite_keeps_nulls_and_counts(found):
    opposite = ~found.sparse_known
    assert opposite.to_pylist() == [False, None, True]
    assert opposite.blank == found.sparse_known.blank == 1


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda one: bool(one.known), "the truth value of a column of 3 rows is ambiguous"),
        (lambda one: not one.keys, "the truth value of a column of 3 rows is ambiguous"),
        (lambda one: ~one.values, "a column has no operator ~: expected that of a library"),
        (lambda one: one.known & one.known, "a column has no operator &"),
        (lambda one: one.known | one.known, "a column has no operator |"),
        (lambda one: one.known ^ one.known, "a column has no operator ^"),
        (lambda one: one.values == 7, "a column has no operator ==: expected that of a library"),
        (lambda one: one.values != 7, "a column has no operator !="),
        (lambda one: one.known == one.known, "a column has no operator =="),
    ],
)
def test_use_without_a_meaning_is_refused(found, use, expected):
    with pytest.raises((TypeError, ValueError)) as failure:
        use(found)
    assert str(failure.value).startswith(expected)


def test_operators_with_arrays_are_those_of_their_library(found):
    assert (found.values == numpy.array([7, 1, 7])).tolist() == [True, False, True]
    assert (found.values != pandas.Series([7, 1, 7])).tolist() == [False, True, False]
    assert (numpy.asarray(found.sparse_values) >= 5).tolist() == [True, False, False]
