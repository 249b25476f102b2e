"""Platform client: one kept connection per test, a record of the last exchange, and checks of every
answer.

Independent of the service's code: answers are decoded by classes of Google's protobuf compiler.
"""

import contextlib
import http.client
import socket

import pytest

from suites.testkit.client import ask
from suites.testkit.stubs import ocean_pb2, tencent_pb2

TIMEOUT_SECONDS = 20

# Strategy ids that each path may return.
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
    """Request and answer, for failure reports."""

    def __init__(self, path, headers, body):
        self.sent = f"{path} {headers}\n  sent {body.hex()}"
        self.received = "  nothing received"

    def __str__(self):
        return f"{self.sent}\n{self.received}"


class PlatformTest:
    exchange = None

    @pytest.fixture(autouse=True)
    def connected(self, served):
        self.served = served
        with contextlib.ExitStack() as self.opened:
            self.connection = http.client.HTTPConnection(served.decisions, timeout=TIMEOUT_SECONDS)
            self.opened.callback(self.connection.close)
            yield

    def post(self, path, body, headers=None, **options):
        """POSTs on the test's connection; returns status, headers and body. A list of bytes is sent
        in chunks."""
        headers = {"Content-Type": "application/x-protobuf"} if headers is None else headers
        whole = body if isinstance(body, bytes) else b"".join(body)
        self.exchange = Exchange(path, headers, whole)
        self.connection.request("POST", path, body, headers, **options)
        response = self.connection.getresponse()
        received = response.read()
        self.exchange.received = f"  received {response.status} {received.hex()}"
        return response.status, response.headers, received

    def tencent(self, request, path="/rta/tencent", headers=None, **options):
        """Sends a message or bytes; returns the verified Tencent answer."""
        body = (
            request.SerializeToString() if isinstance(request, tencent_pb2.RtaRequest) else request
        )
        status, head, received = self.post(path, body, headers, **options)
        assert int(head["Content-Length"]) == len(received)
        assert "Content-Encoding" not in head
        return self.tencent_answer(path, status, received)

    def tencent_answer(self, path, status, received):
        assert status == 200
        assert received, "an empty answer would accept every ad"
        answer = tencent_pb2.RtaResponse.FromString(received)
        assert answer.HasField("code"), "a missing code would accept every ad"
        # The code is on the wire, not only a default.
        assert 2 in [number for number, _ in fields(received)]
        hit = list(answer.out_target_id)
        assert set(hit) <= TENCENT_IDS[path]
        assert len(hit) == len(set(hit))
        if answer.code != 0:
            assert not (hit or answer.ad_results)
        return answer

    def ocean(self, request, path="/rta/ocean", headers=None, **options):
        """Sends a message or bytes; returns the verified Ocean Engine answer."""
        body = request.SerializeToString() if isinstance(request, ocean_pb2.Req) else request
        status, head, received = self.post(path, body, headers, **options)
        assert head["Content-Type"] == "application/x-protobuf"
        return self.ocean_answer(status, received)

    def ocean_answer(self, status, received):
        assert status == 200
        answer = ocean_pb2.Rsp.FromString(received)
        assert answer.HasField("bid_type"), "bid_type is always written"
        assert answer.bid_type.value in (0, 1)
        for info in answer.user_infos:
            if info.is_interested:
                assert answer.bid_type.value == 0
        return answer

    def raw(self, *parts):
        """Sends bytes in parts on a new connection; returns the socket."""
        address = self.served.decisions.split(":")
        connection = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        self.opened.callback(connection.close)
        self.exchange = Exchange("a bare socket", "", b"".join(parts))
        for part in parts:
            connection.sendall(part)
        return connection

    def answer_on(self, connection):
        """The next answer on a socket: status and body; None if it was closed."""
        response = http.client.HTTPResponse(connection)
        try:
            response.begin()
            received = response.read()
        except (http.client.BadStatusLine, ConnectionError):
            return None
        self.exchange.received = f"  received {response.status} {received.hex()}"
        return response.status, received

    def metrics(self):
        """Values of all series, by name and labels."""
        text = ask(self.served.admin, "/metrics").text()
        rows = (row.rsplit(" ", 1) for row in text.splitlines() if not row.startswith("#"))
        return {row[0]: float(row[1]) for row in rows if len(row) == 2}

    def metric(self, line):
        """The value of a metric with exactly these labels; 0 if missing."""
        return self.metrics().get(line, 0)

    def decisions(self, platform):
        """Number of decisions for a platform."""
        begin = f'rtad_decisions_total{{platform="{platform}"'
        found = [value for series, value in self.metrics().items() if series.startswith(begin)]
        assert found
        return sum(found)


def varint(number):
    """Encodes a varint, optionally longer than needed."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, value):
    """Encodes a field: an int as a varint, anything else as bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """Decodes a message: numbers and values of its fields, in order."""

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
