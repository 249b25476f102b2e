#!/usr/bin/env python3
"""Generator of the seeds in fuzz/corpus/, named by content. Findings of the fuzzer are also there.

python3 fuzz/seeds.py
"""

import gzip
import hashlib
import json
import struct
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import ribbon  # noqa: E402

CORPUS = Path(__file__).parent / "corpus"

IMEI_MD5 = "8d3ebd3654fb46a2832296669cf1b536"
IMEI_SHA1 = "f9e85eb0f83f9ff71504d783ae54a3298aa409c1"
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
    "sha1-ids": '{"device":{"sha1":"%s","imei_sha1":"%s","oaid_sha1":["%s","0"],"imei":"868049039501257"}}'
    % (IMEI_SHA1, IMEI_SHA1.upper(), IMEI_SHA1[:39]),
    "sha1-ids-alone": '{"device":{"imei_sha1":"%s"}}' % IMEI_SHA1,
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

CSV = {
    "row": "id,device.idfa,imei\n%s,3E0046F7-8BD4-4F3E-9F91-358B137D2BF0,868049039501257\n" % IMEI_MD5,
    "crlf": "imei,x,id,device.idfa\r\n868049039501257,,%s,\r\n\r\n1,2\r\n" % IMEI_MD5,
    "quoted": 'id,"device.idfa" , imei\n"%s","a ""quoted""\nline",\'1\n' % IMEI_MD5,
    "line-end-in-a-name": 'a "quoted"\nline,"b\nc"\n1,2\n',
    "many-names": "," * 2000 + "\n",
    "quote-left-open": 'id,device.idfa,imei\n%s,"x,1\n2,3,4\n' % IMEI_MD5,
    "byte-order-mark": b"\xef\xbb\xbfid,device.idfa,imei\n1,2,3",
    "no-header": "%s,x,868049039501257\n" % IMEI_MD5,
    "column-twice": "id,device.idfa,imei,id\n",
    "short-and-long-rows": "id,device.idfa,imei\n\n1\n1,2,3,4,5\n,,\n \n",
    "no-utf-8": b"id,device.idfa,imei\n\xff,\0,\xc3\x28\n",
    "gzip": gzip.compress(b"id,device.idfa,imei\n1,2,3\n" * 20, mtime=0),
}

GOLDEN = CORPUS.parents[1] / "tests/golden/v1"


def golden(kind):
    """The manifest of a golden snapshot, and the files of its chunks."""
    folder = GOLDEN / kind / "golden"
    manifest = json.loads((folder / "manifests/1.json").read_bytes())
    files = [folder / "chunks" / (chunk["digest"] + ".chunk") for chunk in manifest["chunks"]]
    return manifest | {"audience": "old", "generation": 7}, [file.read_bytes() for file in files]


def ribbon_generation(value_bits=0):
    """A manifest and four small chunks of ribbon filters, the last with a second tier."""
    millibits, files, entries = 12_500, [], []
    for sizes in [{0: 40, 1: 5, 5: 33}, {0x1001: 100, 0x1003: 1}, {0x2FFF: 7}, {0x3000: 3060}]:
        first, count = min(sizes), max(sizes) - min(sizes) + 1
        numbers, parts = [], []
        for shard in range(first, first + count):
            keys = []
            for number in range(sizes.get(shard, 0)):
                digest = hashlib.md5(b"%d-%d" % (shard, number)).digest()
                # Keys that start in one line are diverted.
                start = b"\xa5" * 8 if number >= 3000 else digest[2:10]
                keys.append(shard.to_bytes(2, "big") + start + digest[10:])
            bits = ribbon.bits_of(millibits, value_bits, shard)
            values = {key: index % 16 for index, key in enumerate(keys)} if value_bits else None
            built, diverted, listed = ribbon.build_shard(keys, bits, values)
            numbers.append((len(keys), diverted, listed))
            parts.append(built)
        body = b"".join(built[part] for part in range(3) for built in parts)
        held = sum(number[0] for number in numbers)
        head = (b"RTADCHNK", 1, 3, 2, millibits, first, count, held, len(body))
        file = struct.pack("<8s6I2QI12x", *head, value_bits)
        for array in range(3):
            file += struct.pack(f"<{count}I", *(number[array] for number in numbers))
        file += bytes(-len(file) % 64) + body
        entry = {"digest": hashlib.sha256(file).hexdigest(), "first_shard": first}
        entry |= {"shard_count": count, "keys": held, "size_bytes": len(file)}
        files.append(file)
        entries.append(entry)
    manifest = golden("block512")[0]
    figures = {"target_fpr": 0.0001, "expected_fpr": 1e-9, "diverted_keys": 60, "listed_keys": 70}
    manifest["filter"] = {"kind": "ribbon", "hashes": 2, "millibits_per_key": millibits} | figures
    if value_bits:
        manifest["filter"]["value_bits"] = value_bits
    totals = {field: sum(entry[field] for entry in entries) for field in ("keys", "size_bytes")}
    return manifest | totals | {"chunks": entries}, files


