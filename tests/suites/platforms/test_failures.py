"""Undecidable requests, and HTTP variants: always 200, never an empty body, never `code` 0 by
accident."""

import random
import socket

from suites.platforms.client import PlatformTest, field, varint
from suites.platforms.devices import OLD_USERS, NON_MEMBERS
from suites.testkit.stubs import ocean_pb2, tencent_pb2

Req = ocean_pb2.Req
Device = tencent_pb2.Device
RtaRequest = tencent_pb2.RtaRequest
RtaResponse = tencent_pb2.RtaResponse

OLD = RtaRequest(id="r", device=Device(imei_md5sum=OLD_USERS["imei"][0].md5))
NEW = RtaRequest(id="r", device=Device(imei_md5sum=NON_MEMBERS["imei"][0].md5))
# T2 bids if unavailable; such answers have no cache time.
UNAVAILABLE = RtaResponse(code=0, out_target_id=["T2"])

BROKEN = {
    "nothing": b"",
    "garbage": b"\xde\xad\xbe\xef" * 20,
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "json": b'{"id":"r","device":{}}',
    "truncated": OLD.SerializeToString()[:-1],
    "a key alone": b"\x0a",
    "field 0": b"\x00\x01",
    "an end of no group": varint(70 << 3 | 4),
    "a group without an end": varint(70 << 3 | 3) + field(1, 1),
    "groups too deep": varint(70 << 3 | 3) * 20000,
    "a varint of 11 bytes": b"\x10" + b"\x80" * 10 + b"\x01",
    "a length beyond the body": b"\x0a" + varint(2**31),
    "a length of 2^64 - 1": b"\x2a" + varint(2**64 - 1),
    "wire type 7": b"\x0f\x01",
    "a number where a message belongs": field(5, 1) + field(17, 1),
}


