"""Requests to the fleet of every kind, with their answers before and after the second audience is
published.

Devices are synthetic. Most are members of both audiences; some only of the first, some only of the
second. A request has devices of one of these kinds and non-members, so it has two possible answers.
"""

import dataclasses
import json
import pathlib
import random

from suites.testkit.programs import synth
from suites.testkit.seeds import SEED
from suites.testkit.stubs import tencent_pb2

AUDIENCE = "old_users"
STRATEGY = "new-users"
# Numbers of devices of each kind, and of requests.
STAYING, LEAVING, COMING, NON_MEMBERS = 20_000, 5_000, 5_000, 10_000
REQUESTS = 8_000
BATCH = 64
BID_CACHE, NO_BID_CACHE = 3600, 86400
# Percent.
SHARES = {"get": 60, "tencent": 20, "decide": 10, "batch": 10}


@dataclasses.dataclass
class Device:
    """A device: its md5, and whether it is a member before and after."""

    md5: str
    member: tuple[bool, bool]


class Devices:
    def __init__(self):
        numbers = {
            (True, True): STAYING,
            (True, False): LEAVING,
            (False, True): COMING,
            (False, False): NON_MEMBERS,
        }
        lines = iter(synth(sum(numbers.values())))
        self.by_kind = {
            kind: [Device(next(lines), kind) for _ in range(number)]
            for kind, number in numbers.items()
        }
        self.staying, self.leaving, self.coming, self.non_members = self.by_kind.values()

    def members(self, after: bool) -> list[Device]:
        return self.staying + (self.coming if after else self.leaving)


class Questions:
    def __init__(self, devices: Devices):
        self.devices = devices
        self.random = random.Random(SEED)

    def draw(self, number: int) -> list[Device]:
        """Non-members and devices of one other kind, which the last device has."""
        kind = self.random.choice(
            [
                self.devices.staying,
                self.devices.leaving,
                self.devices.coming,
                self.devices.non_members,
            ]
        )
        some = [
            self.random.choice(self.random.choice([kind, self.devices.non_members]))
            for _ in range(number - 1)
        ]
        return [*some, self.random.choice(kind)]

    def get(self, number: int):
        device = self.draw(1)[0]
        answers = [json_bytes({"member": member}) for member in device.member]
        return f"GET /v1/check/{AUDIENCE}/{device.md5} HTTP/1.1", "", b"", answers

    def tencent(self, number: int):
        request = tencent_pb2.RtaRequest(id=f"t{number:06}")
        imei, oaid, android_id = self.draw(3)
        request.device.imei_md5sum, request.device.oaid_md5sum = imei.md5, oaid.md5
        request.device.android_id_md5sum = android_id.md5
        answers = []
        for is_member in any_member([imei, oaid, android_id]):
            answer = tencent_pb2.RtaResponse(request_id=request.id, code=int(is_member))
            answer.response_cache_time = NO_BID_CACHE if is_member else BID_CACHE
            answer.out_target_id.extend([] if is_member else ["T1001"])
            answers.append(answer.SerializeToString())
        return (
            "POST /rta/tencent HTTP/1.1",
            "application/x-protobuf",
            request.SerializeToString(),
            answers,
        )

    def decide(self, number: int):
        imei, oaid = self.draw(2)
        request = {
            "request_id": f"d{number:06}",
            "strategies": [STRATEGY],
            "device": {"imei_md5": imei.md5, "oaid_md5": oaid.md5},
        }
        answers = []
        for is_member in any_member([imei, oaid]):
            decision = {
                "strategy": STRATEGY,
                "bid": not is_member,
                "reason": "member" if is_member else "not_member",
            }
            answers.append(
                json_bytes({"request_id": request["request_id"], "decisions": [decision]})
            )
        return "POST /v1/decide HTTP/1.1", "application/json", json_bytes(request), answers

    def batch(self, number: int):
        batch = self.draw(BATCH)
        body = bytes.fromhex("".join(device.md5 for device in batch))
        answers = []
        for when in (0, 1):
            bits = sum(device.member[when] << index for index, device in enumerate(batch))
            answers.append(bits.to_bytes(BATCH // 8, "little"))
        return f"POST /v1/check/{AUDIENCE} HTTP/1.1", "application/octet-stream", body, answers

    def write(self, file: pathlib.Path) -> None:
        """Writes each request and its two answers in the format of `load`."""
        with file.open("wb") as to:
            for number in range(REQUESTS):
                kind = self.random.choices(list(SHARES), SHARES.values())[0]
                line, content_type, body, answers = getattr(self, kind)(number)
                head = f"{line}\r\nHost: rtad\r\n"
                if content_type:
                    head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
                for record in (head.encode() + b"\r\n" + body, *answers):
                    to.write(b"%d\n" % len(record) + record)


def any_member(devices: list[Device]) -> tuple[bool, bool]:
    return tuple(any(device.member[when] for device in devices) for when in (0, 1))


def json_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