def as_json(value):
    return json.dumps(value).encode()


def delta(added, removed, first=3, last=5, values=b""):
    """The file and its entry in `CURRENT`."""
    counts = (first, last, len(added), len(removed), len(values), 0)
    file = struct.pack("<8s2I6Q", b"RTADDLTA", 1, 0, *counts) + b"".join(added + removed) + values
    entry = {"first": first, "last": last, "added": len(added), "removed": len(removed)}
    if values:
        entry["values"] = True
    return file, entry | {"sha256": hashlib.sha256(file).hexdigest()}


def keys(name, count, last_bit):
    """Ascending keys of the golden chunks' shards, with the last bit that the repair sorts by."""
    shards = [0, 1, 5, 0x1001, 0x1003]
    made = [hashlib.md5(b"%s-%d" % (name, index)).digest() for index in range(count)]
    return sorted(
        struct.pack(">H", shards[index % 5]) + key[2:15] + bytes([key[15] & 0xFE | last_bit])
        for index, key in enumerate(made)
    )


ADDED, REMOVED, ERASED = keys(b"a", 9, 0), keys(b"r", 5, 1), keys(b"e", 3, 1)
CHANGES, TOMBSTONES = delta(ADDED, REMOVED), delta([], ERASED, 1, 2)
# Values from 0 to 15, and 255 for none.
VALUED = delta(ADDED, REMOVED, values=bytes([0, 15, 255, 7, 8, 255, 1, 2, 3]))
CHUNK, DELTA, MANIFEST, CURRENT, SNAPSHOT = {}, {}, {}, {}, {}

CURRENT["first"] = (GOLDEN / "block512/golden/CURRENT").read_bytes()
NAMES = json.loads(CURRENT["first"]) | {"sequence": 9, "published_sequence": 2}
LIVE = NAMES | {
    "deltas": [CHANGES[1]],
    "tombstones": TOMBSTONES[1],
    "appended_unix_seconds": 1763722900,
    "owner": 1 << 63,
}
CURRENT["changed"] = as_json(LIVE)
CURRENT["with-values"] = as_json(LIVE | {"deltas": [VALUED[1]]})
CURRENT["values-of-nothing"] = as_json(LIVE | {"deltas": [VALUED[1] | {"added": 0}]})
CURRENT["rolled-back"] = as_json(NAMES | {"rolled_back_from": 3, "no_merge_through": 8})
CURRENT["disabled"] = as_json(NAMES | {"state": "disabled", "expires_unix_seconds": 1763722900})
CURRENT["deleted"] = as_json(NAMES | {"state": "deleted", "no_merge_through": 4})
CURRENT["twelve-deltas"] = as_json(
    NAMES
    | {
        "sequence": (1 << 64) - 1,
        "deltas": [CHANGES[1] | {"last": 1 << 62 | index} for index in range(12)],
    }
)
CURRENT["long-unknown-field"] = as_json(NAMES | {"a\n" + "\x7f" * 600: 1})
CURRENT["published-later"] = as_json(NAMES | {"published_sequence": 10})
CURRENT["thirteen-deltas"] = as_json(NAMES | {"deltas": [CHANGES[1]] * 13})
CURRENT["newer-version"] = as_json(NAMES | {"version": 2})
CURRENT["lists-for-objects"] = as_json(NAMES | {"deltas": [[3, 5, 1, 1, "00"]]})

