"""Ocean Engine: golden requests and answers, and failures."""

import pytest

from suites.platforms.client import field, ocean, post, varint
from suites.platforms.conftest import IMEI, NEW, OAID, OLD, VIP, md5
from suites.testkit.stubs import ocean_pb2

Device = ocean_pb2.Device
Req = ocean_pb2.Req
Rsp = ocean_pb2.Rsp

# Published bytes, made with protoc.
EXAMPLE = bytes.fromhex(
    "0801122038643365626433363534666234366132383332323936363639636631623533364801620e323032343036313661626364"
    "65666a056c6f63616c7204934e944e78018a01480a20386433656264333635346662343661323833323239363636396366316235"
    "33361a2431666539613937302d656662622d323965302d306264642d663564626266373531616235"
)
EXAMPLE_ANSWER = bytes.fromhex("320e32303234303631366162636465663a0318934e3a0318944e4a02080150901c")

# 10003 bids for devices outside old_users, -7 for VIPs and without a usable id. 10004 also excludes
# a missing audience: its answers have no cache time.
NEW_USERS, CAREFUL, IDLESS = 10003, 10004, -7
MEMBER, NON_MEMBER, KNOWN_VIP, NO_ID = (0, 0), (1, 0), (1, 1), (0, 1)

# Devices with one id, by field.
DEVICES = {
    "imei_md5": lambda ids: {"imei_md5": md5(ids["imei"])},
    "android_id_md5": lambda ids: {"android_id_md5": md5(ids["android_id"]).upper()},
    "oaid": lambda ids: {"oaid": ids["oaid"]},
    "idfa": lambda ids: {"idfa": ids["idfa"].lower()},
    "gaid": lambda ids: {"gaid": ids["gaid"].upper()},
    **{name: lambda ids, name=name: {name: ids["caid"]} for name in ("caid1", "caid2", "caid")},
}
TYPES = {"IMEI": "imei", "ANDROID_ID": "android_id", "IDFA": "idfa", "OAID": "oaid", "GAID": "gaid"}

GOLDEN = {
    "no id": ({}, NO_ID),
    "a blank id": ({"device": {"oaid": "0"}, "did": "null"}, NO_ID),
    "a malformed id": ({"device": {"imei_md5": "a b"}, "did": "x" * 129}, NO_ID),
    "a device and another did": (
        {"device": {"oaid": OLD["oaid"]}, "did": md5(NEW["imei"]), "did_type": "IMEI_MD5"},
        MEMBER,
    ),
    "a did of another form": ({"did": OLD["imei"], "did_type": "IMEI_MD5"}, NO_ID),
    "a did without a type": ({"did": md5(OLD["openid"])}, MEMBER),
    "a raw IMEI without a type": ({"did": OLD["imei"], "did_type": 99}, MEMBER),
    "a raw IDFA without a type": ({"did": OLD["idfa"], "platform": "PLATFORM_IOS"}, MEMBER),
}


def verdicts(answer):
    return [(info.rta_id, info.is_interested) for info in answer.user_infos]


def asked(served, **parts):
    """Whether the two strategies bid."""
    answer = ocean(served.decisions, "/rta/ocean", Req(rta_ids=[NEW_USERS, IDLESS], **parts))
    return tuple(info.is_interested for info in answer.user_infos)


def test_published_bytes_equal_googles_encoding_and_are_answered(served):
    request = Req(
        platform="PLATFORM_ANDROID",
        did=md5(IMEI),
        did_type="IMEI_MD5",
        req_id="20240616abcdef",
        source="local",
        rta_ids=[10003, 10004],
        enable_strategy=1,
        device=Device(imei_md5=md5(IMEI), oaid=OAID),
    )
    assert request.SerializeToString() == EXAMPLE
    assert post(served.decisions, "/rta/ocean-example", EXAMPLE) == EXAMPLE_ANSWER


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_request_has_its_answer(served, name):
    parts, answer = GOLDEN[name]
    assert asked(served, **parts) == answer


@pytest.mark.parametrize("name", DEVICES)
def test_ids_of_every_field_are_read(served, name):
    for ids, answer in ((OLD, MEMBER), (NEW, NON_MEMBER), (VIP, KNOWN_VIP)):
        assert asked(served, device=DEVICES[name](ids)) == answer


@pytest.mark.parametrize("name", TYPES)
def test_dids_of_every_type_are_read(served, name):
    for ids, answer in ((OLD, MEMBER), (NEW, NON_MEMBER), (VIP, KNOWN_VIP)):
        raw = ids[TYPES[name]]
        assert asked(served, did=raw, did_type=name) == answer
        assert asked(served, did=md5(raw).upper(), did_type=f"{name}_MD5") == answer


def test_requested_strategies_are_echoed_in_order(served):
    new = {"imei_md5": md5(NEW["imei"])}
    requested = [1, CAREFUL, 2**63 - 1, NEW_USERS, 0, -(2**63), IDLESS, NEW_USERS]
    request = Req(req_id="请求-1", device=new, rta_ids=requested)
    answer = ocean(served.decisions, "/rta/ocean", request)
    assert verdicts(answer) == [(each, each in (NEW_USERS, CAREFUL)) for each in requested]
    assert (answer.req_id, answer.status_code, answer.cache_time_secs) == ("请求-1", 0, 0)
    for ids, bid_type, cache in (([NEW_USERS], 0, 3600), ([1, 2], 1, 0), ([], 0, 0)):
        answer = ocean(served.decisions, "/rta/ocean", Req(device=new, rta_ids=ids))
        assert (answer.bid_type.value, answer.cache_time_secs) == (bid_type, cache), ids


def test_requested_strategies_may_be_packed_or_not(served):
    requested = [1, NEW_USERS, IDLESS, 2**40]
    packed = field(14, b"".join(varint(each) for each in requested))
    unpacked = b"".join(field(14, each) for each in requested)
    for body in (packed, unpacked, field(500, b"\xff") + unpacked + field(14, b"")):
        answer = ocean(served.decisions, "/rta/ocean", body)
        assert [each for each, _ in verdicts(answer)] == requested


def test_failures_have_a_status(served):
    request = Req(req_id="r", rta_ids=[NEW_USERS])
    for body in (b"\xde\xad\xbe\xef", field(500, b"x" * 65536)):
        assert ocean(served.decisions, "/rta/ocean", body).status_code != 0
    for body in (request, b"\xff"):
        answer = ocean(served.decisions, "/rta/ocean-keyed", body, {"X-Key": "other"})
        assert (answer.bid_type.value, len(answer.user_infos)) == (1, 0)
        assert answer.status_code != 0
    answer = ocean(served.decisions, "/rta/ocean-keyed", request, {"X-Key": "k"})
    assert answer.status_code == 0