class TestBodies(PlatformTest):
    def test_malformed_body_is_answered(self):
        before = self.metric('rtad_requests_total{route="tencent",code="200"}')
        for what, body in BROKEN.items():
            assert self.tencent(body) == UNAVAILABLE
            assert self.tencent(body, "/rta/tencent-cached") == RtaResponse(code=1)
            answer = self.ocean(body)
            assert answer.status_code != 0, "an error has a status_code"
        assert self.metric('rtad_requests_total{route="tencent",code="200"}') == before + len(
            BROKEN
        )

    def test_request_without_ids(self):
        nothing = field(500, 1)
        assert self.tencent(nothing) == RtaResponse(
            code=0, out_target_id=["T3"], response_cache_time=3600
        )
        assert self.tencent(nothing, "/rta/tencent-cached") == RtaResponse(
            code=1, response_cache_time=86400
        )
        answer = self.ocean(nothing, "/rta/ocean-keyed", headers={"X-Key": "k"})
        assert (answer.status_code, answer.bid_type.value) == (0, 1)

    def test_every_truncation_and_every_flipped_bit_is_answered(self):
        body = RtaRequest(
            id="r",
            device=Device(oaid="x", doubtful_ids_list=[1], qaid_infos=[{"qaid": "q"}]),
            ad_infos=[{"adgroup_id": 1, "out_target_id": "T1"}],
            request_info={"request_type": 2},
        ).SerializeToString()
        for length in range(len(body)):
            self.tencent(body[:length])
        for bit in range(8 * len(body)):
            flipped = bytearray(body)
            flipped[bit // 8] ^= 1 << bit % 8
            self.tencent_answer("/rta/tencent", *self.of(bytes(flipped)))

    def of(self, body):
        status, _, came = self.post("/rta/tencent", body)
        return status, came

    def test_random_bytes_are_answered(self):
        noise = random.Random(5)
        for _ in range(500):
            body = noise.randbytes(noise.randrange(200))
            # The echoed id may not be UTF-8, which Python's classes reject.
            if b"\x0a" not in body:
                self.tencent(body)

    def test_body_over_the_limit(self):
        largest = field(500, b"x" * (65536 - 5))
        assert len(largest) == 65536
        assert self.tencent(largest) == self.tencent(field(500, 1))
        # Sends only up to the limit: unread bytes at close would reset the connection.
        announced = b"Content-Length: 65537\r\n\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n\r\n10001\r\n" + b"x" * 65537
        for rest in (announced, chunked):
            for path in ("/rta/tencent", "/rta/ocean"):
                connection = self.raw(b"POST %b HTTP/1.1\r\nHost: x\r\n%b" % (path.encode(), rest))
                status, came = self.answer_on(connection)
                if path == "/rta/tencent":
                    assert self.tencent_answer(path, status, came) == UNAVAILABLE
                else:
                    assert self.ocean_answer(status, came).status_code != 0


class TestCallers(PlatformTest):
    def test_requests_need_one_of_the_header_values(self):
        path = "/rta/tencent-keyed"
        for headers in ({"X-Rta-Token": "yesterday"}, {"x-rta-token": "today"}):
            assert self.tencent(NEW, path, headers).out_target_id == ["new", "old-example"]
            assert self.tencent(OLD, path, headers).code == 1
        refused = [
            {},
            {"X-Rta-Token": ""},
            {"X-Rta-Token": "tomorrow"},
            {"X-Rta-Token": "todayy"},
            {"Token": "today"},
        ]
        for headers in refused:
            # Unauthorized callers get no bid, even for a broken body: `old-example` would bid.
            for body in (NEW, OLD, b"", b"\xff", RtaRequest(id="p", is_ping=True)):
                assert self.tencent(body, path, headers) == RtaResponse(code=1)
            answer = self.ocean(Req(req_id="r", rta_ids=[10003]), "/rta/ocean-keyed", headers)
            assert (answer.bid_type.value, len(answer.user_infos)) == (1, 0)
            assert answer.status_code != 0
        # With authorization, a broken body is handled as usual.
        answer = self.tencent(b"\xff", path, {"X-Rta-Token": "today"})
        assert answer == RtaResponse(code=0, out_target_id=["old-example"])


class TestHttp(PlatformTest):
    def test_any_content_type_or_none(self):
        for headers in (
            {},
            {"Content-Type": "text/html"},
            {"Content-Type": ""},
            {"Accept": "nothing/known"},
        ):
            assert self.tencent(OLD, headers=headers).request_id == "r"
            assert self.ocean(Req(req_id="r"), headers=headers).req_id == "r"

    def test_chunks_of_any_size(self):
        body = NEW.SerializeToString()
        expected = self.tencent(body)
        for size in (1, 7, len(body)):
            chunks = [body[at : at + size] for at in range(0, len(body), size)]
            headers = {"Transfer-Encoding": "chunked"}
            assert self.tencent(chunks, headers=headers, encode_chunked=True) == expected

    def test_connection_is_kept_after_any_request(self):
        self.tencent(b"")
        port = self.connection.sock.getsockname()
        for body in (OLD.SerializeToString(), b"\xff", b"", NEW.SerializeToString()) * 50:
            self.tencent(body)
            self.ocean(body)
            assert self.connection.sock.getsockname() == port

    def test_pipelined_requests_are_answered_in_order(self):
        bodies = [RtaRequest(id=f"r{n}").SerializeToString() for n in range(20)]
        head = b"POST /rta/tencent HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
        connection = self.raw(b"".join(head % (len(body), body) for body in bodies))
        # One buffer: a read may return several answers.
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 20 or b"r19" not in received:
            more = connection.recv(65536)
            assert more, "closed early"
            received += more
        offsets = [
            received.index(f"\x0a{chr(len(id))}{id}".encode())
            for id in (f"r{n}" for n in range(20))
        ]
        assert offsets == sorted(offsets)

    def test_unusual_heads_are_accepted(self):
        body = OLD.SerializeToString()
        for method in (b"POST", b"PUT", b"GET"):
            head = (
                method
                + b" /rta/tencent?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            assert (
                self.tencent_answer("/rta/tencent", *self.answer_on(self.raw(head, body))).code == 1
            )
        # HTTP/1.0, as in probes of load balancers.
        connection = self.raw(
            b"POST /rta/tencent HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body), body
        )
        assert self.tencent_answer("/rta/tencent", *self.answer_on(connection)).code == 1

    def test_slow_body_is_awaited(self):
        body = OLD.SerializeToString()
        head = b"POST /rta/tencent HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection = self.raw(head, *(body[at : at + 1] for at in range(len(body))))
        assert self.tencent_answer("/rta/tencent", *self.answer_on(connection)).request_id == "r"

    def test_missing_body_times_out_with_an_answer(self):
        for path, head in [
            ("/rta/tencent", b"Content-Length: 100\r\n\r\n0123456789"),
            ("/rta/tencent", b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
        ]:
            connection = self.raw(b"POST %b HTTP/1.1\r\nHost: x\r\n%b" % (path.encode(), head))
            assert self.tencent_answer(path, *self.answer_on(connection)) == UNAVAILABLE

    def test_truncated_body_affects_no_other_connection(self):
        for rest in (
            b"Content-Length: 100\r\n\r\nabc",
            b"Transfer-Encoding: chunked\r\n\r\nno size\r\n",
        ):
            connection = self.raw(b"POST /rta/tencent HTTP/1.1\r\nHost: x\r\n%b" % rest)
            connection.shutdown(socket.SHUT_WR)
            answered = self.answer_on(connection)
            if answered:
                assert self.tencent_answer("/rta/tencent", *answered) == UNAVAILABLE
        for _ in range(50):
            self.raw(
                b"POST /rta/tencent HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"
            ).close()
        assert self.tencent(OLD).code == 1
