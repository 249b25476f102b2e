"""Device ids of random requests: usable ones in all their spellings, and others."""

import hashlib
import uuid
from typing import NamedTuple

KINDS = ["idfa", "imei", "oaid", "android_id", "mac", "caid", "gaid", "openid"]
POOL = 60
# Raw ids that stand for none, of every kind.
BLANK = ["", " ", "0", "00000000-0000-0000-0000-000000000000", "__IMEI__", "{{OAID}}", "null"]
BLANK += ["02:00:00:00:00:00", "unknown", "N/A", "$IDFA$", "-", "000000000000000"]
BLANK_MD5 = ["0" * 15, "00000000-0000-0000-0000-000000000000", "null", "__IMEI__", ""]
MALFORMED = {
    "idfa": ["abc", "9C287922-EE26-4501-94B5", "9C287922EE26450194B530DDE6F83475"],
    "imei": ["8654320264829", "865432026482946123", "86543202648294x"],
    "oaid": ["a*b", "ab" * 20, "ab" * 33, "1.5"],
    "android_id": ["9774d56d682e549c1", "xyz"],
    "mac": ["A4:5E:60:C2:18", "A4:5E:60:C2:18:4Z"],
    "caid": ["a b", "ab" * 28],
    "gaid": ["38400000-8cf0-11bd-b23e", "x"],
    "openid": ["o6_bmjrPTlm6 2sgVt7hMZOPfL2M", "8.68E+14", "1.25", "ab" * 65],
    "md5": ["8d3ebd3654fb46a283229666", "xyz", "8d3ebd3654fb46a2832296669cf1b53g"],
}


class Id(NamedTuple):
    """An id of a request. Its md5 is None if it is not usable."""

    field: str
    kind: str
    text: str
    md5: str | None


def raw_id(kind, number):
    """An id in its canonical form."""
    digits = hashlib.sha256(f"{kind} {number}".encode()).hexdigest()
    if kind in ("idfa", "oaid", "gaid"):
        found = str(uuid.UUID(digits[:32]))
        return found.upper() if kind == "idfa" else found
    if kind == "imei":
        return digits[:14] if number % 5 == 0 else str(int(digits, 16))[:15]
    if kind == "mac":
        return ":".join(digits[at : at + 2] for at in range(0, 12, 2))
    return digits[: 16 if kind == "android_id" else 32]


def md5(raw):
    return hashlib.md5(raw.encode()).hexdigest()


RAW = {kind: [raw_id(kind, number) for number in range(POOL)] for kind in KINDS}
# OAIDs that JSON may have as numbers.
RAW["oaid"][:6] = [str(1_234_567_000 + number) for number in range(6)]
NAMELESS = [md5(f"nameless {number}") for number in range(POOL)]
MD5S = NAMELESS + [md5(raw) for raws in RAW.values() for raw in raws]


def spelled(random, kind, raw):
    """Another spelling of the same id."""
    found = raw.swapcase() if kind in ("idfa", "gaid", "imei") and random.random() < 0.5 else raw
    return random.choice([found, found, found, f" {found}", f"{found}\t"])


def usable(random, field, kind, is_hashed):
    if kind == "md5":
        digits = random.choice(NAMELESS)
        return Id(field, kind, random.choice([digits, digits.upper()]), digits)
    raw = random.choice(RAW[kind])
    if not is_hashed:
        return Id(field, kind, spelled(random, kind, raw), md5(raw))
    return Id(field, kind, random.choice([md5(raw), md5(raw), md5(raw).upper()]), md5(raw))


def unusable(random, field, kind, is_hashed):
    if random.random() < 0.3:
        return Id(field, kind, random.choice(MALFORMED["md5" if is_hashed else kind]), None)
    is_md5 = is_hashed or kind == "md5"
    text = md5(random.choice(BLANK_MD5)) if is_md5 else random.choice(BLANK)
    return Id(field, kind, text, None)


def random_id(random, field, kind, is_hashed):
    make = unusable if random.random() < 0.12 else usable
    return make(random, field, kind, is_hashed)


def random_ids(random, fields, repeated=()):
    """Ids in some of these fields, in their order: `fields` has a kind, and whether it is hashed,
    by field; a `repeated` field may have several ids."""
    count = min(len(fields), random.choice([0, 1, 1, 1, 2, 2, 3]))
    chosen = random.sample(list(fields), count)
    found = []
    for field in [one for one in fields if one in chosen]:
        kind, is_hashed = fields[field]
        for _ in range(random.choice([1, 1, 2, 3]) if field in repeated else 1):
            found.append(random_id(random, field, kind, is_hashed))
    return found


def many_ids(random, field, kind):
    """More ids than are read, one of which may be in audiences."""
    raws = [f"many{number:04}" for number in range(70)]
    raws[random.randrange(70)] = random.choice(RAW[kind])
    return [Id(field, kind, raw, md5(raw)) for raw in raws]


def usable_of(ids):
    """The usable ids as kind and md5."""
    return [(one.kind, one.md5) for one in ids if one.md5]
