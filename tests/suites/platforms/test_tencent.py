"""Tencent: golden requests and answers, and failures."""

import pytest

from suites.platforms.client import field, post, tencent, varint
from suites.platforms.conftest import IMEI, NEW, OAID, OLD, VIP, md5
from suites.testkit.stubs import tencent_pb2

Device = tencent_pb2.Device
RtaRequest = tencent_pb2.RtaRequest
RtaResponse = tencent_pb2.RtaResponse

# Published bytes, made with protoc.
EXAMPLE = bytes.fromhex(
    "0a164a6f383235775f75456532784c6c4a554146777653512a4808021a2038643365626433363534666234366132383332323936"
    "363639636631623533363220383365393135386134666235346330653165663062323338363339613233616550034a0408808002"
)
ACCEPT = bytes.fromhex("0a164a6f383235775f75456532784c6c4a55414677765351100052036e6577")


def device(**ids):
    return RtaRequest(device=Device(**ids))


def imei(raw, **more):
    return device(imei_md5sum=md5(raw), **more)


# T1 bids for devices outside old_users. T2 also excludes a missing audience, and bids if that is
# unavailable; its answers have no cache time. T3 bids for VIPs, and without a usable id.
MEMBER = RtaResponse(code=1, response_cache_time=86400)
NON_MEMBER = RtaResponse(code=0, out_target_id=["T1", "T2"])
KNOWN_VIP = RtaResponse(code=0, out_target_id=["T1", "T2", "T3"])
NO_ID = RtaResponse(code=0, out_target_id=["T3"], response_cache_time=3600)
UNAVAILABLE = RtaResponse(code=0, out_target_id=["T2"])

# Devices with one id, by field.
DEVICES = {
    f"{kind}_md5sum": lambda ids, kind=kind: Device(**{f"{kind}_md5sum": md5(ids[kind])})
    for kind in ("idfa", "imei", "android_id", "mac", "oaid")
}
DEVICES |= {
    "oaid": lambda ids: Device(oaid=ids["oaid"]),
    "qaid": lambda ids: Device(qaid_infos=[{"version": 20230330, "qaid": ids["caid"]}]),
    "qaid_md5sum": lambda ids: Device(qaid_infos=[{"qaid_md5sum": md5(ids["caid"])}]),
    "wx_openid": lambda ids: Device(wx_openid=[{"appid": "wx1", "openid": ids["openid"]}]),
}
MANY = [{"qaid": f"{index:032x}"} for index in range(1 << 8, (1 << 8) + 65)]
BLANK = [{"qaid": "0"}] * 9
DOUBTFUL = varint(Device.DOUBTFUL_IMEI_MD5)
OLD_IMEI = field(3, md5(OLD["imei"]))

GOLDEN = {
    "a test request": (
        RtaRequest(is_test=True, device=Device(imei_md5sum=md5(OLD["imei"]))),
        MEMBER,
    ),
    "upper case and spaces": (device(imei_md5sum=f" {md5(OLD['imei']).upper()}\t"), MEMBER),
    "raw ids with case": (device(oaid=OLD["oaid"].swapcase()), NON_MEMBER),
    "no device": (field(500, 1), NO_ID),
    "a blank id": (device(oaid="00000000-0000-0000-0000-000000000000"), NO_ID),
    "the md5 of a blank id": (device(imei_md5sum=md5("0")), NO_ID),
    "a malformed id": (device(imei_md5sum=md5(OLD["imei"])[:-1] + "g"), NO_ID),
    "two ids": (imei(NEW["imei"], oaid_md5sum=md5(OLD["oaid"])), MEMBER),
    "a doubtful id": (imei(OLD["imei"], doubtful_ids_list=[Device.DOUBTFUL_IMEI_MD5]), NO_ID),
    "a packed list": (field(5, OLD_IMEI + field(9, DOUBTFUL)), NO_ID),
    "an unpacked list": (field(5, OLD_IMEI + field(9, Device.DOUBTFUL_IMEI_MD5)), NO_ID),
    "64 ids": (device(qaid_infos=MANY[:64] + BLANK), NON_MEMBER),
    "65 ids": (device(qaid_infos=MANY), UNAVAILABLE),
    "a member before 65 ids": (imei(OLD["imei"], qaid_infos=MANY), RtaResponse(code=1)),
    "unknown fields": (field(77, b"\xff") + field(5, OLD_IMEI) + field(500, 1), MEMBER),
    "an unknown enum value": (field(5, field(1, 99) + OLD_IMEI), MEMBER),
    "merged devices": (field(5, field(3, md5(NEW["imei"]))) + field(5, OLD_IMEI), MEMBER),
    "garbage": (b"\xde\xad\xbe\xef" * 20, UNAVAILABLE),
    "a truncated body": (imei(OLD["imei"]).SerializeToString()[:-1], UNAVAILABLE),
    "the largest body": (field(500, b"x" * (65536 - 5)), NO_ID),
    "a larger body": (field(500, b"x" * (65536 - 4)), UNAVAILABLE),
}


