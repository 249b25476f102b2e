"""Platform client, independent of the service's code: a wire codec of a few lines, and answers that
are decoded by classes of Google's protobuf compiler."""

from suites.testkit.client import ask
from suites.testkit.stubs import ocean_pb2, tencent_pb2


def varint(number):
    """Encodes a varint."""
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


def encoded(request):
    """The bytes of a message; bytes stay as they are."""
    return request if isinstance(request, bytes) else request.SerializeToString()


def post(address, path, request, headers=None):
    """The bytes of an answer, whose status is always 200."""
    answer = ask(address, path, encoded(request), headers=headers)
    assert answer.status == 200, answer
    return answer.body


def tencent(address, path, request, headers=None):
    """A verified answer of Tencent: an empty one, or one without a code, would accept every ad."""
    body = post(address, path, request, headers)
    answer = tencent_pb2.RtaResponse.FromString(body)
    assert answer.HasField("code") and b"\x10" + varint(answer.code) in body, body.hex()
    assert answer.code == 0 or not (answer.out_target_id or answer.ad_results), body.hex()
    return answer


def ocean(address, path, request, headers=None):
    """A verified answer of Ocean Engine: bid_type is always written."""
    answer = ocean_pb2.Rsp.FromString(post(address, path, request, headers))
    assert answer.HasField("bid_type") and answer.bid_type.value in (0, 1)
    bids = [info.is_interested for info in answer.user_infos]
    assert not any(bids) or answer.bid_type.value == 0
    return answer
