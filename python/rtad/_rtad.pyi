"""The compiled part."""

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import Any, ClassVar, final

__all__ = ["VERSION", "Column", "Snapshot", "explain", "key", "keys", "run"]

VERSION: str

@final
class Column:
    """A column of results: one for each id, null for an id without a key.

    Any library that reads Arrow takes it: `pyarrow.array(column)`, `polars.Series(column)`.
    """

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

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Any: ...
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
) -> str: ...