def test_published_bytes_equal_googles_encoding_and_are_answered(served):
    request = RtaRequest(
        id="Jo825w_uEe2xLlJUAFwvSQ",
        device=Device(
            os=Device.OS_ANDROID,
            imei_md5sum=md5(IMEI),
            oaid_md5sum=md5(OAID),
            cached_deviceid_type=Device.CACHED_OAID_MD5,
        ),
        exps=[RtaRequest.Experiment(exp_id=32768)],
    )
    assert request.SerializeToString() == EXAMPLE
    assert post(served.decisions, "/rta/tencent-example", EXAMPLE) == ACCEPT
    ping = RtaRequest(id="p1", is_ping=True)
    assert post(served.decisions, "/rta/tencent-example", ping) == bytes.fromhex("0a0270311000")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_request_has_its_answer(served, name):
    request, answer = GOLDEN[name]
    assert tencent(served.decisions, "/rta/tencent", request) == answer


@pytest.mark.parametrize("name", DEVICES)
def test_ids_of_every_field_are_read(served, name):
    for ids, answer in ((OLD, MEMBER), (NEW, NON_MEMBER), (VIP, KNOWN_VIP)):
        request = RtaRequest(id="请求-1", device=DEVICES[name](ids))
        expected = RtaResponse(request_id="请求-1")
        expected.MergeFrom(answer)
        assert tencent(served.decisions, "/rta/tencent", request) == expected


def test_second_request_keeps_the_ads_of_bidding_strategies(served):
    request = imei(NEW["imei"])
    request.request_info.request_type = RtaRequest.AD_LIST
    for number, strategy in enumerate(["T1", "T3", "t1", None, "T2"]):
        request.ad_infos.add(adgroup_id=2**64 - 1 - number, out_target_id=strategy)
    answer = tencent(served.decisions, "/rta/tencent", request)
    assert (answer.code, list(answer.out_target_id)) == (0, [])
    kept = [(ad.adgroup_id, ad.ignore) for ad in answer.ad_results]
    ignored = [False, True, True, True, False]
    assert kept == [(2**64 - 1 - number, each) for number, each in enumerate(ignored)]


def test_callers_need_the_header(served):
    path, request = "/rta/tencent-keyed", imei(NEW["imei"])
    for value in ("yesterday", "today"):
        answer = tencent(served.decisions, path, request, {"X-Rta-Token": value})
        assert answer.out_target_id == ["new", "old-example"]
    # A broken body of an unauthorized caller gets no bid either: `old-example` would bid.
    for sent in (request, b"\xff", RtaRequest(is_ping=True)):
        answer = tencent(served.decisions, path, sent, {"X-Rta-Token": "todayy"})
        assert answer == RtaResponse(code=1)
