"""Columns of ids and tables, as the compiled part reads them."""

import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

# Ids of an iterator that are handed over at once.
BATCH_IDS = 65_536

# Anything that is a column: `__arrow_c_array__`, `__arrow_c_stream__`, a NumPy array, a list.
Ids = Any


def column(ids: Ids, wanted: Collection[str] = ()) -> Any:
    """An object that exports Arrow; the bytes, width and padding of a NumPy array; or a list. Of a
    polars frame, the wanted columns alone."""
    if is_arrow(ids):
        return _of_polars(ids, wanted)
    if hasattr(ids, "__array_interface__"):
        return _of_numpy(ids)
    if isinstance(ids, (str, bytes)):
        raise TypeError("ids: one id: expected a column of them; rtad.key takes one id")
    return list(ids)


def batches(source: Iterable[Any], wanted: Collection[str] = ()) -> Iterator[Any]:
    """The columns and tables of a source. Ids of an iterator are collected into lists."""
    if is_arrow(source) or hasattr(source, "__array_interface__"):
        yield column(source, wanted)
        return
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


def is_arrow(value: Any) -> bool:
    return hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")


def _of_polars(ids: Any, wanted: Collection[str]) -> Any:
    """Without columns that Arrow readers refuse: polars exports a buffer with nulls of type Null,
    and integers of 128 bits."""
    polars: Any = sys.modules.get("polars")
    if polars is None:
        return ids
    if isinstance(ids, polars.Series) and ids.dtype == polars.Null:
        return ids.cast(polars.String)
    if isinstance(ids, polars.DataFrame):
        # A struct for its members.
        outer = {one if one in ids.columns else one.partition(".")[0] for one in wanted}
        if outer and outer <= set(ids.columns):
            ids = ids.select(outer)
        return ids.with_columns(polars.selectors.by_dtype(polars.Null).cast(polars.String))
    return ids


def _of_numpy(array: Any) -> Any:
    if hasattr(array, "mask"):
        array = _without_masked(array)
        if isinstance(array, list):
            return array
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