for KIND, (GENERATION, FILES) in {
    "block512": golden("block512"),
    "ribbon": ribbon_generation(),
    "ribbon-with-values": ribbon_generation(ribbon.VALUE_BITS),
}.items():
    FOLDED = {"through": 8, "deltas": [CHANGES[1]], "residual": TOMBSTONES[1], "inserted_keys": 2}
    MANIFEST[KIND] = as_json(GENERATION)
    MANIFEST[KIND + "-folded"] = as_json(
        GENERATION | {"folded": FOLDED, "expires_unix_seconds": 1 << 40}
    )
    MANIFEST[KIND + "-expired"] = as_json(GENERATION | {"expires_unix_seconds": 1})
    MANIFEST[KIND + "-sha1"] = as_json(GENERATION | {"key_digest": "sha1"})
    MANIFEST[KIND + "-unknown-digest"] = as_json(GENERATION | {"key_digest": "sha256"})
    MANIFEST[KIND + "-unknown-field"] = as_json(GENERATION | {"line\nend": 1})
    # One byte of the mode, see files/chunk.rs.
    CHUNK[KIND] = b"\0\x63" + FILES[0]
    CHUNK[KIND + "-repaired"] = b"\1\xff" + FILES[-1]
    CHUNK[KIND + "-in-bytes"] = b"\1\0" + FILES[2]
    for NUMBER, WRONG in enumerate([2, 4, 8, 16]):
        CHUNK[f"{KIND}-wrong-{NUMBER}"] = bytes([WRONG, 99]) + FILES[3]
    # Two chunks are enough to have a border.
    for NAME, MODE, LAYERS in [
        ("", 0, [CHANGES[0], TOMBSTONES[0]]),
        ("-repaired", 3, [CHANGES[0], TOMBSTONES[0]]),
        ("-unchanged", 3, [b"", b""]),
    ]:
        SHORT = GENERATION | {"chunks": [GENERATION["chunks"][0], GENERATION["chunks"][3]]}
        SECTIONS = [FILES[0], FILES[3], *LAYERS, as_json(SHORT)]
        SNAPSHOT[KIND + NAME] = (
            bytes([MODE])
            + b"".join(struct.pack("<H", len(section)) + section for section in SECTIONS)
            + as_json(LIVE)
        )

DELTA["changes"] = b"\0" + CHANGES[0]
DELTA["removals"] = b"\0" + TOMBSTONES[0]
DELTA["repaired"] = b"\3" + CHANGES[0]
DELTA["values"] = b"\0" + VALUED[0]
DELTA["values-repaired"] = b"\3" + VALUED[0]
DELTA["values-wrong-counts"] = b"\4" + VALUED[0]
DELTA["value-too-large"] = b"\0" + delta(ADDED, REMOVED, values=bytes(8) + b"\x10")[0]
DELTA["values-all-none"] = b"\0" + delta(ADDED, REMOVED, values=b"\xff" * 9)[0]
DELTA["unsorted"] = b"\1" + delta(ADDED[::-1], REMOVED)[0]
DELTA["one-key-in-both"] = b"\1" + delta(ADDED, ADDED[:1])[0]
DELTA["wrong-counts"] = b"\4" + CHANGES[0]
DELTA["wrong-digest"] = b"\10" + CHANGES[0]
DELTA["first-bits-equal"] = b"\3" + delta([bytes(15) + bytes([i]) for i in range(90)], [])[0]

STATS = {"min": 0.25, "max": 0.5, "sum": 0.75, "shards": 2, "fpr_sum": 1e-9}
HEAD = as_json({"shards_per_chunk": 4096, "sequence": 9}) + b"\n"


def chunk_group(number, *chunks):
    chunks = [{"entry": entry, "stats": STATS} for entry in chunks]
    counts = {"found": 20, "left": 16, "counted": [1, 2]}
    return as_json({"group": number, "distinct": counts, "chunks": chunks}) + b"\n"


ENTRIES = golden("block512")[0]["chunks"]
LARGEST = {"keys": (1 << 64) - 1, "size_bytes": (1 << 64) - 1}
JOURNAL = {
    "sums-too-large": HEAD
    + chunk_group(0, ENTRIES[0] | LARGEST, ENTRIES[1] | LARGEST)
    .replace(b'"shards": 2', b'"shards": 4294967295')
    .replace(b'"found": 20', b'"found": 18446744073709551615')
    + chunk_group(1),
    "groups": HEAD + chunk_group(0, ENTRIES[0]) + chunk_group(1, *ENTRIES[1:3]) + chunk_group(3),
    "group-twice": HEAD + chunk_group(0, ENTRIES[0]) + chunk_group(0, ENTRIES[1]),
    "cut": (HEAD + chunk_group(0, ENTRIES[0]) + chunk_group(1, ENTRIES[1]))[:-9],
    "damaged-line": HEAD + chunk_group(0, ENTRIES[0]) + b"{\n" + chunk_group(1, ENTRIES[1]),
    "other-build": HEAD.replace(b"9", b"8") + chunk_group(0, ENTRIES[0]),
    "empty": b"",
}


def frame(bucket, content, *keys):
    return struct.pack("<HBxI", bucket, content, len(keys)) + b"".join(keys)


FRAMES = {
    "ids": frame(0, 0, *[key for key in ADDED if key[0] == 0]),
    "changes": frame(0x100, 1, *[key for key in ADDED if key[0]]) + frame(0, 2, bytes(16)),
    "last-bucket": frame(4095, 0, b"\xff" * 16),
    "cut": frame(0, 0, bytes(16), bytes(16))[:-1],
    "count-of-a-million": struct.pack("<HBxI", 0, 0, 1 << 20),
    "wrong-bucket": frame(1, 0, bytes(16)),
}

