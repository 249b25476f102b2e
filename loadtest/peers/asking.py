"""What the servers are asked, and whether what they say is true.

Every kind of request comes in thousands, all different: half of them, in no order, about members. wrk reads them from a file, so
all servers of a kind are sent the same bytes.
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
# Members and strangers that requests are drawn from, of each.
POOL = 131_072
# So many of a kind are asked and looked at before anything is measured.
LOOKED_AT = 64


@dataclasses.dataclass
class Asked:
    """One kind of request: the requests, what is true of their ids, and how an answer tells it."""

    method: str
    paths: list[str]
    bodies: list[bytes]
    content_type: str
    truth: list[list[bool]]
    read: Callable[[bytes], list[bool]]
    file: pathlib.Path | None = None
    number: int = 0

    def write(self, file: pathlib.Path, number: int) -> "Asked":
        with file.open("wb") as to:
            for path, body in zip(self.paths, self.bodies, strict=True):
                head = f"{self.method} {path} HTTP/1.1\r\nHost: rtad\r\n"
                if self.method == "POST":
                    head += f"Content-Type: {self.content_type}\r\nContent-Length: {len(body)}\r\n"
                request = head.encode() + b"\r\n" + body
                to.write(b"%d\n" % len(request) + request)
        self.file, self.number = file, number
        return self

    def ask(self, address: str, index: int) -> tuple[str | None, bytes]:
        """The answer's content type, if it names one, and its body."""
        connection = http.client.HTTPConnection(address, timeout=20)
        headers = {"Content-Type": self.content_type} if self.method == "POST" else {}
        connection.request(self.method, self.paths[index], self.bodies[index] or None, headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == 200, f"{self.method} {self.paths[index]}: {answer.status} {body[:200]!r}"
        return answer.headers["Content-Type"], body

    def check(self, address: str) -> None:
        """Every member is known as one; of strangers a few may be, as a Bloom filter errs."""
        strangers = mistaken = 0
        for index, truth in enumerate(self.truth[:LOOKED_AT]):
            said = self.read(self.ask(address, index)[1])
            assert len(said) == len(truth), f"{self.paths[index]}: {len(said)} answers for {len(truth)} ids"
            assert all(said for said, true in zip(said, truth, strict=True) if true), f"{self.paths[index]}: a false negative"
            strangers += truth.count(False)
            mistaken += said.count(True) - truth.count(True)
        assert 0 < strangers and mistaken <= 1 + strangers / 1000, f"{mistaken} of {strangers} strangers are taken for members"


class Pool:
    """Ids that are members, and ids that are not, from the loader's own synthetic devices."""

    def __init__(self, loader: str, devices: int, held: int):
        """Members are spread over the first `held`, which every server holds; strangers come after the last device."""
        self.random = random.Random(1)
        parts, count = 64, min(POOL, held)
        self.members = []
        for part in range(parts):
            begin, end = part * count // parts, (part + 1) * count // parts
            self.members += synth(loader, part * (held - count) // (parts - 1) + begin, end - begin)
        self.strangers = synth(loader, devices, POOL)

    def draw(self, member: bool) -> str:
        return self.random.choice(self.members if member else self.strangers)

    def coins(self, count: int) -> list[bool]:
        """As many heads as tails."""
        coins = [index % 2 == 0 for index in range(count)]
        self.random.shuffle(coins)
        return coins


def synth(loader: str, offset: int, count: int) -> list[str]:
    command = [loader, "synth", "--offset", str(offset), "--count", str(count)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def gets(pool: Pool, prefix: str) -> Asked:
    """One id each, behind a prefix of 20 bytes."""
    truth = pool.coins(REQUESTS)
    paths = [prefix + pool.draw(member) for member in truth]
    answers = {b'{"member":true}': True, b'{"member":false}': False}
    return Asked("GET", paths, [b""] * REQUESTS, "", [[member] for member in truth], lambda body: [answers[body]])


def platform(pool: Pool, path: str, encode: Callable[[str, str, str], bytes], read: Callable[[bytes], bool]) -> Asked:
    """Three ids each, so that a member is known by the last only: the most look-ups that a device with three ids can cost."""
    truth = pool.coins(REQUESTS)
    bodies = [encode(pool.draw(False), pool.draw(False), pool.draw(member)) for member in truth]
    truth = [[member] for member in truth]
    return Asked("POST", [path] * REQUESTS, bodies, "application/x-protobuf", truth, lambda body: [read(body)])


def tencent(imei: str, oaid: str, android_id: str) -> bytes:
    device = tencent_pb2.Device(imei_md5sum=imei, oaid_md5sum=oaid, android_id_md5sum=android_id, cached_deviceid_type=3)
    return tencent_pb2.RtaRequest(id="Jo825w_uEe2xLlJUAFwvSQ", device=device).SerializeToString()


def tencent_refuses(body: bytes) -> bool:
    answer = tencent_pb2.RtaResponse.FromString(body)
    assert (answer.code, list(answer.out_target_id)) in [(1, []), (0, ["new"])], answer
    return answer.code == 1


def ocean(imei: str, oaid: str, android_id: str) -> bytes:
    """The OAID is raw in this protocol, so an md5 is worked out for it."""
    device = ocean_pb2.Device(imei_md5=imei, oaid=oaid, android_id_md5=android_id)
    request = ocean_pb2.Req(platform=1, did=imei, did_type=1, req_id="20240616abcdef", rta_ids=[10003], device=device)
    return request.SerializeToString()


def ocean_refuses(body: bytes) -> bool:
    answer = ocean_pb2.Rsp.FromString(body)
    assert answer.status_code == 0 and [info.rta_id for info in answer.user_infos] == [10003], answer
    return not answer.user_infos[0].is_interested


def batches(pool: Pool, content_type: str, encode: Callable[[list[str]], bytes], read: Callable[[bytes], list[bool]]) -> Asked:
    truth = [pool.coins(BATCH) for _ in range(BATCHES)]
    bodies = [encode([pool.draw(member) for member in batch]) for batch in truth]
    return Asked("POST", [f"/v1/check/{AUDIENCE}"] * BATCHES, bodies, content_type, truth, read)


def every_kind(pool: Pool, work: pathlib.Path) -> dict[str, Asked]:
    kinds = {
        # As many bytes as the next, for a route without parts that vary.
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
        name: asked.write(work / f"{name}.requests", number) for number, (name, asked) in enumerate(kinds.items())
    }
