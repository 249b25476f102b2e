"""How the tests ask: one kept connection per test, every exchange remembered, and what every answer
must be.

Nothing here knows the service's code: answers are read by the stubs that Google's compiler made.
"""

import contextlib
import http.client
import socket

import pytest

from suites.testkit.client import ask
from suites.testkit.stubs import ocean_pb2, tencent_pb2

TIMEOUT_SECONDS = 20

# The ids that each path may accept with.
TENCENT_IDS = {
    "/rta/tencent": {"T1", "T2", "T3"},
    "/rta/tencent-keyed": {"new", "old-example"},
    "/rta/tencent-example": {"new"},
    "/rta/tencent-cached": {"new"},
}
OCEAN_IDS = {
    "/rta/ocean": {10003, 10004, -7},
    "/rta/ocean-example": {10003, 10004},
    "/rta/ocean-keyed": {10003},
}


class Exchange:
    """What was sent and what came, for the report of a failure."""

    def __init__(self, path, headers, body):
        self.sent = f"{path} {headers}\n  sent {body.hex()}"
        self.came = "  nothing came"

    def __str__(self):
        return f"{self.sent}\n{self.came}"


class Asking:
    exchange = None

    @pytest.fixture(autouse=True)
    def connected(self, served):
        self.served = served
        with contextlib.ExitStack() as self.opened:
            self.connection = http.client.HTTPConnection(served.decisions, timeout=TIMEOUT_SECONDS)
            self.opened.callback(self.connection.close)
            yield

    def post(self, path, body, headers=None, **options):
        """Asks over the test's connection; returns status, headers and body. A list of bytes goes
        out in chunks."""
        headers = {"Content-Type": "application/x-protobuf"} if headers is None else headers
        whole = body if isinstance(body, bytes) else b"".join(body)
        self.exchange = Exchange(path, headers, whole)
        self.connection.request("POST", path, body, headers, **options)
        response = self.connection.getresponse()
        came = response.read()
        self.exchange.came = f"  came {response.status} {came.hex()}"
        return response.status, response.headers, came

    def tencent(self, request, path="/rta/tencent", headers=None, **options):
        """Asks with a message or with bytes; returns the answer, which is all that a Tencent answer
        must be."""
        body = (
            request.SerializeToString() if isinstance(request, tencent_pb2.RtaRequest) else request
        )
        status, head, came = self.post(path, body, headers, **options)
        assert int(head["Content-Length"]) == len(came)
        assert "Content-Encoding" not in head
        return self.tencent_answer(path, status, came)

    def tencent_answer(self, path, status, came):
        assert status == 200
        assert came, "an empty answer accepts every ad"
        answer = tencent_pb2.RtaResponse.FromString(came)
        assert answer.HasField("code"), "no code on the wire accepts every ad"
        # The code stands on the wire, not only in a default: found by hand.
        assert 2 in [number for number, _ in fields(came)]
        hit = list(answer.out_target_id)
        assert set(hit) <= TENCENT_IDS[path]
        assert len(hit) == len(set(hit))
        if answer.code != 0:
            assert not (hit or answer.ad_results)
        return answer

    def ocean(self, request, path="/rta/ocean", headers=None, **options):
        """The same for Ocean Engine; a failure is its status_code."""
        body = request.SerializeToString() if isinstance(request, ocean_pb2.Req) else request
        status, head, came = self.post(path, body, headers, **options)
        assert head["Content-Type"] == "application/x-protobuf"
        return self.ocean_answer(status, came)

    def ocean_answer(self, status, came):
        assert status == 200
        answer = ocean_pb2.Rsp.FromString(came)
        assert answer.HasField("bid_type"), "bid_type is always written"
        assert answer.bid_type.value in (0, 1)
        for info in answer.user_infos:
            if info.is_interested:
                assert answer.bid_type.value == 0
        return answer

    def raw(self, *parts):
        """Sends bytes over a connection of its own, one part after the other; a number waits for as
        many answers' heads."""
        address = self.served.decisions.split(":")
        connection = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        self.opened.callback(connection.close)
        self.exchange = Exchange("a bare socket", "", b"".join(parts))
        for part in parts:
            connection.sendall(part)
        return connection

    def answer_on(self, connection):
        """The next answer on a bare socket: status and body; None if it was closed without one."""
        response = http.client.HTTPResponse(connection)
        try:
            response.begin()
            came = response.read()
        except (http.client.BadStatusLine, ConnectionError):
            return None
        self.exchange.came = f"  came {response.status} {came.hex()}"
        return response.status, came

    def metrics(self):
        """Each series with its labels, and its value."""
        text = ask(self.served.admin, "/metrics").text()
        rows = (row.rsplit(" ", 1) for row in text.splitlines() if not row.startswith("#"))
        return {row[0]: float(row[1]) for row in rows if len(row) == 2}

    def metric(self, line):
        """The value of a metric with exactly these labels; 0 if there is none yet."""
        return self.metrics().get(line, 0)

    def decisions(self, platform):
        """How many decisions a platform was given."""
        begin = f'rtad_decisions_total{{platform="{platform}"'
        found = [value for series, value in self.metrics().items() if series.startswith(begin)]
        assert found
        return sum(found)


def varint(number):
    """Written by hand, for bytes that no encoder would make."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, value):
    """A field by hand: an int as a varint, anything else as bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """Reads a message by hand: its fields' numbers and values, in order."""

    def read(at):
        number = shift = 0
        while True:
            number |= (message[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 0x80:
                return number, at

    found, at = [], 0
    while at < len(message):
        key, at = read(at)
        if key & 7 == 0:
            value, at = read(at)
        elif key & 7 == 2:
            length, at = read(at)
            value, at = message[at : at + length], at + length
        else:
            raise ValueError(f"wire type {key & 7} in an answer")
        found.append((key >> 3, value))
    return found
