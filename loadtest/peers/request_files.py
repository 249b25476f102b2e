"""Request files: requests of every kind for the peers, and verification of sample answers.

Each kind has thousands of different requests in random order, half of them for members. wrk reads
them from a file, so all servers of a kind get the same bytes.
"""

import dataclasses
import http.client
import json
import pathlib
import random
import subprocess
from collections.abc import Callable

from suites.testkit.stubs import ocean_pb2, tencent_pb2

AUDIENCE = "old_users"
REQUESTS = 65_536
BATCHES = 256
BATCH = 1_024
# Number of members, and of non-members, that requests are drawn from.
POOL = 131_072
# Requests of a kind whose answers are verified before measuring.
SAMPLES = 64


@dataclasses.dataclass
class RequestKind:
    """One kind of request: the requests, whether their ids are members, and the answer's
    decoder."""

    method: str
    paths: list[str]
    bodies: list[bytes]
    content_type: str
    truth: list[list[bool]]
    read: Callable[[bytes], list[bool]]
    file: pathlib.Path | None = None
    number: int = 0

    def write(self, file: pathlib.Path, number: int) -> "RequestKind":
        with file.open("wb") as out:
            for path, body in zip(self.paths, self.bodies, strict=True):
                head = f"{self.method} {path} HTTP/1.1\r\nHost: rtad\r\n"
                if self.method == "POST":
                    head += f"Content-Type: {self.content_type}\r\nContent-Length: {len(body)}\r\n"
                request = head.encode() + b"\r\n" + body
                out.write(b"%d\n" % len(request) + request)
        self.file, self.number = file, number
        return self

    def send(self, address: str, index: int) -> tuple[str | None, bytes]:
        """Returns the content type, if any, and the body of the answer."""
        connection = http.client.HTTPConnection(address, timeout=20)
        headers = {"Content-Type": self.content_type} if self.method == "POST" else {}
        connection.request(self.method, self.paths[index], self.bodies[index] or None, headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == 200, (
            f"{self.method} {self.paths[index]}: {answer.status} {body[:200]!r}"
        )
        return answer.headers["Content-Type"], body

    def check(self, address: str) -> None:
        """Verifies sample answers: no false negatives, and few false positives."""
        non_members = false_positives = 0
        for index, truth in enumerate(self.truth[:SAMPLES]):
            answers = self.read(self.send(address, index)[1])
            assert len(answers) == len(truth), (
                f"{self.paths[index]}: {len(answers)} answers for {len(truth)} ids"
            )
            assert all(answer for answer, member in zip(answers, truth, strict=True) if member), (
                f"{self.paths[index]}: a false negative"
            )
            non_members += truth.count(False)
            false_positives += answers.count(True) - truth.count(True)
        assert 0 < non_members and false_positives <= 1 + non_members / 1000, (
            f"{false_positives} false positives among {non_members} non-members"
        )


class Pool:
    """Member and non-member ids of synthetic devices."""

    def __init__(self, loader: str, devices: int, served: int):
        """Members are spread over the first `served` devices, which all servers hold. Non-members
        follow the last device."""
        self.random = random.Random(1)
        parts, count = 64, min(POOL, served)
        self.members = []
        for part in range(parts):
            begin, end = part * count // parts, (part + 1) * count // parts
            self.members += synth(
                loader, part * (served - count) // (parts - 1) + begin, end - begin
            )
        self.non_members = synth(loader, devices, POOL)

    def draw(self, member: bool) -> str:
        return self.random.choice(self.members if member else self.non_members)

    def coins(self, count: int) -> list[bool]:
        """Shuffled booleans, half of them true."""
        coins = [index % 2 == 0 for index in range(count)]
        self.random.shuffle(coins)
        return coins


def synth(loader: str, offset: int, count: int) -> list[str]:
    command = [loader, "synth", "--offset", str(offset), "--count", str(count)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def gets(pool: Pool, prefix: str) -> RequestKind:
    """GET requests of one id, after a prefix of 20 bytes."""
    truth = pool.coins(REQUESTS)
    paths = [prefix + pool.draw(member) for member in truth]
    answers = {b'{"member":true}': True, b'{"member":false}': False}
    return RequestKind(
        "GET",
        paths,
        [b""] * REQUESTS,
        "",
        [[member] for member in truth],
        lambda body: [answers[body]],
    )


def platform(
    pool: Pool, path: str, encode: Callable[[str, str, str], bytes], read: Callable[[bytes], bool]
) -> RequestKind:
    """Requests with three ids, of which only the last may be a member: the maximum number of
    lookups."""
    truth = pool.coins(REQUESTS)
    bodies = [encode(pool.draw(False), pool.draw(False), pool.draw(member)) for member in truth]
    truth = [[member] for member in truth]
    return RequestKind(
        "POST",
        [path] * REQUESTS,
        bodies,
        "application/x-protobuf",
        truth,
        lambda body: [read(body)],
    )


def tencent(imei: str, oaid: str, android_id: str) -> bytes:
    device = tencent_pb2.Device(
        imei_md5sum=imei, oaid_md5sum=oaid, android_id_md5sum=android_id, cached_deviceid_type=3
    )
    return tencent_pb2.RtaRequest(id="Jo825w_uEe2xLlJUAFwvSQ", device=device).SerializeToString()


def tencent_refuses(body: bytes) -> bool:
    answer = tencent_pb2.RtaResponse.FromString(body)
    assert (answer.code, list(answer.out_target_id)) in [(1, []), (0, ["new"])], answer
    return answer.code == 1


def ocean(imei: str, oaid: str, android_id: str) -> bytes:
    """The OAID is raw in this protocol, so its md5 is computed."""
    device = ocean_pb2.Device(imei_md5=imei, oaid=oaid, android_id_md5=android_id)
    request = ocean_pb2.Req(
        platform=1, did=imei, did_type=1, req_id="20240616abcdef", rta_ids=[10003], device=device
    )
    return request.SerializeToString()


def ocean_refuses(body: bytes) -> bool:
    answer = ocean_pb2.Rsp.FromString(body)
    assert answer.status_code == 0 and [info.rta_id for info in answer.user_infos] == [10003], (
        answer
    )
    return not answer.user_infos[0].is_interested


def batches(
    pool: Pool,
    content_type: str,
    encode: Callable[[list[str]], bytes],
    read: Callable[[bytes], list[bool]],
) -> RequestKind:
    truth = [pool.coins(BATCH) for _ in range(BATCHES)]
    bodies = [encode([pool.draw(member) for member in batch]) for batch in truth]
    return RequestKind(
        "POST", [f"/v1/check/{AUDIENCE}"] * BATCHES, bodies, content_type, truth, read
    )


def every_kind(pool: Pool, work: pathlib.Path) -> dict[str, RequestKind]:
    kinds = {
        # As long as the next kind, for a route without parameters.
        "one-path": gets(pool, f"/bare?a={AUDIENCE}&d="),
        "get": gets(pool, f"/v1/check/{AUDIENCE}/"),
        "tencent": platform(pool, "/rta/tencent", tencent, tencent_refuses),
        "ocean": platform(pool, "/rta/ocean", ocean, ocean_refuses),
        "binary": batches(
            pool,
            "application/octet-stream",
            lambda ids: bytes.fromhex("".join(ids)),
            lambda body: [byte >> bit & 1 == 1 for byte in body for bit in range(8)],
        ),
        "json": batches(
            pool,
            "application/json",
            lambda ids: json.dumps({"ids": ids}, separators=(",", ":")).encode(),
            lambda body: json.loads(body)["members"],
        ),
    }
    return {
        name: kind.write(work / f"{name}.requests", number)
        for number, (name, kind) in enumerate(kinds.items())
    }
