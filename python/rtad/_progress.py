"""Progress of a command."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Called with the phase, the count of rows, keys or chunks, and their total if it is known. True
# stands for a bar of tqdm, if that is installed.
Progress = Callable[[str, int, int | None], object] | bool | None


@contextmanager
def callback(progress: Progress) -> Iterator[Callable[[str, int, int | None], object] | None]:
    """The function to call, if any."""
    if not isinstance(progress, bool):
        yield progress
        return
    try:
        tqdm = importlib.import_module("tqdm.auto") if progress else None
    except ImportError:
        tqdm = None
    if tqdm is None:
        yield None
        return
    with tqdm.tqdm(unit_scale=True) as bar:
        yield _drawn(bar)


def _drawn(bar: Any) -> Callable[[str, int, int | None], object]:
    def draw(phase: str, done: int, total: int | None) -> None:
        if phase != bar.desc:
            bar.reset()
            bar.set_description_str(phase, refresh=False)
        bar.total = total
        bar.n = done
        bar.refresh()

    return draw
