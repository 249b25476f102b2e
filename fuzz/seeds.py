#!/usr/bin/env python3
"""Generator of the seeds in fuzz/corpus/, named by content. Findings of the fuzzer are also there.

python3 fuzz/seeds.py
"""

import gzip
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"

IMEI_MD5 = "8d3ebd3654fb46a2832296669cf1b536"
OAID_MD5 = "83e9158a4fb54c0e1ef0b238639a23ae"
OAID = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"


def varint(number, padding=0):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def field(number, value):
    """An int as a varint, a list as a message, anything else as bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = (
        b"".join(value)
        if isinstance(value, list)
        else value.encode()
        if isinstance(value, str)
        else value
    )
    return varint(number << 3 | 2) + varint(len(value)) + value


def group(number, inside=b""):
    return varint(number << 3 | 3) + inside + varint(number << 3 | 4)


def packed(number, *values):
    return field(number, b"".join(map(varint, values)))


def nested(number, depth):
    body = b""
    for _ in range(depth):
        body = field(number, body)
    return body


def ads(*ids):
    return field(8, [field(1, 2)]) + b"".join(
        field(11, [field(1, index), field(5, id)]) for index, id in enumerate(ids)
    )


# Malformed in any protocol.
WIRE = {
    "empty": b"",
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "field-0": b"\x00\x01",
    "key-alone": b"\x0a",
    "wire-type-6": b"\x0e\x01",
    "wire-type-7": b"\x0f\x01",
    "varint-of-10-bytes": field(2, (1 << 64) - 1),
    "varint-of-11-bytes": b"\x10" + b"\x80" * 10 + b"\x01",
    "varint-longer-than-needed": b"\x10" + varint(1, 8),
    "length-longer-than-needed": b"\x0a" + varint(1, 4) + b"r",
    "key-longer-than-needed": b"\x8a\x80\x00\x01r",
    "length-beyond-the-body": b"\x0a\x7f" + b"x",
    "length-of-2-gib": b"\x0a" + varint(1 << 31),
    "length-of-16-eib": b"\x2a" + varint((1 << 64) - 1),
    "group-unknown": group(70, field(1, 5) + field(2, "x")),
    "group-in-groups": group(70, group(71, group(72))),
    "group-without-end": varint(70 << 3 | 3) + field(1, 1),
    "group-without-start": varint(70 << 3 | 4),
    "group-with-another-end": varint(70 << 3 | 3) + varint(71 << 3 | 4),
    "groups-99-deep": varint(70 << 3 | 3) * 99 + varint(70 << 3 | 4) * 99,
    "groups-200-deep": varint(70 << 3 | 3) * 200 + varint(70 << 3 | 4) * 200,
    "unknown-nested-200-deep": nested(77, 200),
    "unknown-fixed": varint(300 << 3 | 5) + b"\1\2\3\4" + varint(301 << 3 | 1) + b"\xff" * 8,
    "unknown-fixed-cut": varint(300 << 3 | 5) + b"\1\2",
    "unknown-largest-number": field((1 << 29) - 1, 1),
    "unknown-number-too-large": varint(1 << 35) + b"\x01",
}

device = field(1, 2) + field(3, IMEI_MD5) + field(6, OAID_MD5) + field(10, 3)
TENCENT = WIRE | {
    "golden": field(1, "Jo825w_uEe2xLlJUAFwvSQ") + field(5, device) + field(9, [field(1, 32768)]),
    "golden-cut": (field(1, "Jo825w_uEe2xLlJUAFwvSQ") + field(5, device))[:-9],
    "ping": field(1, "p1") + field(2, 1),
    "ping-and-not": field(2, 1) + field(2, 0),
    "test-call": field(1, "t") + field(3, 1) + field(5, device),
    "known-device": field(5, [field(3, IMEI_MD5)]),
    "second-request": field(1, "s") + field(5, device) + ads("T1", "T2", "T3", "nobody's", ""),
    "second-request-without-ads": field(8, [field(1, 2)]),
    "second-request-of-ads-without-anything": field(8, [field(1, 2)]) + field(11, b"") * 3,
    "ads-of-a-first-request": ads("T1")[4:],
    "request-type-unknown": field(8, [field(1, 77)]) + field(11, [field(5, "T1")]),
    "request-type-twice": field(8, [field(1, 2)]) + field(8, [field(1, 0)]),
    "all-ids": field(
        5,
        [
            *(field(number, IMEI_MD5) for number in range(2, 7)),
            field(8, OAID),
            field(13, [field(1, 1), field(2, "c" * 31 + "d"), field(3, "v"), field(4, OAID_MD5)]),
            field(14, [field(1, "wx"), field(2, "openid")]),
        ],
    ),
    "doubtful-packed": field(5, [device, packed(9, 0, 1, 2, 3, 4, 5, 6)]),
    "doubtful-unpacked": field(5, [device, *(field(9, kind) for kind in range(7))]),
    "doubtful-unknown-kinds": field(5, [device, packed(9, 7, 99, 1 << 31, (1 << 64) - 1)]),
    "doubtful-packed-cut": field(5, [field(9, b"\x01\x80")]),
    "qaids-65": field(5, [field(13, [field(2, f"{index:032x}")]) for index in range(256, 321)]),
    "qaids-empty": field(5, [field(13, b"")] * 70),
    "blank-ids": field(
        5,
        [
            field(3, "d41d8cd98f00b204e9800998ecf8427e"),
            field(8, "00000000-0000-0000-0000-000000000000"),
        ],
    ),
    "malformed-ids": field(
        5,
        [field(3, "x"), field(4, b"\xff" * 32), field(8, "a b"), field(13, [field(2, "x" * 129)])],
    ),
    "device-twice": field(5, [field(3, IMEI_MD5)]) + field(5, [field(3, OAID_MD5), field(6, "0")]),
    "id-is-no-utf-8": field(1, b"\xff\xfe\x80"),
    "id-twice": field(1, "a") + field(1, "b"),
    "device-is-a-number": field(5, 1),
    "imei-is-a-number": field(5, [field(3, 1)]),
    "unknown-in-device": field(
        5, [field(2, IMEI_MD5), field(40, b"x" * 30), group(41), field(11, 7)]
    ),
    "unread-fields-hold-anything": field(12, b"\xff")
    + field(18, b"\xfe")
    + field(9, b"\xff")
    + field(15, b"\x80"),
}

device = field(1, IMEI_MD5) + field(3, OAID)
OCEAN = WIRE | {
    "golden": field(1, 1)
    + field(2, IMEI_MD5)
    + field(9, 1)
    + field(12, "20240616abcdef")
    + field(13, "local")
    + packed(14, 10003, 10004)
    + field(15, 1)
    + field(17, device),
    "golden-cut": (packed(14, 10003, 10004) + field(17, device))[:-9],
    "ids-unpacked": field(14, 10003) + field(14, -7) + field(14, 1),
    "ids-packed-and-unpacked": field(14, 10003) + packed(14, -7, 0) + field(14, 10004),
    "ids-packed-none": field(14, b""),
    "ids-packed-cut": field(14, b"\x01\x80"),
    "ids-extreme": packed(14, 0, -1, (1 << 63) - 1, -(1 << 63)),
    "ids-twice": packed(14, 10003, 10003, 10003),
    "no-ids": field(17, device),
    **{
        f"did-type-{kind}": field(2, OAID if kind in (4, 6, 8) else IMEI_MD5) + field(9, kind)
        for kind in range(11)
    },
    "did-imei": field(2, "868049039501257"),
    "did-md5": field(2, IMEI_MD5),
    "did-uuid-on-android": field(1, 1) + field(2, OAID),
    "did-uuid-on-ios": field(1, 2) + field(2, OAID.upper()),
    "did-and-type-twice": field(2, "0") + field(9, 4) + field(2, IMEI_MD5) + field(9, 5),
    "all-ids": field(2, OAID)
    + field(9, 6)
    + field(17, [field(number, IMEI_MD5) for number in (1, 2, 3, 4, 6, 7, 9, 34)]),
    "blank-ids": field(2, "null")
    + field(17, [field(1, "0" * 32), field(3, "00000000-0000-0000-0000-000000000000")]),
    "malformed-ids": field(2, b"\xff")
    + field(17, [field(1, "x"), field(3, b"a \xff"), field(6, "x" * 129)]),
    "device-twice": field(17, [field(1, IMEI_MD5)]) + field(17, [field(1, "0")]),
    "device-of-secrets": field(
        17, [field(number, b"\xff\xfe") for number in (5, 10, 11, 12, 13, 14, 17, 18, 21, 31)]
    ),
    "req-id-is-no-utf-8": field(12, b"\xff\xfe") + packed(14, 10003),
    "enums-unknown": field(1, 99) + field(9, -1) + field(15, 1 << 40),
    "device-is-a-number": field(17, 1),
}

API = {
    "empty": "",
    "object": "{}",
    "list": "[]",
    "full": '{"request_id":"r1","strategies":["new-users","careful"],"device":{"imei_md5":"%s","oaid":"%s"}}'
    % (IMEI_MD5, OAID),
    "nulls": '{"request_id":null,"strategies":null,"device":null}',
    "lists-of-ids": '{"device":{"caid":["abcdefabcdefabcdefabcdefabcdef12",null,""],"idfa":null}}',
    "every-kind": '{"device":{"md5":"0","idfa":"0","imei":"868049039501257","oaid":"0","android_id":"0","mac":"0","caid":"0",'
    '"gaid":"0","openid":"0","idfa_md5":"0","imei_md5":"0","oaid_md5":"0","android_id_md5":"0","mac_md5":"0"}}',
    "ids-65": '{"device":{"openid":[%s]}}' % ",".join(f'"id-{index}"' for index in range(65)),
    "strategies-65": '{"strategies":[%s]}' % ",".join(['"careful"'] * 65),
    "escapes": '{"request_id":"\\u8bf7\\ud83e\\udd80\\n","strategies":["\\u0063areful"],"dev\\u0069ce":{"im\\u0065i":"\\u0038"}}',
    "lone-surrogate": '{"request_id":"\\ud800"}',
    "no-utf-8": b'{"request_id":"\xff"}',
    "unknown-field": '{"devcie":{}}',
    "unknown-kind": '{"device":{"imei_mdf5":"x"}}',
    "unknown-strategy": '{"strategies":["nobody\'s"]}',
    "id-is-an-object": '{"device":{"imei":{"a":["b",{"c":1e9}]}}}',
    "id-is-a-number": '{"device":{"imei":868049039501257}}',
    "device-is-a-list": '{"device":["868049039501257"]}',
    "deep": '{"device":{"imei":{"a":' + "[" * 200 + "]" * 200 + "}}}",
    "field-twice": '{"request_id":"a","request_id":"b","device":{"oaid":"x"},"device":{"oaid":"y"}}',
    "cut": '{"request_id":"r1","device":{"imei":"86804',
    "more-after-the-end": '{"request_id":"r1"} x',
    "white-space": ' \t\r\n{ "device" : { } }\n ',
    "byte-order-mark": b"\xef\xbb\xbf{}",
}

ROW = (
    '{"id":"%s","device":{"idfa":"3E0046F7-8BD4-4F3E-9F91-358B137D2BF0"},"imei":868049039501257}\n'
    % IMEI_MD5
)

# The Parquet seeds are written by pyarrow, with the same columns.
NDJSON = {
    "row": ROW,
    "rows": ROW * 3,
    "crlf": ROW.replace("\n", "\r\n") * 2,
    "byte-order-mark": b"\xef\xbb\xbf" + ROW.encode(),
    "nulls": ROW + '{"id":null,"device":null,"imei":null}\n',
    "empty-lines": "\n \n" + ROW + "\r\n",
    "twice": '{"id":1,"device":{"idfa":"x"},"device":7,"imei":"1","id":"%s"}' % OAID_MD5,
    "deep": '{"x":'
    + "[" * 500
    + "]" * 500
    + ',"device":{"x":'
    + '{"a":' * 200
    + "1"
    + "}" * 200
    + "}}\n"
    + ROW,
    "escapes": '{"\\u0069d":"\\u0038\\ud83e\\udd80","device":{"id\\u0066a":"\\""}}\n',
    "numbers": '{"imei":-1}\n{"imei":1e400}\n{"imei":99999999999999999999}\n{"imei":0.5}\n' + ROW,
    "no-objects": '[]\n7\n"x"\nnull\n{\n}\n{}x\n' + ROW,
    "no-utf-8": b'{"id":"\xff","x":"\xff","\xff":1}\n' + ROW.encode(),
    "nul": b'\0\n{"id":"\0"}\n' + ROW.encode(),
    "gzip": gzip.compress(ROW.encode(), mtime=0),
}

for target, seeds in {"tencent": TENCENT, "ocean": OCEAN, "api": API, "ndjson": NDJSON}.items():
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    for name, body in seeds.items():
        (CORPUS / target / name).write_bytes(body.encode() if isinstance(body, str) else body)
