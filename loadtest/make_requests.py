"""Requests of a load test with their expected answers, made once for all load generators.

    python3 loadtest/make_requests.py md5 FILE   # device keys of a file of ids
    python3 loadtest/make_requests.py make --members FILE --non-members FILE --out DIRECTORY ...

A file of ids has one per line after its kind: `md5 caae79a906591a72aa43359ee2483490`,
`imei 868049039501257`. Every answer is compared, so remove false positives of a real audience from
--non-members with `rtad-loader query`. Output:

    check.tsv    GET /v1/check of md5s, half of them members
    tencent.tsv  requests of Tencent, devices of one to three ids, half of them with a member id
    ocean.tsv    the same for Ocean Engine
    mixed.tsv    GET /v1/check of every kind, with unusable ids; POST /v1/check and /v1/decide

in random order, one request per line: method, path, status, body and answer in hex, `-` for none
(without an answer only the status is compared). Bodies come from Google's protobuf, md5s from
Python. The same arguments make the same requests.
"""

import argparse
import hashlib
import json
import random
import sys
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

BLANK = [
    "0",
    "null",
    "unknown",
    "__IMEI__",
    "00000000-0000-0000-0000-000000000000",
    "02:00:00:00:00:00",
    "000000000000000",
]
MALFORMED = ["not-an-id", "x" * 31, "0123456789abcdef0123456789abcdeg", "12 34", "机型"]
MD5_OF_NOTHING = hashlib.md5(b"").hexdigest()


def read_ids(path):
    with open(path) as file:
        return [tuple(line.rstrip("\n").split(" ", 1)) for line in file]


def md5(kind, raw):
    return raw if kind == "md5" else hashlib.md5(raw.encode()).hexdigest()