STRATEGY = """[store]
url = "./store"
[[audience]]
name = "old_users"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
"""
CONFIG = {
    "smallest": '[store]\nurl = "s3://ads/rtad"\n',
    "full": """[server]
listen = "0.0.0.0:8080"
admin_listen = "[::1]:9090"
admin_hosts = ["rtad.example.com"]
workers = 0
max_connections = 20000
idle_timeout = "75s"
max_body = "64KiB"
max_buffered = "64MiB"
max_in_flight = 4096
max_wait = "50ms"
drain_timeout = "1m 20s"
watch_config = "10s"
[server.api]
listen = "127.0.0.1:8081"
public = false
[store]
url = "/var/lib/rtad"
poll_interval = "10s"
max_snapshot_size = "8GiB"
stall_timeout = "30s"
cache_dir = "/var/cache/rtad"
swap = "rolling"
public_keys = ["RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"]
[ids]
blank = ["acme-test-phone"]
[[audience]]
name = "old_users"
required = true
max_age = "48h"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
include = []
no_device = "no_bid"
unavailable = "bid"
""",
    "platforms": STRATEGY
    + """[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
no_bid_cache = "24h"
headers = [{ name = "X-Token", value = "secret" }]
strategies = { T1001 = "new-users" }
[[platform]]
kind = "ocean"
name = "ocean"
path = "/rta/ocean"
bid_cache = "1h"
strategies = { 10003 = "new-users", -7 = "new-users" }
""",
    "protobuf": STRATEGY
    + """[[platform]]
kind = "custom"
name = "custom"
path = "/rta/custom"
strategies = { 10003 = "new-users" }
body = "protobuf"
proto = "proto/ocean.proto"
request_message = "ocean.rta.Req"
response_message = "ocean.rta.Rsp"
[platform.request]
request_id = "req_id"
strategies = "rta_ids"
ids = { imei_md5 = "device.imei_md5", caid = ["device.caid1", "device.caid2"] }
[platform.request.id_list]
value = "did"
type = "did_type"
kinds = { IMEI = "imei" }
[platform.response]
code = { field = "status_code", bid = 0, no_bid = 0, error = 1 }
verdicts = { list = "user_infos", strategy = "rta_id", accepted = "is_interested" }
cache = "cache_time_secs"
""",
    "json": STRATEGY
    + """[[platform]]
kind = "custom"
name = "custom"
path = "/rta/custom"
strategies = { 501 = "new-users" }
body = "json"
[platform.request]
request_id = "reqId"
strategies = "rtaIds"
strategies_separator = ","
ping = "test"
ids.imei_md5 = "device.imeiMd5"
[platform.request.id_list]
list = "dids"
value = "did"
type = "type"
secure = "secure"
kinds = { "IMEI/MD5" = "imei_md5" }
[platform.response]
request_id = "reqId"
code = { field = "code", bid = 0, no_bid = 1, error = 2 }
accepted = "rtaIds"
accepted_separator = ","
strategies_as = "number"
[platform.signature]
mode = "observe"
algorithm = "hmac-sha256"
template = "{reqId}{time}{secret}"
encoding = "lower-hex"
in = "body:sign"
timestamp = "body:time"
timestamp_unit = "ms"
max_skew = "5m"
secrets = [{ value = "secret" }]
""",
    "mistakes": """store = 1
[[server]]
listen = 8080
max_body = ["64KiB"]
[ids]
blank = "x"
[audience]
name = "Old Users"
[[strategy]]
name = "new-users"
exclude = ["old_users", 7]
unavailable = "maybe"
[[platform]]
kind = "baidu"
[[platform]]
kind = "ocean"
path = "rta"
strategies = { x = "new-users" }
headers = [{ name = "X Y", value_file = "nothing" }]
"a key
of two lines" = 1
""".replace("key\nof", "key\\nof"),
    "syntax": "[store\n",
}

for target, seeds in {
    "tencent": TENCENT,
    "ocean": OCEAN,
    "api": API,
    "ndjson": NDJSON,
    "csv": CSV,
    "chunk": CHUNK,
    "delta": DELTA,
    "manifest": MANIFEST,
    "current": CURRENT,
    "snapshot": SNAPSHOT,
    "journal": JOURNAL,
    "frames": FRAMES,
    "config": CONFIG,
}.items():
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    for name, body in seeds.items():
        (CORPUS / target / name).write_bytes(body.encode() if isinstance(body, str) else body)
