"""Audiences in memory."""

import json
from collections.abc import Sequence
from typing import Any

from rtad import _rtad
from rtad._commands import command
from rtad._ids import Ids, column, texts
from rtad._progress import Progress, callback


class Audience:
    """An audience of a store in memory, as a pod has it: with its deltas and tombstones.

    It does not change: open it again for a newer generation or later deltas. Any number of threads
    may use it; the interpreter's lock is released.
    """

    def __init__(self, snapshot: _rtad.Snapshot, target: dict[str, Any]) -> None:
        self._snapshot = snapshot
        self._target = target

    @classmethod
    def open(
        cls,
        url: str,
        name: str,
        *,
        generation: int | None = None,
        public_key: str | Sequence[str] = (),
        progress: Progress = None,
    ) -> "Audience":
        """Loads the live generation of an audience, or another `generation`.

        `url` is the store: a directory, s3://, gs://, az://, oss://, cos://, https:// or http://.
        With a `public_key`, a minisign key or a file of them, its record must be signed by one.
        """
        target = {"store": url, "audience": name}
        flags = command(None, target | {"public_key": public_key, "generation": generation})
        with callback(progress) as told:
            return cls(_rtad.Snapshot.load(flags, told), target)

    def contains(
        self, ids: Ids, kind: str = "md5", *, blank: Sequence[str] = ()
    ) -> _rtad.Column:
        """Whether each id is a member: booleans, null for an id without a key.

        A member is always true. A non-member is true at the false-positive rate of the build.
        `kind` may be several, such as "idfa,imei,oaid". A warning says if most ids are malformed or
        look like another kind.
        """
        return self._snapshot.contains(column(ids), kind, texts(blank))

    def values(self, ids: Ids, kind: str = "md5", *, blank: Sequence[str] = ()) -> _rtad.Column:
        """The value of each id, from 0 to 15, of an audience that was built with values.

        Null for an id that is no member, or a member without a value. That of a false positive is
        noise.
        """
        return self._snapshot.values(column(ids), kind, texts(blank))

    @property
    def info(self) -> dict[str, Any]:
        """Facts of the generation and its deltas."""
        found: dict[str, Any] = json.loads(self._snapshot.info())
        return found

    def diff(self, older: int, newer: int) -> dict[str, Any]:
        """What differs between two generations in the store, as `rtad-loader diff --json`."""
        arguments = command("diff", self._target, [older, newer])
        found: dict[str, Any] = json.loads(_rtad.run(arguments, None, None))
        return found

    def __repr__(self) -> str:
        info = self.info
        return f"<rtad.Audience {info['audience']}, generation {info['generation']}>"
