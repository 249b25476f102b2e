"""Device keys."""

from collections.abc import Sequence

from rtad import _rtad
from rtad._ids import Ids, column, texts


def key(kind: str, id: str | bytes | int | None) -> bytes | None:
    """The 16 bytes of an id's key, as the service makes it; None for an id without a key.

    `kind` is one of md5, idfa, imei, oaid, android_id, mac, caid, gaid and openid. An id has no key
    if it is blank, such as zeros or "null", or does not have the form of its kind.

    >>> key("imei", "868049039501257").hex()
    '8d3ebd3654fb46a2832296669cf1b536'
    """
    return _rtad.key(kind, id)


def keys(kind: str, ids: Ids, *, blank: Sequence[str] = ()) -> _rtad.Column:
    """The keys of a column of ids: fixed-size binary of 16 bytes, null for an id without a key.

    Nulls and masked rows count as blank. With the kind md5 a value of 16 bytes is a digest, unless
    it is printable. `blank` has more ids that mean "no id". `kind` may be several, such as
    "imei,md5": each id is read by its form. A warning says if most ids are malformed or look like
    another kind.

    >>> column = keys("imei", ["868049039501257", None, "0", "imei"])
    >>> column.null_count, column.blank, column.malformed
    (3, 2, 1)
    """
    return _rtad.keys(kind, column(ids), texts(blank))
