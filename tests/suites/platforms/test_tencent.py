"""Tencent: published bytes both ways, requests and answers. Ids are in test_tencent_ids, failures
in test_failures."""

from suites.platforms.client import PlatformTest, field, fields, varint
from suites.platforms.devices import IMEI, OAID, OLD_USERS, NON_MEMBERS, VIPS
from suites.testkit.stubs import tencent_pb2

Device = tencent_pb2.Device
RtaRequest = tencent_pb2.RtaRequest
RtaResponse = tencent_pb2.RtaResponse

OLD = OLD_USERS["imei"][0].md5
NEW = NON_MEMBERS["imei"][0].md5
VIP = VIPS["imei"][0].md5

# Published bytes, made with protoc.
EXAMPLE = bytes.fromhex(
    "0a164a6f383235775f75456532784c6c4a554146777653512a4808021a2038643365626433363534666234366132383332323936"
    "363639636631623533363220383365393135386134666235346330653165663062323338363339613233616550034a0408808002"
)
ACCEPT = bytes.fromhex("0a164a6f383235775f75456532784c6c4a55414677765351100052036e6577")
ACCEPT_MINIMAL = bytes.fromhex("100052036e6577")
REJECT_MINIMAL = bytes.fromhex("1001")
PING = bytes.fromhex("0a0270311001")
PONG = bytes.fromhex("0a0270311000")


def device(imei_md5sum, **more):
    return RtaRequest(device=Device(imei_md5sum=imei_md5sum, **more))


class TestGolden(PlatformTest):
    def test_published_request_equals_googles_encoding(self):
        request = RtaRequest(
            id="Jo825w_uEe2xLlJUAFwvSQ",
            device=Device(
                os=Device.OS_ANDROID,
                imei_md5sum=IMEI.md5,
                oaid_md5sum=OAID.md5,
                cached_deviceid_type=Device.CACHED_OAID_MD5,
            ),
            exps=[RtaRequest.Experiment(exp_id=32768)],
        )
        assert request.SerializeToString() == EXAMPLE
        assert RtaRequest(id="p1", is_ping=True).SerializeToString() == PING

    def test_published_answers_are_returned_byte_for_byte(self):
        for sent, came in [
            (EXAMPLE, ACCEPT),
            (EXAMPLE[24:], ACCEPT_MINIMAL),
            (device(OLD).SerializeToString(), REJECT_MINIMAL),
            (field(500, 1), REJECT_MINIMAL),
            (PING, PONG),
            (b"\x10\x01", b"\x10\x00"),
        ]:
            assert self.post("/rta/tencent-example", sent)[2] == came
        assert RtaResponse(request_id="p1", code=0).SerializeToString() == PONG


class TestRequests(PlatformTest):
    def test_ping_is_answered_without_a_decision(self):
        before = self.decisions("tencent")
        for request in [
            RtaRequest(is_ping=True),
            RtaRequest(id="p", is_ping=True, device=Device(imei_md5sum=OLD)),
            RtaRequest(id="p", is_ping=True, is_test=True),
            RtaRequest(
                is_ping=True, request_info={"request_type": 2}, ad_infos=[{"adgroup_id": 1}]
            ),
        ]:
            answer = self.tencent(request)
            expected = RtaResponse(code=0)
            if request.HasField("id"):
                expected.request_id = request.id
            assert answer == expected
        assert self.decisions("tencent") == before
        # False, and numbers other than 0: a bool is a varint.
        assert self.tencent(field(2, 0)) == self.tencent(field(500, 1))
        assert self.post("/rta/tencent", field(2, 1 << 63))[2] == bytes.fromhex("1000")
        assert self.decisions("tencent") > before

    def test_test_request_is_decided_normally(self):
        for id in (OLD, NEW, VIP):
            request = device(id)
            plain = self.tencent(request)
            request.is_test = True
            assert self.tencent(request) == plain

    def test_bidding_strategies_are_listed_with_cache_times(self):
        for path, id, hit, cache in [
            ("/rta/tencent", OLD, [], 86400),
            # T2 depends on a missing audience: its answer has no cache time.
            ("/rta/tencent", NEW, ["T1", "T2"], None),
            ("/rta/tencent", VIP, ["T1", "T2", "T3"], None),
            ("/rta/tencent-cached", NEW, ["new"], 3600),
            ("/rta/tencent-cached", OLD, [], 86400),
        ]:
            expected = RtaResponse(
                code=0 if hit else 1, out_target_id=hit, response_cache_time=cache
            )
            assert self.tencent(device(id), path) == expected

    def test_request_id_is_echoed_byte_for_byte(self):
        for id in ["", "r", "请求-№1-🦀", "x" * 4096, "nul\0\n", " "]:
            request = device(OLD)
            request.id = id
            answer = self.tencent(request)
            assert answer.HasField("request_id")
            assert answer.request_id == id
        assert not self.tencent(device(OLD)).HasField("request_id")
        # Not UTF-8: echoed unchanged.
        came = self.post("/rta/tencent", field(1, b"\xff\xfe"))[2]
        assert (1, b"\xff\xfe") in fields(came)


