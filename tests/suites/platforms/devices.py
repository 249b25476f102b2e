"""Test devices: members, non-members, and values that mean "no id".

Ids and their md5s are made with Python's hashlib, independently of the loader and the service.
"""

import csv
import hashlib
import random
import uuid
from typing import NamedTuple


class Id(NamedTuple):
    """A raw id in canonical form."""

    kind: str
    raw: str

    @property
    def md5(self):
        return hashlib.md5(self.raw.encode()).hexdigest()


# From the published example requests.
IMEI = Id("imei", "868049039501257")
OAID = Id("oaid", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5")

_random = random.Random(20240616)


def _hex(digits):
    return "".join(_random.choices("0123456789abcdef", k=digits))


def _uuid():
    return str(uuid.UUID(int=_random.getrandbits(128)))


_MAKE = {
    "idfa": lambda: _uuid().upper(),
    "imei": lambda: "86" + "".join(_random.choices("0123456789", k=13)),
    # Case-sensitive.
    "oaid": lambda: "".join(_random.choices("0123456789abcdefABCDEF", k=64)),
    "android_id": lambda: _hex(16),
    "mac": lambda: ":".join(_hex(2).upper() for _ in range(6)),
    "caid": lambda: _hex(32),
    "gaid": _uuid,
    "openid": lambda: "o" + "".join(_random.choices("abcXYZ019_-", k=27)),
}

KINDS = tuple(_MAKE)


def _some(count):
    return {kind: [Id(kind, make()) for _ in range(count)] for kind, make in _MAKE.items()}


OLD_USERS = _some(6)
VIPS = _some(3)
NON_MEMBERS = _some(12)

AUDIENCES = {
    "old_users": [known for ids in OLD_USERS.values() for known in ids],
    "vip": [known for ids in VIPS.values() for known in ids],
    "example": [IMEI],
}

_RUNS = [
    digit * length
    for digit in "0123456789abcdef"
    for length in (8, 12, 14, 15, 16, 17, 32, 36, 40, 64)
]
_GROUPED = ["-".join(digit * n for n in (8, 4, 4, 4, 12)) for digit in "0f"]
_GROUPED += [separator.join([digit * 2] * 6) for digit in "0f" for separator in ("", ":", "-")]

# Documented values for "no id", as written, in lower and in upper case.
JUNK = sorted(
    {
        spelling
        for junk in [
            *"0 - -1 null (null) nil none unknown unknow undefined N/A NA nan true false default test".split(),
            *"012345678912345 123456789012345 111111111111111 004999010640000 358673013795895".split(),
            *"9774d56d682e549c 02:00:00:00:00:00 020000000000 02-00-00-00-00-00".split(),
            *"__IMEI__ __IMEI2__ __IDFA__ __IDFA2__ __IDFA_MD5__ __IDFAMD5__ __OAID__ __OAID2__".split(),
            *"__OAID_MD5__ __OAIDMD5__ __ANDROIDID__ __ANDROIDID2__ __MAC__ __MAC1__ __MAC2__".split(),
            *"__CAID__ __CAID1__ __CAID2__ __GAID__ __IP__".split(),
            "",
            " ",
            *_RUNS,
            *_GROUPED,
        ]
        for spelling in (junk, junk.lower(), junk.upper())
    }
)

# In every field: not an md5, not a raw id of any kind.
MALFORMED = ["a b", "机型", "\x00", "\x7f", "x" * 129, "12345 67890", "é" * 16]


def md5_of(text):
    return hashlib.md5(text.encode()).hexdigest()


def write_csv(audience, folder):
    """Writes an audience as CSV with a column per kind; returns the file."""
    path = folder / f"{audience}.csv"
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, KINDS)
        rows.writeheader()
        rows.writerows({known.kind: known.raw} for known in AUDIENCES[audience])
    return path
