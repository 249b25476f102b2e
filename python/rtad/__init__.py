"""Device keys, audiences and builds of rtad, by the code of the service and of the loader.

Ids are columns: Arrow arrays and tables of any library that exports them (pyarrow, polars, pandas,
DuckDB), NumPy arrays, and lists. Results are Arrow columns. No id appears in a message.
"""

from rtad._audience import Audience
from rtad._commands import append, build, explain, remove, rollback
from rtad._error import Error
from rtad._keys import key, keys
from rtad._rtad import VERSION as __version__
from rtad._rtad import Column

__all__ = [
    "Audience",
    "Column",
    "Error",
    "__version__",
    "append",
    "build",
    "explain",
    "key",
    "keys",
    "remove",
    "rollback",
]