def stubs():
    """Python modules of proto/."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    from suites.testkit.stubs import ocean_pb2, tencent_pb2

    return tencent_pb2, ocean_pb2


class Requests:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(20240616)
        self.members = read_ids(options.members)
        self.non_members = read_ids(options.non_members)
        self.by_kind = {True: defaultdict(list), False: defaultdict(list)}
        for is_member, ids in ((True, self.members), (False, self.non_members)):
            for kind, raw in ids:
                self.by_kind[is_member][kind].append(raw)

    def some(self, is_member, kinds):
        kind = self.random.choice([kind for kind in kinds if self.by_kind[is_member][kind]])
        return kind, self.random.choice(self.by_kind[is_member][kind])

    def device(self, is_member, slots):
        """One to three ids in different slots; one of them a member if the device is."""
        ids, taken = [], set()
        for number in range(self.random.randint(1, 3)):
            kind, raw = self.some(is_member and number == 0, slots)
            if slots[kind] not in taken:
                taken.add(slots[kind])
                ids.append((kind, raw))
        # The member is not always looked up first.
        self.random.shuffle(ids)
        return ids

    def check(self):
        ids = [(raw, True) for raw in self.by_kind[True]["md5"]] + [
            (raw, False) for raw in self.by_kind[False]["md5"]
        ]
        self.random.shuffle(ids)
        for raw, is_member in ids:
            yield self.check_one("md5", raw, is_member)

    def check_one(self, kind, raw, is_member):
        path = f"/v1/check/{self.options.audience}/{quote(raw, safe='')}"
        return (
            "GET",
            path if kind == "md5" else f"{path}?kind={kind}",
            200,
            b"",
            json_bytes({"member": is_member}),
        )

    TENCENT = {
        "md5": "idfa",
        "idfa": "idfa",
        "imei": "imei",
        "android_id": "android_id",
        "mac": "mac",
        "oaid": "oaid",
        "caid": "caid",
        "openid": "openid",
    }

    def tencent(self):
        pb = self.tencent_pb
        for number in range(self.options.count):
            is_member = self.random.random() < 0.5
            request = pb.RtaRequest(id=f"t{number:06}-{self.random.getrandbits(64):016x}")
            request.request_info.request_type = pb.RtaRequest.NORMAL
            request.exps.add(exp_id=32768 + number % 100)
            device = request.device
            device.os = pb.Device.OS_ANDROID
            for kind, raw in self.device(is_member, self.TENCENT):
                if self.TENCENT[kind] == "idfa":
                    device.os = pb.Device.OS_IOS
                    device.idfa_md5sum = md5(kind, raw)
                elif kind == "caid":
                    device.qaid_infos.add(version=20230330, qaid=raw)
                elif kind == "openid":
                    device.wx_openid.add(appid="wx0123456789abcdef", openid=raw)
                elif kind == "oaid" and self.random.random() < 0.5:
                    device.oaid = raw
                else:
                    setattr(device, f"{kind}_md5sum", md5(kind, raw))
            answer = pb.RtaResponse(request_id=request.id, code=int(is_member))
            answer.response_cache_time = (
                self.options.no_bid_cache if is_member else self.options.bid_cache
            )
            if not is_member:
                answer.out_target_id.append(self.options.tencent_id)
            yield (
                "POST",
                self.options.tencent_path,
                200,
                request.SerializeToString(),
                answer.SerializeToString(),
            )

    OCEAN = {
        "md5": "imei_md5",
        "imei": "imei_md5",
        "android_id": "android_id_md5",
        "idfa": "idfa",
        "oaid": "oaid",
        "gaid": "gaid",
        "caid": "caid1",
    }

    def ocean(self):
        pb = self.ocean_pb
        for number in range(self.options.count):
            is_member = self.random.random() < 0.5
            request = pb.Req(
                req_id=f"o{number:06}-{self.random.getrandbits(64):016x}",
                source="loadtest",
                slot_id=900000 + number % 50,
            )
            request.platform = pb.PLATFORM_ANDROID
            # Half of them also name a strategy that is not configured, such as another
            # advertiser's.
            request.rta_ids.append(self.options.ocean_id)
            if self.random.random() < 0.5:
                request.rta_ids.append(self.options.ocean_id + 1)
            for kind, raw in self.device(is_member, self.OCEAN):
                field = self.OCEAN[kind]
                if kind == "idfa":
                    request.platform = pb.PLATFORM_IOS
                setattr(request.device, field, md5(kind, raw) if field.endswith("_md5") else raw)
                if field == "imei_md5":
                    request.did, request.did_type = request.device.imei_md5, pb.IMEI_MD5
            answer = pb.Rsp(req_id=request.req_id)
            for rta_id in request.rta_ids:
                answer.user_infos.add(
                    rta_id=rta_id, is_interested=rta_id == self.options.ocean_id and not is_member
                )
            answer.bid_type.value = int(is_member)
            answer.cache_time_secs = (
                self.options.no_bid_cache if is_member else self.options.bid_cache
            )
            yield (
                "POST",
                self.options.ocean_path,
                200,
                request.SerializeToString(),
                answer.SerializeToString(),
            )

    DECIDE = {
        kind: kind
        for kind in ("idfa", "imei", "oaid", "android_id", "mac", "caid", "gaid", "openid")
    } | {"md5": "idfa"}

    def mixed(self):
        for number in range(self.options.count):
            is_member = self.random.random() < 0.5
            kind, raw = self.some(is_member, self.DECIDE)
            form = self.random.random()
            if form < 0.5:
                if kind == "md5" and self.random.random() < 0.5:
                    raw = raw.upper()
                yield self.check_one(kind, raw, is_member)
            elif form < 0.6:
                junk = self.random.choice([*BLANK, *MALFORMED, MD5_OF_NOTHING])
                yield "GET", self.check_one("md5", junk, False)[1], 400, b"", None
            elif form < 0.7:
                yield self.batch()
            else:
                yield self.decide(
                    f"d{number:06}-{self.random.getrandbits(64):016x}",
                    is_member,
                    junk_only=form > 0.97,
                )

    def batch(self):
        ids, members = [], []
        for _ in range(10):
            if self.random.random() < 0.1:
                ids.append(self.random.choice([*BLANK, *MALFORMED, MD5_OF_NOTHING]))
                members.append(None)
            else:
                members.append(self.random.random() < 0.5)
                ids.append(self.some(members[-1], ["md5"])[1])
        return (
            "POST",
            f"/v1/check/{self.options.audience}",
            200,
            json_bytes({"ids": ids}),
            json_bytes({"members": members}),
        )

    def decide(self, request_id, is_member, junk_only):
        device = {}
        for kind, raw in [] if junk_only else self.device(is_member, self.DECIDE):
            if kind == "md5" or self.random.random() < 0.5:
                device[f"{self.DECIDE[kind]}_md5"] = md5(kind, raw)
            else:
                device[kind] = raw
        if junk_only or self.random.random() < 0.3:
            device["imei_md5" if "imei" in device else "imei"] = self.random.choice(
                ["__IMEI__", "", "000000000000000", None]
            )
        reason = "no_device" if junk_only else "member" if is_member else "not_member"
        decision = {
            "strategy": self.options.strategy,
            "bid": reason == "not_member",
            "reason": reason,
        }
        request = {
            "request_id": request_id,
            "strategies": [self.options.strategy],
            "device": device,
        }
        return (
            "POST",
            "/v1/decide",
            200,
            json_bytes(request),
            json_bytes({"request_id": request_id, "decisions": [decision]}),
        )

    def write(self):
        self.tencent_pb, self.ocean_pb = stubs()
        for name in ("check", "tencent", "ocean", "mixed"):
            with open(Path(self.options.out) / f"{name}.tsv", "w") as file:
                for method, path, status, body, answer in getattr(self, name)():
                    answer = "-" if answer is None else answer.hex()
                    print(method, path, status, body.hex() or "-", answer, sep="\t", file=file)


def json_bytes(value):
    return json.dumps(value, separators=(",", ":")).encode()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("md5").add_argument("file")
    make = commands.add_parser("make")
    make.add_argument("--members", required=True)
    make.add_argument("--non-members", required=True)
    make.add_argument("--out", required=True)
    make.add_argument(
        "--count", type=int, default=10_000, help="requests of each kind except check"
    )
    make.add_argument("--audience", default="old_users")
    make.add_argument("--strategy", default="new-users", help="strategy that excludes the audience")
    make.add_argument("--tencent-path", default="/rta/tencent")
    make.add_argument("--tencent-id", default="T1001", help="id of the strategy at Tencent")
    make.add_argument("--ocean-path", default="/rta/ocean")
    make.add_argument(
        "--ocean-id", type=int, default=1001, help="id of the strategy at Ocean Engine"
    )
    make.add_argument("--bid-cache", type=int, default=3600, help="seconds, of both platforms")
    make.add_argument("--no-bid-cache", type=int, default=86400)
    options = parser.parse_args()
    if options.command == "md5":
        for kind, raw in read_ids(options.file):
            print(md5(kind, raw))
    else:
        Requests(options).write()


if __name__ == "__main__":
    main()