class TestSecondRequest(PlatformTest):
    def ads(self, *ids, device_id=NEW):
        request = device(device_id)
        request.request_info.request_type = RtaRequest.AD_LIST
        for index, id in enumerate(ids):
            ad = request.ad_infos.add(adgroup_id=2**64 - 1 - index, advertiser_id=7)
            ad.creative_infos.add(creative_id=5, crt_template_id=6)
            ad.product_infos.add(product_lib=1, out_product_id="p")
            if id is not None:
                ad.out_target_id = id
        return request

    def kept(self, request):
        answer = self.tencent(request)
        assert not (answer.out_target_id or answer.HasField("response_cache_time"))
        if answer.code == 1:
            return [False] * len(request.ad_infos)
        assert answer.code == 0
        results = answer.ad_results
        assert [ad.adgroup_id for ad in results] == [ad.adgroup_id for ad in request.ad_infos]
        for ad in results:
            assert ad.ignore or not ad.HasField("ignore")
        return [not ad.ignore for ad in results]

    def test_ad_is_kept_if_its_strategy_bids(self):
        ids = ["T1", "T2", "T3", "T4", "t1", "", None, "T1", "T1 "]
        assert self.kept(self.ads(*ids)) == [True, True] + [False] * 5 + [True, False]
        assert self.kept(self.ads(*ids, device_id=VIP)) == [True] * 3 + [False] * 4 + [True, False]
        assert self.kept(self.ads(*ids, device_id=OLD)) == [False] * 9
        assert self.kept(self.ads(*ids, device_id="0")) == [False, False, True] + [False] * 6

    def test_no_ads_is_a_rejection(self):
        assert self.tencent(self.ads()) == RtaResponse(code=1)

    def test_ads_of_other_request_types_are_ignored(self):
        for kind in (RtaRequest.NORMAL, RtaRequest.CLICK):
            request = self.ads("T1")
            request.request_info.request_type = kind
            answer = self.tencent(request)
            assert (answer.out_target_id, len(answer.ad_results)) == (["T1", "T2"], 0)

    def test_full_second_request(self):
        assert self.kept(self.ads(*["T1", "x"] * 300)) == [True, False] * 300


class TestWire(PlatformTest):
    """Bytes of other encoders, and of older or newer schemas."""

    def same(self, expected, *bodies):
        for body in bodies:
            assert self.tencent(body) == expected

    def test_unknown_fields_are_skipped(self):
        request = device(OLD)
        request.id = "r"
        plain = self.tencent(request)
        body, inside = request.SerializeToString(), request.device.SerializeToString()
        large = field(500, field(1, b"\xff" * 30000) + field(2, field(3, field(4, b""))))
        nested = b""
        for _ in range(500):
            nested = field(77, nested)
        group = varint(70 << 3 | 3) + field(1, 5) + field(2, b"x") + varint(70 << 3 | 4)
        groups = varint(71 << 3 | 3) * 50 + varint(71 << 3 | 4) * 50
        fixed = varint(300 << 3 | 5) + b"\1\2\3\4" + varint(301 << 3 | 1) + b"\xff" * 8
        last = field((1 << 29) - 1, 1)
        for unknown in (large, nested, group, groups, fixed, last, field(600, 1) * 900):
            in_device = field(1, "r") + field(5, unknown + inside + unknown)
            self.same(plain, unknown + body, body + unknown, in_device)
        # Fields of the platform that rtad does not read.
        for number in (4, 6, 7, 10, 13, 14, 16, 17, 20, 9, 12, 15, 18, 19):
            self.same(plain, field(number, b"\xff\xfe") * 3 + body, body + field(number, 7))

    def test_unknown_enum_values_are_skipped(self):
        old = field(3, OLD)
        # An unknown request type counts as normal.
        for kind in (3, 99, 1 << 31, (1 << 64) - 1):
            self.same(self.tencent(device(NEW)), field(5, field(3, NEW)) + field(8, field(1, kind)))
        for number in (8, 127, 1 << 20, (1 << 64) - 1):
            self.same(
                RtaResponse(code=1, response_cache_time=86400), field(5, field(1, number) + old)
            )
            self.same(
                RtaResponse(code=1, response_cache_time=86400), field(5, field(10, number) + old)
            )
            self.same(
                RtaResponse(code=1, response_cache_time=86400), field(5, field(9, number) + old)
            )

    def test_last_value_wins_and_messages_merge(self):
        old, new = field(3, OLD), field(3, NEW)
        rejected, accepted = self.tencent(device(OLD)), self.tencent(device(NEW))
        self.same(rejected, field(5, new + old), field(5, new) + field(5, old))
        self.same(accepted, field(5, old + new), field(5, old) + field(5, new))
        # Two messages merge into one.
        self.same(
            rejected, field(5, old) + field(5, field(1, 2)), field(5, field(1, 2)) + field(5, old)
        )
        assert self.tencent(field(1, "a") + field(1, "b")).request_id == "b"
        assert self.tencent(field(2, 1) + field(2, 0)) == self.tencent(field(2, 0))

    def test_overlong_varints_are_accepted(self):
        for padding in range(1, 8):
            long_one = bytes([0x81] + [0x80] * (padding - 1) + [0x00])
            assert self.post("/rta/tencent", b"\x10" + long_one)[2] == b"\x10\x00"

    def test_fields_may_be_in_any_order(self):
        request = device(
            OLD, os=Device.OS_IOS, ip="1.2.3.4", doubtful_ids_list=[Device.DOUBTFUL_MAC_MD5]
        )
        request.id = "r"
        request.ad_request_time = 2**64 - 1
        request.crt_template_id.extend(range(40))
        plain = self.tencent(request)
        parts = [field(number, value) for number, value in fields(request.SerializeToString())]
        self.same(plain, b"".join(reversed(parts)))
