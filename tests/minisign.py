"""Independent verifier of the signatures of records: RFC 8032 in plain Python.

    python3 tests/minisign.py KEY FILE PATH

KEY is a public key in base64, FILE is a record, PATH is its path in the store. The first line of
the file is signed by the rest. Exits 1 with a reason on stderr if the signature is invalid. Not
fast, and not safe against timing attacks.
"""

import base64
import hashlib
import sys
from pathlib import Path

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_MINUS_1 = pow(2, (P - 1) // 4, P)


def add(a, b):
    """Adds two points in extended coordinates."""
    (x1, y1, z1, t1), (x2, y2, z2, t2) = a, b
    m, n = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    c, d = 2 * t1 * t2 * D % P, 2 * z1 * z2 % P
    e, f, g, h = n - m, d - c, d + c, n + m
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(scalar, point):
    result = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point, scalar = add(point, point), scalar >> 1
    return result


def same(a, b):
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def decoded(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * SQRT_MINUS_1 % P
    if y >= P or (x * x - square) % P or (x == 0 and sign):
        raise ValueError("no point of the curve")
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


BASE = decoded((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_signed(key, message, signature):
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    if s >= ORDER:
        return False
    h = int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % ORDER
    return same(times(s, BASE), add(decoded(r), times(h, decoded(key))))


def check(key_text, data, signature_text, path):
    """The reason why the signature is invalid, or None."""
    key = base64.b64decode(key_text, validate=True)
    untrusted, signature, trusted, overall = signature_text.splitlines()
    signature, overall = (base64.b64decode(line, validate=True) for line in (signature, overall))
    if (len(key), key[:2], len(signature), signature[:2]) != (42, b"Ed", 74, b"ED"):
        return "not a key and a prehashed signature"
    if signature[2:10] != key[2:10]:
        return "signed by another key"
    if trusted != f"trusted comment: rtad {path}":
        return f"signed for another path: {trusted}"
    if not is_signed(key[10:], hashlib.blake2b(data).digest(), signature[10:]):
        return "the signature is wrong"
    if not is_signed(
        key[10:], signature[10:] + trusted.removeprefix("trusted comment: ").encode(), overall
    ):
        return "the signature over the trusted comment is wrong"
    return None


if __name__ == "__main__":
    key_text, file, path = sys.argv[1:]
    content, _, signature = Path(file).read_bytes().partition(b"\n")
    fault = check(key_text, content, signature.decode(), path) if signature else "not signed"
    sys.exit(fault and f"{path}: {fault}")
