"""The compiled part."""

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import Any, ClassVar, final

__all__ = ["VERSION", "Column", "Snapshot", "explain", "key", "keys", "run"]

VERSION: str

@final
class Column:
    """A column of results: one for each id, null for an id without a key.

    Any library that reads Arrow takes it: `pyarrow.array(column)`, `polars.Series(column)`. NumPy
    and pandas take it as an array: `frame["known"] = column`, `frame[column]`,
    `numpy.where(column, ...)`. `~column` is the opposite; other operators are those of a library.
    It has no truth value, as a Series has none.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]

    @property
    def blank(self) -> int:
        """Number of ids that mean "no id", nulls included."""

    @property
    def malformed(self) -> int:
        """Number of ids that do not have the form of their kind."""

    @property
    def usable_by_kind(self) -> dict[str, int]:
        """Number of ids with a key, by kind."""

    @property
    def null_count(self) -> int:
        """Number of nulls."""

    def to_pylist(self) -> list[Any]:
        """The results as a list."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """A NumPy array: of bool or uint8, or of objects for keys, which are bytes.

        Nulls become `pandas.NA` of booleans, if pandas is imported; NaN of values; None of keys.
        With `dtype=object` all are None. Raises ValueError if the dtype has no null, and if `copy`
        is False.
        """

    def __call__(self, frame: Any) -> Any:
        """The NumPy array, for pandas: it calls what it is indexed with, as in `frame[column]`, and
        takes no other foreign column for a mask.
        """

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, row: int, /) -> Any: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: Any, /) -> Any: ...
    def __ne__(self, other: Any, /) -> Any: ...
    def __invert__(self) -> Column:
        """The opposite of each boolean; nulls stay."""

    def __and__(self, other: Any, /) -> Any: ...
    def __or__(self, other: Any, /) -> Any: ...
    def __xor__(self, other: Any, /) -> Any: ...
    def __rand__(self, other: Any, /) -> Any: ...
    def __ror__(self, other: Any, /) -> Any: ...
    def __rxor__(self, other: Any, /) -> Any: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The Arrow C data interface."""

@final
class Snapshot:
    """An audience at one generation, with its deltas and tombstones."""

    @staticmethod
    def load(
        flags: list[str], progress: Callable[[str, int, int | None], object] | None
    ) -> Snapshot: ...
    def contains(self, ids: Any, kind: str, blank: list[str]) -> Column: ...
    def values(self, ids: Any, kind: str, blank: list[str]) -> Column: ...
    def info(self) -> str: ...

def key(kind: str, id: Any) -> bytes | None: ...
def keys(kind: str, ids: Any, blank: list[str]) -> Column: ...
def run(
    arguments: list[str],
    objects: Iterable[Any] | None,
    progress: Callable[[str, int, int | None], object] | None,
) -> str: ...
def explain(
    config: str | PathLike[str],
    platform: str,
    body: bytes,
    headers: list[str],
    query: str | None,
    at: str | None,
) -> str: ...
