"""Columns of ids and tables, as the compiled part reads them."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

# Ids of an iterator that are handed over at once.
BATCH_IDS = 65_536

# Anything that is a column: `__arrow_c_array__`, `__arrow_c_stream__`, a NumPy array, a list.
Ids = Any


def column(ids: Ids, wanted: Collection[str] = ()) -> Any:
    """An object that exports Arrow; the bytes, width and padding of a NumPy array; or a list. Of a
    frame, the wanted columns alone."""
    if is_arrow(ids):
        return _of_pyarrow(_of_polars(_of_pandas(ids, wanted), wanted), wanted)
    if hasattr(ids, "__array_interface__"):
        return _of_numpy(ids)
    if isinstance(ids, (str, bytes, bytearray, memoryview)):
        raise TypeError("ids: one id: expected a column of them; rtad.key takes one id")
    check_rows("ids", ids)
    return list(ids)


def check_rows(place: str, rows: Any) -> None:
    """Raises TypeError for an object without rows. The items of a dictionary are its keys."""
    if isinstance(rows, Iterable) and not isinstance(rows, Mapping):
        return
    kind = type(rows)
    raise TypeError(
        f"{place}: an object of type {kind.__module__}.{kind.__qualname__}: expected a column, a "
        "table, a list or an iterator, as of to_batches() or collect()"
    )


def batches(source: Iterable[Any], wanted: Collection[str] = ()) -> Iterator[Any]:
    """The columns and tables of a source. Ids of an iterator are collected into lists."""
    if is_arrow(source) or hasattr(source, "__array_interface__"):
        yield column(source, wanted)
        return
    check_rows("source", source)
    ids: list[Any] = []
    for item in source:
        is_column = is_arrow(item) or hasattr(item, "__array_interface__")
        if is_column or isinstance(item, list):
            if ids:
                yield ids
            yield column(item, wanted)
            ids = []
            continue
        ids.append(item)
        if len(ids) == BATCH_IDS:
            yield ids
            ids = []
    if ids:
        yield ids


def _without_masked(array: Any) -> Any:
    """A masked array's values, blank in each row with a masked one."""
    kind = array.dtype.kind
    if array.ndim == 1 and kind not in "SUV":
        return array.tolist()
    values, masked = array.data.copy(), array.mask
    if values.ndim == 2 and masked.ndim == 2:
        masked = masked.any(axis=1)
    values[masked] = {"S": b"", "V": b"", "U": ""}.get(kind, 0)
    return values


def texts(given: Sequence[str]) -> list[str]:
    """A list of texts, also of one alone."""
    return [given] if isinstance(given, str) else list(given)


def is_arrow(value: Any) -> bool:
    return hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")


def _of_pandas(ids: Any, wanted: Collection[str]) -> Any:
    """Without an index that is not wanted: pandas exports it, but not that of a contiguous range,
    so that parts of one frame would differ. Without other columns, which may have any values."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is None:
        return ids
    if isinstance(ids, pandas.Series):
        return _without_numbers_in_text(ids)
    if not isinstance(ids, pandas.DataFrame):
        return ids

    columns = [str(name) for name in ids.columns]
    in_index = {str(name) for name in ids.index.names if name is not None}
    if not in_index.isdisjoint(wanted) and in_index.isdisjoint(columns):
        ids = ids.reset_index()
        columns = [str(name) for name in ids.columns]
    outer = _outer_columns(columns, wanted)
    frame = ids.loc[:, [not outer or name in outer for name in columns]].reset_index(drop=True)
    for position in range(frame.shape[1]):
        frame.isetitem(position, _without_numbers_in_text(frame.iloc[:, position]))
    return frame


def _without_numbers_in_text(series: Any) -> Any:
    """Numbers among text, as of a spreadsheet, as text: pandas does not export several types, and
    its exception shows an id."""
    pandas: Any = sys.modules["pandas"]
    if series.dtype != object:
        return series
    if not pandas.api.types.infer_dtype(series, skipna=True).startswith("mixed"):
        return series
    return series.map(lambda one: str(one) if isinstance(one, Real) and one == one else one)


def _outer_columns(columns: Collection[str], wanted: Collection[str]) -> set[str]:
    """The wanted columns, with a struct for its members; none if one is missing."""
    outer = {one if one in columns else one.partition(".")[0] for one in wanted}
    return outer if outer <= set(columns) else set()


def _of_pyarrow(ids: Any, wanted: Collection[str]) -> Any:
    """Without columns that Arrow readers refuse, such as slices of structs in structs."""
    pyarrow: Any = sys.modules.get("pyarrow")
    if pyarrow is None or not isinstance(ids, (pyarrow.Table, pyarrow.RecordBatch)):
        return ids
    names = ids.column_names
    # Not with members of structs: the error of an unknown one lists all columns.
    if not wanted or not set(wanted) <= set(names):
        return ids
    # By number, so that a name that occurs twice is refused.
    return ids.select([at for at, name in enumerate(names) if name in wanted])


def _of_polars(ids: Any, wanted: Collection[str]) -> Any:
    """Without columns that Arrow readers refuse: polars exports a buffer with nulls of type Null,
    and integers of 128 bits."""
    polars: Any = sys.modules.get("polars")
    if polars is None:
        return ids
    if isinstance(ids, polars.Series) and ids.dtype == polars.Null:
        return ids.cast(polars.String)
    if isinstance(ids, polars.DataFrame):
        if outer := _outer_columns(ids.columns, wanted):
            ids = ids.select(outer)
        return ids.with_columns(polars.selectors.by_dtype(polars.Null).cast(polars.String))
    return ids


def _of_numpy(array: Any) -> Any:
    if hasattr(array, "mask") and not array.dtype.names:
        array = _without_masked(array)
        if isinstance(array, list):
            return array
    if array.dtype.names:
        raise TypeError("ids: an array of records: expected that of a field, as array[name]")
    kind, width = array.dtype.kind, array.dtype.itemsize
    if array.ndim == 2 and kind == "u" and width == 1:
        return array.tobytes(), array.shape[1], False
    if array.ndim != 1:
        raise TypeError(
            f"ids: an array of {array.ndim} dimensions: expected one, or two of bytes (uint8)"
        )
    if kind in "SV":
        return array.tobytes(), width, kind == "S"
    if kind == "U":
        try:
            return _of_numpy(array.astype("S"))
        except UnicodeEncodeError:
            # An id that is not ASCII is malformed; a list keeps its text.
            pass
    return array.tolist()
